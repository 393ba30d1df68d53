"""What is one file at rest, and how are its bytes had as memory? Header, geometry, identity, maps.

path (paths, mounts) -> header (npy | raw) -> layout -> sources (identity: the same file still?)
|
a region (indexing) -> runs `-> mapping | preading -> blocks
"""

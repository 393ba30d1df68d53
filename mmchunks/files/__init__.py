"""What is one file at rest, and how are its bytes had as memory? Header, geometry, identity, maps.

    path (paths, mounts) -> header (npy | raw) -> layout -> sources (identity: still the same file?)
                                                     |
                a region of it (indexing) -> runs ---'-> mapping | preading -> blocks

A source is all that travels: it holds no open file and no data.
"""

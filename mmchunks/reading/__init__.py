"""How do the bytes of a region come to whoever asks? READ: open, choose a way, bring; lazy or now.

    opening -> Source -> lazy | stacks -> selection -.
                 |                                   |
                 `-> loading ------------------> regions   look: pagecache, the mount
                                                     |     choose: routes | trials
                                                     |     act: map | read | uploading (a GPU)
                                                     `-> block

Beside it: lazyindexing, the dask array that reads less when it is indexed, and rationing, which gives it
chunks that a GPU can hold.
"""

"""How do the bytes of a region come to whoever asks? READ: open, choose a way, bring; lazy or now.

opening -> Source -> lazy | stacks -> selection ---.
`-> loading --------------------- regions   look: mount, pagecache
|       choose: routes | trials
|       act: map | read | uploading (GPU)
`-> block
filearray: the dask array that reads less when indexed · rationing: chunks that a GPU can hold
"""

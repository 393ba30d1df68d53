"""What becomes of the windows of an array? AGGREGATE: numerics of a block, and the lazy array.

    arrays -> halos (what a task reads) -> a block -> windows -> folds | sums | variances -> result
                                                         |         compiled: sums as vectors
                                                         `-> reductions: which, and what dtype

Only `arrays` knows files and dask; all others take a block and give one.
"""

"""What becomes of the windows of an array? AGGREGATE: numerics of a block, and the lazy array.

arrays -> halos (what a task reads) -> a block -> windows -> folds | sums | variances -> result
reductions: which of them, what dtype
compiled: the sums again, as vectors
"""

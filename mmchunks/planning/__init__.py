"""Which bytes are whose? Words into cuts, cuts onto pages, a plan of chunks; no data is touched.

    chunks=, halo= (grammar) -> cuts -> grids -> alignment -> plans -> a chunk, a part of n (jobarrays)
                    `------- making: all of it, in order ------'
    explaining | pictures | jsonforms of a plan; pagecounts: who shares a page

And ranges: what is left of rows, when some are done.
"""

"""Which bytes are whose? Words into cuts, cuts onto pages, a plan of chunks; no data is touched.

chunks=, halo= (grammar) -> cuts of each axis -> grids -> alignment -> plans of chunks
making: all of it, in that order           pagecounts    |
part i of n (jobarrays)
explaining | pictures | jsonforms
"""

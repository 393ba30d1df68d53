"""How do bytes get between this host and this process's device? It knows no file.

    placement (which) -> devices -> transfers -> lanes -> ring of slots -> device memory -> forms
                            |          `-> gds, around the host · hostmemory, without a copy
                            `-> workers: one process for each · budget: what fits

Everything that decides is pure; CuPy is imported in `devices` alone, and typed in `cupytypes`.
"""

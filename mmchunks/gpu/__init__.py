"""How do bytes get between this host and this process's device? It knows no file.

placement (which one) -> devices -> transfers -> lanes -> ring of slots -> device -> forms
|                              hostmemory | gds
`-> workers (a process each) · budget (what fits)
"""

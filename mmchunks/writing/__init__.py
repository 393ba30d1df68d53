"""How is one file written by many? Its space, its pages with one writer each, and the record of it.

    create    reserving (space, then a name that lasts: durable) -> targets
    write     targets -> casting (what goes where) -> handles (the same file?) -> pages -> disk
                 `-> what was done, with checksums
    record    journallines -> journal          locks: one driver; interrupts: not in between
    resume    journal -> journallines -> ledger: what they add up to

What is written down as done is on stable storage.
"""

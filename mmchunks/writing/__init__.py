"""How is one file written by many? Its space, its pages with one writer each, and the record of it.

    create    reserving (space, then a name that lasts: durable) -> targets
    write     targets -> assigning (what goes where) -> handles (the same file?) -> pages -> disk
                 `-> what was done, with checksums
    record    lines -> journal                 locks: one driver; interrupts: not in between
    resume    journal -> lines -> ledger: what they add up to

What is written down as done is on stable storage.
"""

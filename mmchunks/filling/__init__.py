"""Who computes which rows, and what is left to do? FILL: resumable work of many processes.

    look      sweeping | storing: what is asked for (scenarios), and what of it is there (resuming)
    choose    learning: shape, dtype and units of work that nobody began; units: which rows are whose
    act       driving -> executors -> computing (attempts) -> a target of `writing`
              driving <- receipts <-------'                    progress shows how far it is
    judge     checking: what is done, and is it still what was written

A row goes down once, from `computing` into `writing`, and comes back as a receipt that the driver
writes down.
"""

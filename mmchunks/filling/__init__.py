"""Who computes which rows, and what is left to do? FILL: resumable work of many processes.

look      sweeping | storing: what was asked for (scenarios), what is there (resuming)
choose    units of the rows that are left; learning: shape, dtype and units of a first run
act       driving -> executors -> computing (attempts) -> writing.targets -> receipt -> journal
progress
judge     checking: what is done, and is it still what was written
"""

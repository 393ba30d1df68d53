"""What does a person type, and what do they see? The verbs of Python, and their answers as lines.

    words (options) -> verb (commands, demo, timing) -> what Python has for it -> lines (report)

Nothing is decided here that Python's own functions do not decide.
"""

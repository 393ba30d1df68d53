"""Every exception that mmchunks raises on purpose.

MMChunksError
├── LayoutError    (ValueError)    a description of an array that cannot be true
├── PlanError      (ValueError)    a request that no plan can satisfy
├── HeaderError    (ValueError)    bytes that are not a .npy header, or not one that can be mapped
├── StaleFileError (OSError)       the file changed after it was opened
├── JournalError   (RuntimeError)  a record of work that is corrupt, in use, or of other work
├── SweepError     (RuntimeError)  a scenario failed, and nobody asked to go on without it
└── DeviceError    (RuntimeError)  a GPU was asked for and is not there

What the operating system reports (no such file, no space, no permission) stays what it is:
an ``OSError`` of the usual kind, whose sentence begins with the path.
"""

__all__ = [
    "DeviceError",
    "HeaderError",
    "JournalError",
    "LayoutError",
    "MMChunksError",
    "PlanError",
    "StaleFileError",
    "SweepError",
    "os_error",
]


class MMChunksError(Exception):
    """Base of every exception that mmchunks raises on purpose."""


class LayoutError(MMChunksError, ValueError):
    """A description of an array that cannot be true."""


class PlanError(MMChunksError, ValueError):
    """A request that no plan can satisfy."""


class HeaderError(MMChunksError, ValueError):
    """Bytes that are not a ``.npy`` header, or not one whose data can be mapped."""


class StaleFileError(MMChunksError, OSError):
    """The file is not the one that was opened: truncated, replaced, rewritten or gone."""


class JournalError(MMChunksError, RuntimeError):
    """The record of finished work is corrupt, held by another driver, or of other work."""


class SweepError(MMChunksError, RuntimeError):
    """A scenario failed, and the sweep was not asked to record failures and go on."""


class DeviceError(MMChunksError, RuntimeError):
    """A GPU was asked for and is not there, or cannot do what was asked."""


def os_error(code: int | None, sentence: str) -> OSError:
    """Make the error that the operating system has for a code, of a sentence of ours.

    Built as usual, its text would begin with the code and not with the path.

    Examples
    --------
    >>> error = os_error(2, "out.npy: no such file")
    >>> type(error).__name__, error.errno, str(error)
    ('FileNotFoundError', 2, 'out.npy: no such file')
    """
    error = type(OSError(code, sentence))(sentence)
    error.errno = code
    return error

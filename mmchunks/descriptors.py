"""What does an open descriptor say about its file? Its name, and where it ends."""

from __future__ import annotations

import os
from pathlib import Path

from mmchunks.errors import StaleFileError

__all__ = ["path_of", "require"]


def path_of(fd: int) -> str:
    """Name the file behind `fd`, for the beginning of an error.

    Parameters
    ----------
    fd : int
        An open descriptor.

    Returns
    -------
    str
        Its path; with " (deleted)" at the end when that name is gone.
    """
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    except OSError:
        return f"file descriptor {fd}"


def require(fd: int, stop: int) -> None:
    """Refuse a file that ends before byte `stop`.

    A map beyond the end of a file kills the process that touches it (SIGBUS), so the end is
    looked up first.

    Parameters
    ----------
    fd : int
        An open descriptor.
    stop : int
        How many bytes the file must hold.

    Raises
    ------
    StaleFileError
        If it holds fewer.
    """
    found = os.fstat(fd).st_size
    if found < stop:
        msg = (
            f"{path_of(fd)}: the bytes asked for end at {stop:,}, the file holds {found:,}; it "
            "was truncated after it was opened: write it anew, or open it again"
        )
        raise StaleFileError(msg)

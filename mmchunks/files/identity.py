"""Is this still the file that was opened? What tells one file from another that took its name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from mmchunks.errors import StaleFileError

__all__ = ["Identity", "path_of", "require"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells a file from the one that was opened."""

    device: int = field(compare=False)
    """Number of the file system. Two hosts number the same one differently: it is not compared."""

    inode: int
    """Number of the file within its file system; a replaced file has another."""

    nbytes: int
    """Length of the file in bytes."""

    mtime_ns: int
    """Time of the last change of the data, in nanoseconds since 1970."""

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """Take the identity out of what ``os.stat`` returns."""
        return cls(
            device=status.st_dev,
            inode=status.st_ino,
            nbytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
        )

    def __str__(self) -> str:
        changed = datetime.fromtimestamp(self.mtime_ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return (
            f"{self.nbytes:,} bytes in inode {self.inode}, "
            f"changed at {changed}.{self.mtime_ns % 10**9:09}Z"
        )


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

"""Is this still the file that was opened? What tells one file from another that took its name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from mmchunks.errors import StaleFileError

__all__ = ["Identity", "path_of", "require", "require_same"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells a file from the one that was opened; None is not known, and not compared."""

    device: int = field(compare=False)
    """Number of the file system. Two hosts number the same one differently: it is not compared."""

    inode: int | None
    """Number of the file within its file system; a replaced file has another."""

    nbytes: int
    """Length of the file in bytes."""

    mtime_ns: int | None
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

    @property
    def timeless(self) -> Identity:
        """The same file, whenever it was changed last: for one that is being filled."""
        return replace(self, mtime_ns=None)

    def same(self, other: Identity) -> bool:
        """Whether both may be one file, as far as both know.

        Examples
        --------
        >>> file = Identity(device=1, inode=7, nbytes=10, mtime_ns=5)
        >>> changed = replace(file, mtime_ns=6)
        >>> file.same(changed), file.timeless.same(changed)
        (False, True)
        """
        pairs = (
            (self.inode, other.inode),
            (self.nbytes, other.nbytes),
            (self.mtime_ns, other.mtime_ns),
        )
        return all(None in pair or pair[0] == pair[1] for pair in pairs)

    def __str__(self) -> str:
        text = f"{self.nbytes:,} bytes"
        if self.inode is not None:
            text += f" in inode {self.inode}"
        if self.mtime_ns is not None:
            seconds, ns = divmod(self.mtime_ns, 10**9)
            changed = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            text += f", changed at {changed}.{ns:09}Z"
        return text


def require_same(path: str, expected: Identity, found: Identity | None, *, then: str) -> None:
    """Refuse a file that is not the one it was.

    Parameters
    ----------
    path : str
        The file, for the beginning of the sentence.
    expected : Identity
        What it was.
    found : Identity or None
        What it is; None where there is no file any more.
    then : str
        What follows from it, or what to do about it: the end of the sentence.

    Raises
    ------
    StaleFileError
        If both cannot be one file.
    """
    if found is None or not expected.same(found):
        # A file that is filled may change its time: there it says nothing, and is not shown.
        timeless = found is not None and expected.mtime_ns is None
        now = "no file" if found is None else str(found.timeless if timeless else found)
        msg = f"{path}: expected {expected}, found {now}; {then}"
        raise StaleFileError(msg)


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

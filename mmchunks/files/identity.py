"""Is this still the file that was opened? What tells one file from another that took its name.

A name and a length do not: programs write files anew under old names, and of the same size. Nor does
the inode: ext4 hands out the number of a file that was removed to the very next one. So the moment of
birth is asked for, too, and the generation that the file system gives a number each time it is used
again; and where a file is to be written, the bytes of its header are compared.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import zlib
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from mmchunks.errors import StaleFileError
from mmchunks.files.layout import PAGE

__all__ = ["Identity", "head_crc", "identify", "path_of", "require", "require_same"]

_AT_EMPTY_PATH = 0x1000
_BASIC, _BIRTH = 0x7FF, 0x800  # what statx is asked for, and says that it knows
_GET_VERSION = 0x80087601  # FS_IOC_GETVERSION of linux/fs.h, on x86, arm and riscv

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells a file from the one that was opened; None is not known, and not compared."""

    device: int = field(compare=False)
    """Number of the file system. Two hosts number the same one differently: it is not compared."""

    inode: int | None
    """Number of the file within its file system."""

    nbytes: int
    """Length of the file in bytes."""

    mtime_ns: int | None
    """Time of the last change of the data, in nanoseconds since 1970."""

    born_ns: int | None = None
    """When the file was made, in nanoseconds since 1970."""

    generation: int | None = None
    """Which use of that inode number it is, as the file system counts."""

    head_crc: int | None = None
    """CRC of its header, if it has one that matters: what is written must not be another array."""

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
            (self.born_ns, other.born_ns),
            (self.generation, other.generation),
            (self.head_crc, other.head_crc),
        )
        return all(None in pair or pair[0] == pair[1] for pair in pairs)

    def __str__(self) -> str:
        text = f"{self.nbytes:,} bytes"
        if self.inode is not None:
            text += f" in inode {self.inode}"
        if self.born_ns is not None:
            text += f", made at {_moment(self.born_ns)}"
        if self.mtime_ns is not None:
            text += f", changed at {_moment(self.mtime_ns)}"
        return text


def identify(where: int | str) -> Identity:
    """Look at what a file is now.

    Parameters
    ----------
    where : int or str
        An open descriptor, which tells more; or a path.

    Raises
    ------
    OSError
        If there is no such file.
    """
    found = os.stat(where)
    return Identity(
        device=found.st_dev,
        inode=found.st_ino,
        nbytes=found.st_size,
        mtime_ns=found.st_mtime_ns,
        born_ns=_born_ns(where),
        generation=_generation(where) if isinstance(where, int) else None,
    )


def head_crc(fd: int, nbytes: int) -> int:
    """Sum up the first bytes of a file, a page at most, so that another header is noticed."""
    return zlib.crc32(os.pread(fd, min(nbytes, PAGE), 0))


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
        if now == str(expected):  # its generation or its header tells, numbers for no reader
            now = "another file of the same size"
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


def _moment(ns: int) -> str:
    seconds, rest = divmod(ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"


def _born_ns(where: int | str) -> int | None:
    """Ask statx(2), which Python does not, when a file was made; None where nobody knows."""
    if not hasattr(_libc, "statx"):
        return None
    found = ctypes.create_string_buffer(256)
    if isinstance(where, int):
        failed = _libc.statx(where, b"", _AT_EMPTY_PATH, _BASIC | _BIRTH, found)
    else:
        failed = _libc.statx(-100, os.fsencode(where), 0, _BASIC | _BIRTH, found)  # AT_FDCWD
    (mask,) = struct.unpack_from("I", found, 0)
    if failed or not mask & _BIRTH:
        return None
    seconds, ns = struct.unpack_from("qI", found, 80)
    return int(seconds * 10**9 + ns)


def _generation(fd: int) -> int | None:
    try:
        return int(struct.unpack("l", fcntl.ioctl(fd, _GET_VERSION, bytes(8)))[0])
    except OSError:  # file systems that never use a number again have none
        return None

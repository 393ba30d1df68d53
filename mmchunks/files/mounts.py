"""On what kind of file system does a path lie? And is it this host's alone? See its mount."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = ["Mount", "mount_of"]

# Everything that is not known to belong to one host is treated as if several wrote to it.
_LOCAL_KINDS = frozenset(
    [
        "bcachefs",
        "btrfs",
        "devtmpfs",
        "erofs",
        "exfat",
        "ext2",
        "ext3",
        "ext4",
        "f2fs",
        "hfsplus",
        "iso9660",
        "jfs",
        "nilfs2",
        "ntfs3",
        "overlay",
        "ramfs",
        "reiserfs",
        "rootfs",
        "squashfs",
        "tmpfs",
        "udf",
        "vfat",
        "xfs",
        "zfs",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A mounted file system."""

    point: str
    """Directory that it is mounted on."""

    kind: str
    """Its type, as the kernel names it: ``"ext4"``, ``"nfs4"``, ``"fuse.sshfs"`` ..."""

    options: frozenset[str]
    """Options of the mount and of the file system, as the kernel lists them."""

    readahead_nbytes: int | None
    """How far the kernel reads ahead of a map that is touched in order; None if unknown."""

    @property
    def local(self) -> bool:
        """Whether this host alone writes to it; False for every kind that is not known."""
        return self.kind in _LOCAL_KINDS


def mount_of(path: str | os.PathLike[str]) -> Mount:
    """Find the file system that holds `path`.

    Parameters
    ----------
    path : str or os.PathLike
        A path that exists; symbolic links are followed.

    Returns
    -------
    Mount
        Of kind ``"unknown"``, and so not local, where the kernel does not tell.

    Raises
    ------
    OSError
        If there is nothing at `path`.

    Examples
    --------
    >>> mount_of("/proc/self").kind
    'proc'
    """
    # Chunks ask this one after another. The device is part of what is remembered, because
    # something else may be mounted there later.
    return _mount_of(os.fspath(path), os.stat(path).st_dev)


@lru_cache(maxsize=1024)
def _mount_of(path: str, device: int) -> Mount:
    try:
        text = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError:
        text = ""
    return find(os.path.realpath(path), text, readahead_nbytes=_readahead_nbytes(device))


def _readahead_nbytes(device: int) -> int | None:
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    # A partition has no queue of its own, its disk has. A file system that is no disk's has none.
    for queue in (block / "queue", block / "../queue"):
        try:
            return int((queue / "read_ahead_kb").read_text()) * 1024
        except OSError:
            continue
    return None


def find(path: str, mountinfo: str, *, readahead_nbytes: int | None) -> Mount:
    """Find the mount of an absolute path in the text of ``/proc/self/mountinfo``.

    Parameters
    ----------
    path : str
        Absolute, without symbolic links.
    mountinfo : str
        One mount a line, see proc(5).
    readahead_nbytes : int or None
        What is known of the disk beneath.

    Returns
    -------
    Mount
        The one with the longest mount point, and of those on the same point the last, which hides
        the others.
    """
    point, kind, options = "", "unknown", ""
    for line in mountinfo.splitlines():
        # 36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw,errors=continue
        before, _, after = line.partition(" - ")
        mine, theirs = before.split(" "), after.split(" ")
        candidate = _unescaped(mine[4])
        if len(candidate) >= len(point) and _holds(candidate, path):
            point, kind, options = candidate, theirs[0], f"{mine[5]},{theirs[2]}"
    return Mount(
        point=point,
        kind=kind,
        options=frozenset(options.split(",")) - {""},
        readahead_nbytes=readahead_nbytes,
    )


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _unescaped(text: str) -> str:
    r"""Undo the kernel's spelling of blanks, tabs, newlines and backslashes: ``\040`` and so on."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)

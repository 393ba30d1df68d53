"""How does a new file get its space and its name? All at once, or not at all.

    (no name)                   header, space, fill: whatever fails, or is killed, nothing is left
    .out.npy.3f0a...partial     for a moment; all the while where every file must have a name
    out.npy                     appears when everything is on stable storage

Space is reserved with ``fallocate(2)`` itself. What the C library offers instead writes one byte
a block where the file system cannot reserve: hours for a large file, and unsafe beside writers.
A sparse file that fills its disk kills the process that stores through a map (SIGBUS).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
import uuid
from contextlib import suppress
from pathlib import Path

from mmchunks.errors import os_error
from mmchunks.writing.durable import NO_SPACE, claim, free_nbytes, litter, making, sync_folder

__all__ = ["create"]

_CANNOT = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.ENODEV}

# From linux/fs.h; ioctl numbers of x86, arm and riscv (others refuse them, and are left alone).
_GET_FLAGS, _SET_FLAGS, _NO_COPY_ON_WRITE = 0x80086601, 0x40086602, 0x00800000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def create(
    path: str, head: bytes, nbytes: int, *, reserve: bool, overwrite: bool, fill: bytes | None
) -> None:
    """Make a file of a header and reserved space; durable, name included, when this returns.

    Parameters
    ----------
    path : str
        Its name; readers find nothing there, or the earlier file, until everything is done.
    head : bytes
        Its first bytes.
    nbytes : int
        Length of the whole file in bytes, `head` included.
    reserve : bool
        Take the space now. Where the file system cannot, and with False, the file is sparse, and
        a full disk is found by whoever writes.
    overwrite : bool
        Take the name from a file that has it.
    fill : bytes or None
        One element to repeat after `head`; None leaves zeros, without writing any.

    Raises
    ------
    FileExistsError
        If the name is taken and `overwrite` is False.
    OSError
        If there is not enough space, which says how much there is. Nothing is left behind.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/out.bin"
    >>> create(path, b"head", 10, reserve=True, overwrite=False, fill=b"ab")
    >>> Path(path).read_bytes()
    b'headababab'
    """
    _require_ours_to_take(path, overwrite=overwrite)
    for left in litter(Path(path).parent, f".{Path(path).name}", ".partial"):
        left.unlink(missing_ok=True)
    partial = Path(path).parent / f".{Path(path).name}.{uuid.uuid4().hex}.partial"
    try:
        for nameless in (True, False):
            with making(path):
                fd = _open_new(partial, nameless=nameless)
            try:
                _make(fd, head, nbytes, reserve=reserve, fill=fill)
                if os.fstat(fd).st_nlink or _named(fd, partial):
                    _rename(partial, path, overwrite=overwrite)
                    break
            finally:
                os.close(fd)
    except OSError as error:
        if error.errno not in NO_SPACE or error.errno is None:
            raise
        raise _no_space(path, nbytes, error.errno) from error
    finally:
        # Before anything else is said: a reservation that failed half-way may hold the whole disk.
        with suppress(OSError):  # of a name that was never there, on a disk that is read only
            partial.unlink(missing_ok=True)
    sync_folder(Path(path).parent)


def _require_ours_to_take(path: str, *, overwrite: bool) -> None:
    """Refuse a name that is taken, or whose taker would remove more than a file of numbers."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        if not os.path.islink(path):
            return
        mode = stat.S_IFLNK
    if not overwrite:
        raise _taken(path)
    if not stat.S_ISREG(mode):
        kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
        kinds[stat.S_IFLNK] = "a link that leads nowhere"
        kind = kinds.get(stat.S_IFMT(mode), "a device")
        msg = f"{path}: is {kind}, which is not overwritten; remove it first, or write elsewhere"
        raise os_error(errno.EEXIST, msg)


def _open_new(partial: Path, *, nameless: bool) -> int:
    """Open a new file; one without a name, where there are such, is gone if we are killed."""
    fd = -1
    if nameless:
        with suppress(OSError):
            fd = os.open(partial.parent, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
    if fd < 0:
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    claim(fd)
    return fd


def _named(fd: int, partial: Path) -> bool:
    """Give a file without a name one; False where that is not allowed."""
    try:
        # With a folder to start from, though it is not needed, os.link follows the link.
        os.link(f"/proc/self/fd/{fd}", partial, src_dir_fd=fd)
    except OSError as error:
        # EPERM, EACCES of hardened kernels, ENOENT without /proc, others of unusual file systems.
        if error.errno in NO_SPACE:
            raise
        return False
    return True


def _make(fd: int, head: bytes, nbytes: int, *, reserve: bool, fill: bytes | None) -> None:
    _forbid_copy_on_write(fd)
    if not (reserve and _reserve(fd, nbytes)):
        os.ftruncate(fd, nbytes)
    with open(fd, "wb", closefd=False) as file:
        file.write(head)
        if fill is not None and fill.strip(b"\0"):
            pattern = fill * max(1, 2**22 // len(fill))
            file.writelines(
                pattern[: nbytes - start] for start in range(len(head), nbytes, len(pattern))
            )
    os.fsync(fd)


def _reserve(fd: int, nbytes: int) -> bool:
    """Reserve `nbytes` bytes; False where the file system cannot."""
    # Asked first, because some file systems take all there is before they find it too little,
    # and meanwhile every other writer of the disk fails.
    if nbytes > free_nbytes(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    while _libc.fallocate(fd, 0, 0, nbytes):
        code = ctypes.get_errno()
        if code in _CANNOT:
            return False
        if code != errno.EINTR:
            raise OSError(code, os.strerror(code))
    return True


def _forbid_copy_on_write(fd: int) -> None:
    """Let btrfs overwrite in place: elsewhere than reserved, a second write may find no space."""
    with suppress(OSError):  # every other file system refuses, and has no need of it
        (flags,) = struct.unpack("l", fcntl.ioctl(fd, _GET_FLAGS, struct.pack("l", 0)))
        fcntl.ioctl(fd, _SET_FLAGS, struct.pack("l", flags | _NO_COPY_ON_WRITE))


def _rename(partial: Path, path: str, *, overwrite: bool) -> None:
    """Give the file its name; of two that want to be first, one."""
    if not overwrite:
        try:
            # A link, unlike a rename, never takes a name from a file that has it.
            os.link(partial, path)
        except FileExistsError:
            raise _taken(path) from None
        except OSError:  # no hard links here: the moment between looking and taking stays open
            if Path(path).exists():
                raise _taken(path) from None
        else:
            return
    partial.replace(path)


def _taken(path: str) -> OSError:
    msg = f"{path}: exists; pass overwrite=True to replace it, or open it with open_target"
    return os_error(errno.EEXIST, msg)


def _no_space(path: str, nbytes: int, code: int) -> OSError:
    free = free_nbytes(Path(path).parent)
    msg = (
        f"{path}: needs {nbytes:,} bytes, {free:,} bytes are free "
        f"({os.strerror(code).lower()}); free some, or write to another disk"
    )
    return os_error(code, msg)

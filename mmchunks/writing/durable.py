"""When does a name survive a power cut? When the folder that holds it was synced.

Syncing a file makes its bytes durable, not its name: a file that was created, renamed or removed
may reappear under its old name, or not at all, until its folder was synced too.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mmchunks.errors import os_error
from mmchunks.files.mounts import mount_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "NO_SPACE",
    "claim",
    "free_nbytes",
    "litter",
    "making",
    "refusal",
    "sync_folder",
    "write_new",
]

_DAY = 86_400.0

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What a system says whose disk, quota or largest file is full."""


@contextmanager
def making(path: str) -> Iterator[None]:
    """Let errors name the file that was asked for, while the block makes it under another name.

    Raises
    ------
    OSError
        Of the same kind; its sentence begins with `path`.
    """
    try:
        yield
    except OSError as error:
        folder = Path(path).parent
        if folder.is_dir():
            raise refusal(path, "cannot be made", error) from error
        msg = f"{path}: there is no folder {folder}; make it first"
        raise os_error(error.errno, msg) from error


def refusal(path: str | Path, what: str, error: OSError, *, nbytes: int | None = None) -> OSError:
    """Make a sentence of what the system says to a writer: what it means, and what helps.

    Parameters
    ----------
    path : str
        The file, for the beginning.
    what : str
        What was refused, or is lost.
    error : OSError
        What the system says.
    nbytes : int, optional
        How many bytes were to be written.

    Returns
    -------
    OSError
        Of the same kind.

    Examples
    --------
    >>> str(refusal("/tmp/x.npy", "cannot be made", OSError(30, "Read-only file system")))
    '/tmp/x.npy: cannot be made: read-only file system; write elsewhere, or mount it for writing'
    """
    msg = f"{path}: {what}: {(error.strerror or str(error)).lower()}"
    if error.errno in NO_SPACE:
        wanted = "" if nbytes is None else f"{nbytes:,} bytes are wanted, "
        msg += (
            f"; {wanted}{free_nbytes(Path(path).parent):,} are free: free some, and run again; "
            "nothing that is done is lost"
        )
    elif error.errno == errno.EROFS:
        msg += "; write elsewhere, or mount it for writing"
    return os_error(error.errno, msg)


def claim(fd: int) -> bool:
    """Hold something that has no lasting name yet for as long as the descriptor is open.

    Returns
    -------
    bool
        False if somebody else holds it, who is alive.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return True


def litter(folder: Path, name: str, suffix: str) -> Iterator[Path]:
    """Find what makers left under ``name.<32 hex digits>suffix`` when they were killed.

    Parameters
    ----------
    folder : Path
        Where they made it.
    name, suffix : str
        What stands around the digits.

    Yields
    ------
    Path
        It belongs to nobody who is alive.
    """
    pattern = f"{glob.escape(name)}.{'[0-9a-f]' * 32}{glob.escape(suffix)}"
    for path in folder.glob(pattern):
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                # Locks of another host do not show everywhere: there a day has to pass as well.
                old = mount_of(folder).local or time.time() - os.fstat(fd).st_mtime > _DAY
                if old and claim(fd):
                    yield path
            finally:
                os.close(fd)


def free_nbytes(where: int | Path) -> int:
    """Count the bytes that this user could still write to the file system of a folder or file."""
    try:
        found = os.statvfs(where)
    except OSError:  # the folder is gone, too
        return 0
    return found.f_bavail * found.f_frsize


def sync_folder(folder: str | Path) -> None:
    """Make the names in `folder` durable.

    Examples
    --------
    >>> sync_folder(".")
    """
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems know no such thing
            raise refusal(folder, "its names may be lost", error) from error
    finally:
        os.close(fd)


def write_new(path: str | Path, data: bytes) -> None:
    """Write `data` to a file that must not exist yet, and make the bytes (not the name) durable.

    Raises
    ------
    FileExistsError
        If something has that name already.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError as error:
        raise refusal(path, "was not written", error, nbytes=len(data)) from error

"""When does a name survive a power cut? When the folder that holds it was synced.

Syncing a file makes its bytes durable, not its name: a file that was created, renamed or removed
may reappear under its old name, or not at all, until its folder was synced too.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mmchunks.errors import os_error

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["making", "sync_folder", "write_new"]


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
        why = f"cannot be made: {(error.strerror or '').lower()}"
        if not folder.is_dir():
            why = f"there is no folder {folder}; make it first"
        raise os_error(error.errno, f"{path}: {why}") from error


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
            raise
    finally:
        os.close(fd)


def write_new(path: str | Path, data: bytes) -> None:
    """Write `data` to a file that must not exist yet, and make the bytes (not the name) durable.

    Raises
    ------
    FileExistsError
        If something has that name already.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)

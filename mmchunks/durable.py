"""When does a name survive a power cut? When the folder that holds it was synced.

Syncing a file makes its bytes durable, not its name: a file that was created, renamed or removed
may reappear under its old name, or not at all, until its folder was synced too.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["sync_folder", "write_new"]


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

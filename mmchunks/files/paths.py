"""Which file does a path name, and can it be mapped? Opening it, and every way that fails."""

from __future__ import annotations

import os
import re
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mmchunks.errors import os_error

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["as_name", "open_fd", "regular_file"]

_ZARR_KEYS = (".zarray", ".zgroup", "zarr.json")


def as_name(path: object) -> str:
    """Spell a path as errors name it: as the user wrote it.

    Parameters
    ----------
    path : str or os.PathLike of str
        Anything else is refused.

    Raises
    ------
    TypeError
        For bytes, numbers and open files.

    Examples
    --------
    >>> as_name(Path("data") / "run.npy")
    'data/run.npy'
    """
    name = os.fspath(path) if isinstance(path, os.PathLike) else path
    if isinstance(name, str):
        return name
    msg = (
        f"a {type(path).__name__} is no file; pass a path (str or os.PathLike), or what open_npy, "
        "open_raw or open_target gives"
    )
    raise TypeError(msg)


def open_fd(name: str) -> int:
    """Open a file for reading; the caller closes it.

    Raises
    ------
    OSError
        Of the kind that the system reports, in a sentence that begins with the path.
    """
    # A pipe that took the file's place would block until somebody writes to it; O_NONBLOCK means
    # nothing for the data of a regular file.
    with _telling(name):
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


@contextmanager
def regular_file(name: str) -> Iterator[int]:
    """Open a regular file for reading, and close it when the block ends.

    Yields
    ------
    int
        File descriptor.

    Raises
    ------
    OSError
        If there is no such file, it may not be read, or is a directory, pipe, socket or device.
    """
    # Looked at before it is opened: opening some devices does something.
    with _telling(name):
        mode = os.stat(name).st_mode
    _refuse_irregular(name, mode)
    fd = open_fd(name)
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _telling(name: str) -> Iterator[None]:
    """Turn what the system reports into a sentence that begins with the path."""
    try:
        yield
    except OSError as error:
        why = _url_remedy(name) or (error.strerror or "").lower()
        raise os_error(error.errno, f"{name}: {why}") from error


def _url_remedy(name: str) -> str | None:
    """Say what to do with a URL; asked only when there is no such file."""
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", name)
    if scheme is None:
        return None
    if scheme[1] == "file":
        return "is a URL; write the path without file://"
    return (
        "is a URL, and only files of a mounted file system can be mapped; "
        "download it first, or read it with zarr or xarray through fsspec"
    )


def _refuse_irregular(name: str, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    if stat.S_ISDIR(mode):
        if any((Path(name) / key).exists() for key in _ZARR_KEYS):
            msg = f"{name}: is a Zarr store; open it with zarr.open or dask.array.from_zarr"
        else:
            msg = f"{name}: is a directory; for the .npy files in it use from_npy_stack"
        raise IsADirectoryError(msg)
    kinds = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    msg = f"{name}: is {kind}; only regular files can be mapped"
    raise OSError(msg)

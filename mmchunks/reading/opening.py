"""How does a file become a source? Its header is read, or it is described; who fills it is asked."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from mmchunks.errors import JournalError, LayoutError
from mmchunks.files.identity import identify
from mmchunks.files.paths import regular_file
from mmchunks.files.raw import raw_layout, sample_type
from mmchunks.files.sources import MAX_HEADER_NBYTES, Fillable, Source, name_of, open_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from mmchunks.files.layout import Order
    from mmchunks.files.sources import File

__all__ = ["as_source", "open_npy", "open_raw"]


def open_npy(path: File, *, max_header_size: int = MAX_HEADER_NBYTES) -> Source:
    """Read the header of a ``.npy`` file, and nothing else.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
        A file of a mounted file system.
    max_header_size : int
        Upper bound of the header's text, in characters; parsing takes memory in proportion.

    Returns
    -------
    Source
        Holds no open file.

    Raises
    ------
    HeaderError
        If the file is no ``.npy``, holds Python objects, or is shorter than its header says.
    OSError
        If there is no such file, it is not a regular one, or may not be read.

    Warns
    -----
    UserWarning
        If `sweep` or `to_npy` is filling the file, and is not done.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> path = tempfile.mkdtemp() + "/ramp.npy"
    >>> np.save(path, np.zeros((3, 4), order="F"))
    >>> open_npy(path).order
    'F'
    """
    return _noted(open_source(path, max_header_size=max_header_size))


def open_raw(
    path: File,
    dtype: DTypeLike,
    shape: int | Sequence[int] | None = None,
    *,
    offset: int = 0,
    order: Order = "C",
) -> Source:
    """Describe a flat binary file as an array; nothing is read.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
        A file of a mounted file system.
    dtype : DTypeLike
        Type of one element, byte order included; or the SigMF name of a radio recording's samples,
        such as ``"ci16_le"``. Complex samples are read as complex64 (cf64 as complex128), neither
        scaled nor shifted; complex64 holds integers of 24 bits exactly, and rounds longer ones.
    shape : int or sequence of int, optional
        Lengths of the axes. One of them may be -1: as many as there are to the end of the file.
        None means ``-1``, one axis to the end.
    offset : int
        First byte of the data, counted from the start of the file.
    order : {"C", "F"}
        Which axis is contiguous.

    Returns
    -------
    Source
        Holds no open file.

    Raises
    ------
    LayoutError
        If the file is too short, or does not end with a whole element where its end is asked for.
    OSError
        If there is no such file, it is not a regular one, or may not be read.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> path = tempfile.mkdtemp() + "/samples.bin"
    >>> np.arange(12, dtype="<i2").tofile(path)
    >>> open_raw(path, "<i2", (-1, 5), offset=4)[0]
    array([2, 3, 4, 5, 6], dtype=int16)
    >>> open_raw(path, "ci16_le")[:2]
    array([0.+1.j, 2.+3.j], dtype=complex64)
    """
    name = name_of(path)
    with regular_file(name) as fd:
        identity = identify(fd)
        try:
            samples = sample_type(dtype)
            layout = raw_layout(
                dtype if samples is None else samples.stored,
                shape,
                offset=offset,
                order=order,
                file_nbytes=identity.nbytes,
            )
        except LayoutError as error:
            msg = f"{name}: {error}"
            raise LayoutError(msg) from error
        real = os.path.realpath(name)
        return Source(path=real, layout=layout, identity=identity, samples=samples)


def as_source(file: File, *, max_header_size: int = MAX_HEADER_NBYTES) -> Source:
    """Take whatever names a file as what is read: a path is opened as a ``.npy``.

    Parameters
    ----------
    file : str, os.PathLike, Source or Target
        A Source stays what it is; a Target is read as its file.
    max_header_size : int
        As in `open_npy`, of a path.

    Returns
    -------
    Source
        Holds no open file.

    Raises
    ------
    TypeError
        If it names no file.
    HeaderError, OSError
        As `open_npy`, of a path.

    Warns
    -----
    UserWarning
        If it is being filled, and is not done.
    """
    if isinstance(file, Source):
        return file
    if isinstance(file, Fillable):
        return _noted(file.source)
    return open_npy(file, max_header_size=max_header_size)


def _noted(source: Source) -> Source:
    """Warn of a file that is being filled, and expect it to change."""
    doubt = _unfinished(source)
    if doubt is None:
        return source
    warnings.warn(doubt, stacklevel=_callers())
    return replace(source, filling=True)


def _callers() -> int:
    """Count the frames up to the first that is not ours: the one that a warning is about."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals["__name__"].partition(".")[0] == "mmchunks":
        frame, level = frame.f_back, level + 1
    return level


def _unfinished(source: Source) -> str | None:
    """Say what is missing of a file that we are filling; None if it is whole, or not ours."""
    from mmchunks.planning.ranges import count
    from mmchunks.writing.journal import (
        Journal,
    )  # most files have none, and opening one should be quick
    from mmchunks.writing.ledger import outstanding

    journal = Journal(path=source.path)
    if not journal.folder.exists():
        return None
    try:
        ledger = journal.ledger()
        unit, total, left = outstanding(journal.settings, ledger)
    except FileNotFoundError:
        return None  # just being made, or removed
    except JournalError as error:
        return str(error)
    if not left or source.identity.inode not in {began.inode for _, began in ledger.began}:
        return None
    done = total - count(left)
    return (
        f"{source.path}: only {done:,} of {total:,} {unit} are done ({done / total:.1%}); "
        "mmchunks.status tells which, and the rest reads as what the file was made of"
    )

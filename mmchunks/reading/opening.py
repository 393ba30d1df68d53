"""How does a file become a source? Its header is read, or it is described; who fills it is asked."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from mmchunks.errors import JournalError, LayoutError
from mmchunks.files.identity import identify
from mmchunks.files.mounts import mount_of
from mmchunks.files.paths import regular_file
from mmchunks.files.raw import raw_layout, sample_type
from mmchunks.files.sources import MAX_HEADER_NBYTES, Fillable, Source, name_of, open_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from mmchunks.files.layout import Order, Subarray
    from mmchunks.files.sources import File
    from mmchunks.writing.journallines import Fragment

__all__ = ["as_source", "open_npy", "open_raw", "waiting"]

_LOOK_NBYTES = 1 << 26  # of a journal, for the sake of a warning: half a second


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
    if not isinstance(file, str | os.PathLike) and isinstance(file, Fillable):
        return _noted(file.source)
    return open_npy(file, max_header_size=max_header_size)


def _noted(source: Source) -> Source:
    """Warn of a file that is being filled, and expect it to change."""
    doubt = _unfinished(source)
    if doubt is None:
        return source
    warnings.warn(doubt, stacklevel=_callers())
    return replace(source, filling=True)


def waiting(source: Source, subarray: Subarray) -> list[tuple[int, bytes]]:
    """Find what of a region is done but not in the file: ends of rows in pages that others share.

    Ask before the file is read: what is settled in between is read, and patched with the same bytes.

    Parameters
    ----------
    source : Source
        The file.
    subarray : Subarray
        The region.

    Returns
    -------
    list of (int, bytes)
        Where in the dense stream of the region which bytes belong.
    """
    if not source.filling or mount_of(source.path).local:
        return []
    from mmchunks.writing.pages import patches

    try:
        names = tuple(
            (entry.path, entry.stat().st_size)
            for entry in os.scandir(f"{source.path}.mmchunks")
            if entry.name.endswith(".jsonl")
        )
    except OSError:
        return []
    return patches(subarray, _fragments(source.path, names))


@functools.lru_cache(maxsize=4)
def _fragments(path: str, names: tuple[tuple[str, int], ...]) -> list[Fragment]:  # noqa: ARG001
    """Read the fragments that wait, once for as long as nobody writes anything down."""
    from mmchunks.writing.journal import Journal
    from mmchunks.writing.ledger import Ledger

    try:
        ledger = Ledger.read(Journal(path=path).entries(most_nbytes=_LOOK_NBYTES))
    except (OSError, JournalError):
        return []
    return [fragment for done in ledger.unsettled for fragment in done.fragments]


def _callers() -> int:
    """Count the frames up to the first that is not ours: the one that a warning is about."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_globals["__name__"].partition(".")[0] == "mmchunks":
        frame, level = frame.f_back, level + 1
    return level


def _unfinished(source: Source) -> str | None:
    """Say what is missing of a file that we are filling; None if it is whole, or not ours.

    Whatever lies beside a file is in nobody's way who reads it: a journal that cannot be read, or that
    is too long for a look, is a doubt and no more.
    """
    # Most files have none, and opening one should be quick: nothing is imported before there is one.
    if not os.path.isdir(f"{source.path}.mmchunks"):
        return None
    from mmchunks.writing.journal import Journal
    from mmchunks.writing.ledger import Ledger, outstanding

    journal = Journal(path=source.path)
    if journal.complete:
        return None
    try:
        ledger = Ledger.read(journal.entries(most_nbytes=_LOOK_NBYTES))
        found = outstanding(journal.settings, ledger)
    except FileNotFoundError:
        return None  # just being made, or removed
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return f"{source.path}: nobody knows what of it is done, its journal cannot be read ({why})"
    except (JournalError, KeyError) as error:
        return f"{source.path}: nobody knows what of it is done: {error}"
    ours = source.identity.inode in {began.inode for _, began in ledger.began}
    if not ours or not (found.left or found.waiting):
        return None
    rest = "the rest reads as what the file was made of"
    if found.waiting:
        rest += "; where rows only wait for their ends, mmchunks reads those from the journal"
    return (
        f"{source.path}: only {found.done:,} of {found.total:,} {found.unit} are done "
        f"({found.done / found.total:.1%}); mmchunks.status tells which, and {rest}"
    )

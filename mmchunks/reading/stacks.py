"""How do many files become one dask array? In the order of the numbers in their names, joined."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING

from mmchunks.errors import LayoutError
from mmchunks.files.sources import MAX_HEADER_NBYTES, Fillable, Source, name_of
from mmchunks.reading import opening
from mmchunks.reading.lazy import from_npy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dask.array as da

    from mmchunks.files.sources import File
    from mmchunks.planning.grammar import Chunks

__all__ = ["from_npy_stack"]


def from_npy_stack(
    paths: File | Sequence[File],
    chunks: Chunks = "auto",
    *,
    axis: int = 0,
    new_axis: bool = False,
    device: str = "auto",
    io: str = "auto",
    align: str | int | None = "auto",
    field: str | None = None,
    device_memory: int | str | None = None,
    max_header_size: int = MAX_HEADER_NBYTES,
) -> da.Array:
    """Make one lazy dask array of many ``.npy`` files, joined along an axis.

    Parameters
    ----------
    paths : str, os.PathLike, Source or Target, or a sequence of them
        Files in the order in which they are joined; one string may be a folder (all of its
        ``.npy`` files) or a pattern such as ``"run_*/out.npy"``. Names found that way are sorted
        as text, numbers in them by value (``2.npy`` before ``10.npy``).
    chunks : int, tuple, dict, str, -1 or None
        Chunks of each file, as in `from_npy`; no chunk reaches across two files.
    axis : int
        Axis along which files are joined.
    new_axis : bool
        Whether `axis` is a new one, of which each file is one index (as `numpy.stack`).
    device : {"auto", "cpu", "gpu"}
        As in `from_npy`.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        As in `from_npy`.
    align : {"auto", "page"}, int, str or None
        As in `from_npy`.
    field : str, optional
        As in `from_npy`.
    device_memory : int or str, optional
        As in `from_npy`.
    max_header_size : int
        As in `from_npy`.

    Returns
    -------
    dask.array.Array
        One array. Only headers were read.

    Raises
    ------
    FileNotFoundError
        If a pattern matches nothing.
    LayoutError
        If two files differ in dtype, or in a length that the join needs to be equal.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, mmchunks as mm
    >>> folder = tempfile.mkdtemp()
    >>> for i in range(3):
    ...     np.save(os.path.join(folder, f"{i}.npy"), np.full((2, 4), i))
    >>> mm.from_npy_stack(folder).shape, mm.from_npy_stack(folder, new_axis=True).shape
    ((6, 4), (3, 2, 4))
    """
    import dask.array as da

    # No name=: all files would be known to dask by it, and one of them read for all.
    sources = [opening.as_source(f, max_header_size=max_header_size) for f in _expand(paths)]
    ndim = sources[0].ndim + new_axis
    if not -ndim <= axis < ndim:
        msg = f"axis {axis} is out of bounds for the {ndim} axes of the joined array"
        raise LayoutError(msg)
    axis %= ndim
    for other in sources[1:]:
        _check_joinable(sources[0], other, None if new_axis else axis)
    arrays = [
        from_npy(
            source,
            chunks,
            device=device,
            io=io,
            align=align,
            field=field,
            device_memory=device_memory,
        )
        for source in sources
    ]
    return da.stack(arrays, axis=axis) if new_axis else da.concatenate(arrays, axis=axis)


def _expand(paths: File | Sequence[File]) -> Sequence[File]:
    """List the files that a folder, a pattern or a sequence names."""
    if isinstance(paths, Source | Fillable):
        return [paths]
    if not isinstance(paths, str | os.PathLike):
        # What is no sequence names no file either, which name_of says.
        given = list(paths) if hasattr(paths, "__iter__") else [name_of(paths)]
        if not given:
            msg = "no files were given; pass paths, a folder or a pattern"
            raise FileNotFoundError(msg)
        return given
    text = os.fspath(paths)
    pattern = os.path.join(glob.escape(text), "*.npy") if os.path.isdir(text) else text
    found = [text] if os.path.isfile(text) else glob.glob(pattern, recursive=True)
    if not found:
        msg = f"{text}: no file matches {pattern!r}"
        raise FileNotFoundError(msg)
    return sorted(found, key=_by_number)


def _by_number(path: str) -> list[tuple[bool, int, str]]:
    """Sort key under which ``2.npy`` comes before ``10.npy``."""
    return [
        (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in re.split(r"(\d+)", path)
    ]


def _check_joinable(first: Source, other: Source, axis: int | None) -> None:
    """Refuse two files that cannot stand side by side, naming both and what differs."""
    for what, ours, theirs in (
        ("dtype", first.dtype, other.dtype),
        ("number of axes", first.ndim, other.ndim),
        ("shape", _without(first.shape, axis), _without(other.shape, axis)),
    ):
        if ours != theirs:
            msg = (
                f"{other.path}: its {what} {theirs} does not fit {ours} of {first.path}"
                + (f" (axis {axis}, the joined one, may differ)" if axis is not None else "")
                + "; leave one of them out"
            )
            raise LayoutError(msg)


def _without(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    return shape if axis is None else shape[:axis] + shape[axis + 1 :]

"""How do many files become one dask array? In the order of the numbers in their names, joined."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING, Any

from mmchunks.errors import LayoutError
from mmchunks.reading import opening
from mmchunks.reading.lazy import from_npy

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dask.array as da

    from mmchunks.files.sources import Source

__all__ = ["from_npy_stack"]


def from_npy_stack(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    chunks: Any = "auto",
    *,
    axis: int = 0,
    new_axis: bool = False,
    **options: Any,
) -> da.Array:
    """Make one lazy dask array of many ``.npy`` files, joined along an axis.

    Parameters
    ----------
    paths : str, os.PathLike, or a sequence of them
        Files in the order in which they are joined; one string may be a folder (all of its
        ``.npy`` files) or a pattern such as ``"run_*/out.npy"``. Names found that way are sorted
        as text, numbers in them by value (``2.npy`` before ``10.npy``).
    chunks : int, tuple, dict, str, -1 or None
        Chunks of each file, as in `from_npy`; no chunk reaches across two files.
    axis : int
        Axis along which files are joined.
    new_axis : bool
        Whether `axis` is a new one, of which each file is one index (as `numpy.stack`).
    **options
        As in `from_npy`: `device`, `io`, `align`, `field`, `device_memory`, `max_header_size`.

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

    if "name" in options:  # all files would be known to dask by it, and one of them read for all
        msg = "name= is for one file, and a stack has many; leave it out"
        raise TypeError(msg)
    found = _expand(paths)
    size = options.get("max_header_size", 10_000)
    sources = [opening.open_npy(path, max_header_size=size) for path in found]
    ndim = sources[0].ndim + new_axis
    if not -ndim <= axis < ndim:
        msg = f"axis {axis} is out of bounds for the {ndim} axes of the joined array"
        raise LayoutError(msg)
    axis %= ndim
    for other in sources[1:]:
        _check_joinable(sources[0], other, None if new_axis else axis)
    arrays = [from_npy(source, chunks, **options) for source in sources]
    return da.stack(arrays, axis=axis) if new_axis else da.concatenate(arrays, axis=axis)


def _expand(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
) -> list[str]:
    """List the files that a folder, a pattern or a sequence of paths names."""
    if not isinstance(paths, str | os.PathLike):
        found = [os.fspath(path) for path in paths]
        if not found:
            msg = "no files were given; pass paths, a folder or a pattern"
            raise FileNotFoundError(msg)
        return found
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

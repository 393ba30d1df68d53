"""What do ``chunks=``, ``halo=`` and ``align=`` mean? Dask's grammar, read into a grid that lists no equal chunks.

What dask says holds: the judge in the tests is ``dask.array.core.normalize_chunks``. One case is
ours: a whole ``"auto"`` or ``"64 MiB"`` makes contiguous slabs along the slowest axis, because
near-squares of a file touch every page of it many times over.
"""

from __future__ import annotations

import math
import numbers
import operator
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

import numpy as np

from mmchunks.errors import PlanError
from mmchunks.files.layout import Layout
from mmchunks.planning.cuts import Cuts, ListedCuts, even, listed, whole
from mmchunks.planning.grids import Grid

if TYPE_CHECKING:
    from typing import TypeGuard

    from mmchunks.files.layout import Block

__all__ = [
    "Align",
    "Chunks",
    "Halo",
    "HaloLike",
    "as_axis",
    "parse_align",
    "parse_chunks",
    "parse_halo",
    "parse_nbytes",
    "parse_rows",
    "slabs",
]

_Pieces: TypeAlias = "SupportsIndex | float | str | Sequence[SupportsIndex | float] | Block | None"
Chunks: TypeAlias = "_Pieces | Sequence[_Pieces] | Mapping[int, _Pieces]"
"""What is written as ``chunks=``: one entry for all axes, one for each, or ``{axis: entry}``. An entry is
a length, all lengths, ``"auto"``, a number of bytes in words, or -1 or None for a whole axis."""

Align: TypeAlias = "int | str | None"
"""What is written as ``align=``: ``"auto"``, ``"page"``, a number of bytes (in words, too), or None."""

_Reach: TypeAlias = "SupportsIndex | tuple[SupportsIndex, SupportsIndex] | list[SupportsIndex]"
HaloLike: TypeAlias = "_Reach | Mapping[int, _Reach] | None"
"""What is written as ``halo=``: a reach along axis 0, or ``{axis: reach}``; a reach is a number of
elements, or two: before and after."""

Halo: TypeAlias = tuple[tuple[int, int], ...]
"""What `parse_halo` makes of it: elements before and after, for every axis."""

_UNITS = {"": 1} | {
    prefix + infix: base**power
    for base, infix in ((1000, ""), (1024, "i"))
    for power, prefix in enumerate("kmgtp", start=1)
}


def parse_chunks(chunks: Chunks, layout: Layout, *, target_nbytes: int) -> Grid:
    """Cut `layout` as `chunks` says.

    Parameters
    ----------
    chunks : int, str, tuple, list, dict, array or None
        As in dask. ``-1`` and ``None`` leave an axis whole, alone or as entries.
    layout : Layout
        The array to cut.
    target_nbytes : int
        Bytes of a chunk where ``"auto"`` does not say how many.

    Returns
    -------
    Grid
        The layout and its cuts.

    Raises
    ------
    PlanError
        If `chunks` is not of dask's grammar or does not fit the shape.

    Examples
    --------
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(1000, 500), dtype=np.dtype("f4"))
    >>> parse_chunks({-1: 200}, layout, target_nbytes=2**27).largest
    (1000, 200)
    >>> parse_chunks("64 kB", layout, target_nbytes=2**27).largest
    (32, 500)
    """
    if isinstance(chunks, str):
        return slabs(layout, target_nbytes if chunks == "auto" else parse_nbytes(chunks))
    entries = _entries(chunks, layout.shape)
    limits = {parse_nbytes(entry) for entry in entries if entry is not None and _is_size(entry)}
    if len(limits) > 1:
        msg = f"chunks={reprlib.repr(chunks)} asks for several sizes at once; write one of them"
        raise PlanError(msg)
    limit = limits.pop() if limits else target_nbytes
    sizes = _auto_sizes(entries, layout, limit)
    cuts = [
        even(length, sizes[axis]) if axis in sizes else _cuts(entry, axis, length)
        for axis, (entry, length) in enumerate(zip(entries, layout.shape, strict=True))
    ]
    return Grid(layout=layout, cuts=tuple(cuts))


def slabs(layout: Layout, target_nbytes: int) -> Grid:
    """Cut into contiguous chunks of at most `target_nbytes`, along as slow an axis as can be.

    Examples
    --------
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(10, 100), dtype=np.dtype("u1"))
    >>> slabs(layout, 250).largest, slabs(layout, 30).largest
    ((2, 100), (1, 30))
    """
    cuts = [whole(length) for length in layout.shape]
    for axis in layout.axes if layout.nbytes else ():
        step = target_nbytes // layout.strides[axis]
        cuts[axis] = even(layout.shape[axis], max(step, 1))
        if step:
            break
    return Grid(layout=layout, cuts=tuple(cuts))


def parse_nbytes(text: str) -> int:
    """Read a number of bytes as dask does.

    Examples
    --------
    >>> parse_nbytes("64 MiB"), parse_nbytes("1.5kB"), parse_nbytes("1e3")
    (67108864, 1500, 1000)
    """
    match = re.fullmatch(r"(\d*\.?\d*(?:e[+-]?\d+)?)([kmgtp]?i?)b?", text.replace(" ", "").lower())
    if match and match[2] in _UNITS and text.strip():
        try:
            nbytes = int(float(match[1] or 1) * _UNITS[match[2]])
        except (ValueError, OverflowError):
            nbytes = 0
        if nbytes >= 1:
            return nbytes
    msg = f'{text!r} is no number of bytes; write one such as "64 MiB" or "1e8", or "auto"'
    raise PlanError(msg)


def parse_rows(chunks: Chunks, rows: int) -> tuple[int | None, int | None]:
    """Read `chunks` where rows alone are cut, whose size may not be known yet.

    Parameters
    ----------
    chunks : int, str, tuple, dict or None
        dask's grammar, of one axis; all pieces of one length.
    rows : int
        How many rows there are.

    Returns
    -------
    rows, nbytes : (int or None, int or None)
        The length of a piece, in rows or in bytes; neither for ``"auto"``.

    Raises
    ------
    PlanError
        As `parse_chunks`, and for pieces of several lengths.

    Examples
    --------
    >>> parse_rows(-1, 10), parse_rows("16 MiB", 10), parse_rows("auto", 10)
    ((10, None), (None, 16777216), (None, None))
    """
    if isinstance(chunks, str):
        return None, None if chunks == "auto" else parse_nbytes(chunks)
    (cut,) = parse_chunks(chunks, Layout(shape=(rows,), dtype=np.dtype("u1")), target_nbytes=1).cuts
    sizes = cut.sizes() if isinstance(cut, ListedCuts) else (cut.first,)
    if set(sizes[:-1]) - {sizes[0]} or sizes[-1] > sizes[0]:
        msg = f"chunks={reprlib.repr(chunks)} has pieces of several lengths; write the one length"
        raise PlanError(msg)
    return max(cut.largest, 1), None


def parse_align(align: Align, page: int) -> int | None:
    """Read on multiples of how many bytes something is to begin; None where that is all the same.

    Parameters
    ----------
    align : "auto", "page", int, str or None
        ``"auto"`` and ``"page"`` are a page; a number of bytes may be written ``"2 MiB"``.
    page : int
        Bytes of a page.

    Raises
    ------
    PlanError
        For anything else.

    Examples
    --------
    >>> parse_align("page", 4096), parse_align("2 MiB", 4096), parse_align(None, 4096)
    (4096, 2097152, None)
    """
    if align is None or (isinstance(align, str) and align in {"auto", "page"}):
        return None if align is None else page
    found = parse_nbytes(align) if isinstance(align, str) else align
    if isinstance(found, bool) or not hasattr(found, "__index__") or found < 1:
        msg = (
            f'align must be a whole number of bytes, got {align!r}; write "page", 65536 or "2 MiB"'
        )
        raise PlanError(msg)
    return operator.index(found)


def as_axis(axis: SupportsIndex, ndim: int) -> int:
    """Read the number of an axis, which may be negative; PlanError if there is none such."""
    try:
        found = operator.index(axis)
    except TypeError:
        found = ndim
    if not -ndim <= found < ndim:
        msg = f"there is no axis {axis!r} in an array of {ndim} axes; write {-ndim} to {ndim - 1}"
        raise PlanError(msg)
    return found % ndim


def _entries(chunks: object, shape: tuple[int, ...]) -> list[object]:
    """Give one entry of `chunks` per axis."""
    if isinstance(chunks, Mapping):
        named = {as_axis(axis, len(shape)): entry for axis, entry in chunks.items()}
        return [named.get(axis) for axis in range(len(shape))]
    if isinstance(chunks, np.ndarray):
        chunks = chunks.tolist()
    if chunks is None or isinstance(chunks, numbers.Real):
        return [chunks] * len(shape)
    if not isinstance(chunks, Sequence):
        msg = f'chunks={chunks!r} says nothing; write "auto", a length, or one entry per axis'
        raise PlanError(msg)
    entries = list(chunks)
    if not entries and not any(shape):
        entries = [0] * len(shape)  # dask reads () so
    plain = all(isinstance(entry, (numbers.Real, str)) for entry in entries)
    if len(shape) == 1 and len(entries) > 1 and plain:
        entries = [entries]  # the outer brackets may be left out where there is one axis
    if shape and len(entries) != len(shape):
        msg = (
            f"chunks={reprlib.repr(chunks)} has {len(entries)} entries for the {len(shape)} axes "
            f"of shape {shape}; write one for each, -1 for an axis that is not cut"
        )
        raise PlanError(msg)
    return entries[: len(shape)]  # whatever is said of no axes is ignored, as dask does


def _is_size(entry: object) -> TypeGuard[str]:
    """Whether an entry is a number of bytes in words."""
    return isinstance(entry, str) and entry != "auto"


def _whole_axis(entry: object) -> bool:
    """Whether an entry leaves its axis whole."""
    return entry is None or (isinstance(entry, numbers.Real) and entry == -1)


def _auto_sizes(entries: list[object], layout: Layout, limit_nbytes: int) -> dict[int, int]:
    """Choose the lengths of the ``"auto"`` axes: dask's arithmetic, float by float.

    All of them get the same length, as long as none is shorter than it; those are left whole, and
    the others share what that leaves. An axis of an array without bytes is not cut.
    """
    autos = {axis for axis, entry in enumerate(entries) if isinstance(entry, str)}
    if not autos:
        return {}
    shape = layout.shape
    # dask counts an entry such as 100 as 100 elements even where the axis is shorter.
    block = math.prod(
        length if _whole_axis(entry) else max(_lengths(entry, axis))
        for axis, (entry, length) in enumerate(zip(entries, shape, strict=True))
        if axis not in autos
    )
    sizes: dict[int, int] = {}
    while autos:
        if not block * layout.itemsize:
            return sizes | {axis: max(shape[axis], 1) for axis in autos}
        size = (max(1, limit_nbytes) / layout.itemsize / block) ** (1 / len(autos))
        short = {axis for axis in autos if shape[axis] < size}
        sizes |= {axis: max(1, shape[axis] if axis in short else int(size)) for axis in autos}
        block *= math.prod(shape[axis] for axis in short)
        autos = short and autos - short
    return sizes


def _cuts(entry: object, axis: int, length: int) -> Cuts:
    """Cut one axis as its entry says."""
    if _whole_axis(entry):
        return whole(length)
    sizes = _lengths(entry, axis)
    if isinstance(entry, numbers.Real):
        if sizes[0] < 1 <= length:
            msg = f"chunks of length {entry!r} never fill axis {axis} of length {length}; write 1"
            raise PlanError(msg + f" to {length}, or -1 for the whole axis")
        return even(length, max(sizes[0], 1))
    if sum(sizes) != length or min(sizes) < 0:
        msg = (
            f"chunks of axis {axis} add up to {sum(sizes)}: {reprlib.repr(entry)}, but its length "
            f"is {length}; list lengths >= 0 that add up to {length}"
        )
        raise PlanError(msg)
    return listed(sizes)


def _lengths(entry: object, axis: int) -> list[int]:
    """Read the length or the lengths that an entry spells out."""
    found: Sequence[Any] = (
        entry if isinstance(entry, Sequence) and not isinstance(entry, str) else [entry]
    )
    if isinstance(entry, np.ndarray):
        found = entry.tolist()
    if not found:
        msg = f"chunks of axis {axis} are an empty tuple; write (0,) for an axis of length 0"
        raise PlanError(msg)
    if not all(isinstance(n, numbers.Real) and n == n // 1 for n in found):
        msg = (
            f"chunks of axis {axis} must be whole numbers, got {reprlib.repr(entry)}; write a "
            'length, a tuple of lengths, -1 for the whole axis, "auto" or a size such as "64 MiB"'
        )
        raise PlanError(msg)
    return [int(n) for n in found]


def parse_halo(halo: HaloLike, ndim: int) -> Halo:
    """Read a halo.

    Parameters
    ----------
    halo : None, int or dict
        Elements at both sides of axis 0, or ``{axis: n}``, or ``{axis: (before, after)}``. Axes
        may be counted from the end.
    ndim : int
        Number of axes.

    Returns
    -------
    tuple of (int, int)
        Elements before and after, for every axis.

    Raises
    ------
    PlanError
        If there is no such axis, or a number is negative or none.

    Examples
    --------
    >>> parse_halo(2, 2), parse_halo({-1: (0, 5)}, 2)
    (((2, 2), (0, 0)), ((0, 0), (0, 5)))
    """
    found = [(0, 0)] * ndim
    entries = halo if isinstance(halo, Mapping) else {} if halo is None else {0: halo}
    for axis, entry in entries.items():
        found[as_axis(axis, ndim)] = _reach(entry, axis)
    return tuple(found)


def _reach(entry: _Reach, axis: object) -> tuple[int, int]:
    """Read how far one axis is read before and after."""
    try:
        before, after = entry if isinstance(entry, (tuple, list)) else (entry, entry)
        reach = (operator.index(before), operator.index(after))
    except (TypeError, ValueError):
        reach = (-1, -1)
    if min(reach) < 0:
        msg = (
            f"halo of axis {axis} must be one or two numbers of elements >= 0, got {entry!r}; "
            f"write {{{axis}: 3}} or {{{axis}: (0, 3)}}"
        )
        raise PlanError(msg)
    return reach

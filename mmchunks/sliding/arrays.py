"""How are sliding windows reduced lazily? Each task reads its own halo, if there is a file to read.

    from a file      one task a chunk of the result: read what its windows touch, reduce
                     no edges between tasks, no bytes between workers, windows as long as you like
    from any other   dask's overlap: chunks are made long enough for the window, their halos are
    dask array       copied from neighbours, each is reduced

Both give the same bits: a window's result depends on its elements and its place in the array,
never on where chunks were cut.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from mmchunks.errors import PlanError
from mmchunks.files.layout import Layout
from mmchunks.files.sources import Fillable, Source
from mmchunks.gpu import transfers
from mmchunks.gpu.devices import chosen_device
from mmchunks.planning import making
from mmchunks.planning.grammar import parse_chunks
from mmchunks.reading import opening, rationing
from mmchunks.reading.lazyindexing import dask_array, selection_of
from mmchunks.reading.selection import Selection, select
from mmchunks.sliding.halos import result_sizes, rows_read
from mmchunks.sliding.reductions import result_dtype
from mmchunks.sliding.windows import as_windows, reduce_windows, window_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    import dask.array as da

    from mmchunks.files.layout import Array, DType, Numbers
    from mmchunks.files.sources import File
    from mmchunks.planning.grammar import Chunks
    from mmchunks.sliding.reductions import Reduce

__all__ = ["Windows", "sliding_window"]

_GROWTH = 4  # how many times dask's chunk size a task may read, if that makes halos cheap


@dataclass(frozen=True, kw_only=True, eq=False)
class Windows:
    """The reduced windows of a selection of one file, as what dask calls an array-like."""

    selection: Selection
    """What slides."""

    lengths: dict[int, int]
    """Rows of a window, along each axis on which it slides."""

    steps: dict[int, int]
    """Rows from one window to the next, along the same axes."""

    reduce: Reduce
    """What becomes of a window."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of windows along each axis."""
        return tuple(
            window_count(rows, self.lengths[axis], self.steps[axis], axis=axis)
            if axis in self.lengths
            else rows
            for axis, rows in enumerate(self.selection.shape)
        )

    @property
    def dtype(self) -> DType:
        """Type of one result."""
        return result_dtype(self.selection.dtype, self.reduce, tuple(self.lengths.values()))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.selection.ndim

    def __dask_tokenize__(self) -> tuple[object, ...]:
        from dask.base import normalize_token

        return (
            "mmchunks.Windows",
            self.selection.__dask_tokenize__(),
            sorted(self.lengths.items()),
            sorted(self.steps.items()),
            normalize_token(self.reduce),
        )

    def __getitem__(self, index: tuple[slice, ...]) -> Array:
        """Read what the windows of one chunk touch, and reduce them."""
        if any(part.start == part.stop for part in index):
            shape = tuple(part.stop - part.start for part in index)
            return transfers.empty(self.selection.device, shape, self.dtype)
        rows = list(index)
        for axis, length in self.lengths.items():
            start, step = index[axis].start * self.steps[axis], self.steps[axis]
            count = index[axis].stop - index[axis].start
            rows[axis] = slice(start, start + rows_read(count, length, step))
        block = self.selection[tuple(rows)]
        origin = {axis: rows[axis].start for axis in self.lengths}
        return reduce_windows(block, self.lengths, self.steps, self.reduce, origin=origin)


def sliding_window(
    x: File | da.Array,
    window: int | Mapping[int, int],
    reduce: Reduce = "mean",
    *,
    step: int | Mapping[int, int] = 1,
    device: str = "auto",
    io: str = "auto",
    device_memory: int | str | None = None,
    chunks: Chunks = "auto",
) -> da.Array:
    """Reduce sliding windows of an array that does not fit in memory.

    Parameters
    ----------
    x : str, os.PathLike, Source, Target or dask.array.Array
        A ``.npy`` file, what was opened, or any dask array. Files, and arrays
        from `from_npy` and its kin (sliced too), are read with their halos by every task itself;
        other arrays go through dask's overlap.
    window : int or {axis: int}
        Rows of a window along axis 0, or along each axis named. Windows may be longer than chunks.
    reduce : str, float or callable
        ``"sum"``, ``"mean"``, ``"min"``, ``"max"``, ``"std"``, ``"var"``, ``"ptp"``, ``"any"``,
        ``"all"``, ``"median"``; a quantile from 0.0 to 1.0; or ``f(windows, axis)`` that reduces
        the last axis (-1; a tuple of axes where several slide) as NumPy's reductions do.
    step : int or {axis: int}
        Rows from one window to the next.
    device : {"auto", "cpu", "gpu"}
        Where blocks are made, if `x` is a file; a dask array has its place.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        How bytes come into memory, if `x` is a file; see `from_npy`.
    device_memory : int or str, optional
        Memory of each GPU in bytes, or as ``"8 GiB"``, if `x` is a file; see `from_npy`.
    chunks : int, tuple, dict, str, -1 or None
        Chunks of the result, written as in `from_npy`. A window belongs to the chunk in which it
        starts; all of it is made for any of it, so slice `x`, not the result. ``"auto"`` lets a
        task read about dask's ``array.chunk-size``, and up to four times that where it takes
        as much to keep the rows that two tasks read below a tenth; on a GPU no more than half of
        its free memory holds, for all threads of a worker together.

    Returns
    -------
    dask.array.Array
        ``sliding_window_view(x, ...)`` reduced and stepped through: windows that lie wholly
        within `x`, with the dtype that NumPy gives the reduction.

    Raises
    ------
    PlanError
        If a window is longer than its axis, NumPy has no such reduction for the dtype, `chunks` does
        not fit the result, or `x` is none of these.
    DeviceError
        If a GPU is asked for and cannot be had, or chunks of a file cannot fit into its memory.
    StaleFileError
        At compute time, if the file is another one by then.

    Notes
    -----
    A NaN or an infinity is in the windows that hold it, and in no other. ``"std"`` and ``"var"``
    divide by the number of elements, as NumPy's do (pandas divides by one less); beyond 1e150
    the squares of doubles overflow. A function such as ``numpy.nanmean`` may be `reduce`.

    See Also
    --------
    plan : with ``halo={axis: (0, window - 1)}`` it explains what given chunks read twice.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, mmchunks as mm
    >>> path = os.path.join(tempfile.mkdtemp(), "daily.npy")
    >>> np.save(path, np.arange(20.0).reshape(10, 2))
    >>> mm.sliding_window(path, 4, "mean", step=3).compute()
    array([[ 3.,  4.],
           [ 9., 10.],
           [15., 16.]])
    """
    selection = _selection(x, device, io, device_memory)
    whole: Selection | da.Array = x if selection is None else selection
    lengths, steps = as_windows(whole.shape, window, step)
    if selection is None:
        return _by_overlap(x, lengths, steps, reduce, chunks)
    return _from_file(
        Windows(selection=selection, lengths=lengths, steps=steps, reduce=reduce),
        chunks,
        device_memory,
    )


def _selection(
    x: object, device: str, io: str, device_memory: int | str | None
) -> Selection | None:
    """Find the file behind `x`; None for an array that only dask knows."""
    if isinstance(x, str | os.PathLike | Source | Fillable):
        source = opening.as_source(x)
        return select(source, field=None, io=io, device=chosen_device(device))
    if not hasattr(x, "dask"):
        msg = (
            f"x is a {type(x).__name__}; pass a path, a Source or a dask array "
            "(dask.array.from_array makes one of what is in memory)"
        )
        raise PlanError(msg)
    if io != "auto" or device_memory is not None:
        msg = (
            "io= and device_memory= are for files, and x is a dask array, which reads as it was made "
            "to; pass them to from_npy, or pass the file itself"
        )
        raise PlanError(msg)
    return selection_of(x)


def _from_file(windows: Windows, chunks: Chunks, device_memory: int | str | None) -> da.Array:
    from dask.base import tokenize

    budget = None
    if windows.selection.device == "gpu":
        budget = rationing.device_nbytes(device_memory)
    if isinstance(chunks, str) and chunks == "auto":
        chunks = _auto_chunks(windows.selection, windows.lengths, windows.steps, budget)
    sizes = _sizes(chunks, windows.shape, windows.dtype)
    if budget is not None:
        _check_fits(windows, sizes, budget)
    name = f"sliding-window-{tokenize(windows, sizes)}"
    return dask_array(windows, sizes, name, windows.selection.device)


def _sizes(chunks: Chunks, shape: tuple[int, ...], dtype: DType) -> tuple[tuple[int, ...], ...]:
    """List the chunks of the result, which are written as those of a file are."""
    layout = Layout(shape=shape, dtype=dtype)
    grid = parse_chunks(chunks, layout, target_nbytes=making.wanted_nbytes())
    return tuple(cut.sizes() for cut in grid.cuts)


def _auto_chunks(
    selection: Selection, lengths: dict[int, int], steps: dict[int, int], budget: int | None
) -> tuple[int, ...]:
    target = making.wanted_nbytes()
    limit = _GROWTH * target
    if budget is not None:
        limit = rationing.chosen_nbytes(selection, limit, budget=budget)
    layout = Layout(
        shape=selection.shape, dtype=selection.dtype, order=selection.source.layout.order
    )
    return result_sizes(layout, lengths, steps, target_nbytes=target, limit_nbytes=limit)


def _check_fits(windows: Windows, sizes: tuple[tuple[int, ...], ...], budget: int) -> None:
    """Refuse chunks that the device cannot hold, with their halos and results."""
    largest = [max(cuts, default=0) for cuts in sizes]
    read, owned = list(largest), list(largest)
    for axis, length in windows.lengths.items():
        step = windows.steps[axis]
        read[axis] = rows_read(largest[axis], length, step)
        owned[axis] = min(largest[axis] * step, read[axis])
    rationing.check_fits(
        windows.selection,
        chunk=math.prod(owned),
        halo=math.prod(read) - math.prod(owned),
        result=math.prod(largest) * windows.dtype.itemsize,
        count=math.prod(map(len, sizes)),
        budget=budget,
    )


def _by_overlap(
    x: da.Array, lengths: dict[int, int], steps: dict[int, int], reduce: Reduce, chunks: Chunks
) -> da.Array:
    """Let dask bring the halos, from chunks that are long enough for the window."""
    import dask.array as da

    if any(math.isnan(size) for sizes in x.chunks for size in sizes):
        x = x.compute_chunk_sizes()
    cuts = {axis: _uniform(x.chunks[axis], lengths[axis], steps[axis]) for axis in lengths}
    x = x.rechunk({axis: _repeat(cut, x.shape[axis]) for axis, cut in cuts.items()})
    counts = {
        axis: tuple(
            _starts(i * cut, size, x.shape[axis], lengths[axis], steps[axis])
            for i, size in enumerate(x.chunks[axis])
        )
        for axis, cut in cuts.items()
    }
    out = tuple(counts.get(axis, sizes) for axis, sizes in enumerate(x.chunks))
    depth = {axis: (0, length - 1) for axis, length in lengths.items()}
    haloed = da.overlap.overlap(x, depth, dict.fromkeys(depth, "none"), allow_rechunk=False)
    dtype = result_dtype(x.dtype, reduce, tuple(lengths.values()))
    y = haloed.map_blocks(
        partial(_reduce_block, cuts=cuts, lengths=lengths, steps=steps, reduce=reduce),
        dtype=dtype,
        chunks=out,
        meta=np.empty_like(x._meta, dtype=dtype),  # numpy's or cupy's, as x is
    )
    if isinstance(chunks, str) and chunks == "auto":
        return y
    return y.rechunk(_sizes(chunks, y.shape, dtype))


def _reduce_block(
    block: Numbers,
    *,
    cuts: dict[int, int],
    lengths: dict[int, int],
    steps: dict[int, int],
    reduce: Reduce,
    block_id: tuple[int, ...],
) -> Numbers:
    origin = {axis: block_id[axis] * cut for axis, cut in cuts.items()}
    return reduce_windows(block, lengths, steps, reduce, origin=origin)


def _uniform(sizes: tuple[int, ...], length: int, step: int) -> int:
    """Choose one chunk length that holds a window, and on whose multiples windows start."""
    # The first chunk may be short, or empty; the last one, too, is to hold a window.
    longest = max(sizes)
    cut = max(longest, length)
    for unit in (math.lcm(longest, step), step):  # whole chunks where that does not grow them
        size = -(-cut // unit) * unit
        if size <= 2 * cut:
            return size
    return size


def _repeat(cut: int, rows: int) -> tuple[int, ...]:
    """Cut an axis into equal chunks; what would be left over goes to the last one."""
    number = max(rows // cut, 1)
    return (cut,) * (number - 1) + (rows - cut * (number - 1),)


def _starts(begin: int, size: int, rows: int, length: int, step: int) -> int:
    """Count the windows that start in a chunk; it begins where one does."""
    stop = min(begin + size, rows - length + 1)
    return max(-(-(stop - begin) // step), 0)

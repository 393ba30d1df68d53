"""What do the sliding windows of one block reduce to? As numpy says, without its memory.

    rows       0 1 2 3 4 5 6 7 8 9
    window 0   [. . . .]                  length 4, step 3: windows start at rows 0, 3 and 6
    window 1         [. . . .]
    window 2               [. . . .]

`reduce_windows` gives what numpy's ``sliding_window_view(...)``, reduced and then stepped through,
gives; it never makes that array. Sums, means, extremes and variances are merged from runs, one
axis after the other, a tile at a time that stays in a core's own cache; other reductions are shown
some windows at a time.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from mmchunks.errors import PlanError
from mmchunks.sliding import folds
from mmchunks.sliding.halos import rows_read
from mmchunks.sliding.reductions import (
    MERGING,
    Merging,
    Reduce,
    as_function,
    refuse_objects,
    result_dtype,
)
from mmchunks.sliding.sums import compiles, run_sums, window_sums
from mmchunks.sliding.variances import run_moments, serves, window_variances

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import SupportsIndex, TypeGuard

    from mmchunks.files.layout import Block, DType, Numbers
    from mmchunks.sliding.folds import State

__all__ = ["as_windows", "reduce_windows", "window_count"]

_N = TypeVar("_N", bound="Numbers")

_TILE = 2**15  # elements of a tile
_SIGHT = 2**17  # elements of the windows that a reduction without a fold is shown at a time
_DEVICE = 2**26  # either of them on a GPU, which wants much work at a time
_STEPPING = {  # by faster ways of collecting runs
    folds.SUM: replace(folds.SUM, collect=lambda state, _count: (run_sums(state[0]),)),
    folds.VARIANCE: replace(folds.VARIANCE, collect=run_moments),
}


def as_windows(
    shape: tuple[int, ...], window: int | Mapping[int, int], step: int | Mapping[int, int]
) -> tuple[dict[int, int], dict[int, int]]:
    """Read what a user writes for `window` and `step`.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array.
    window : int or {axis: int}
        Rows of a window along each axis; a number alone is about axis 0. Negative axes count
        from the end.
    step : int or {axis: int}
        Rows from one window to the next; a number alone holds for every axis of `window`.

    Returns
    -------
    (dict, dict)
        Lengths and steps of the same axes, all of them >= 0.

    Raises
    ------
    PlanError
        For an axis that the array has not, a window longer than its axis, or a length or step
        below 1.

    Examples
    --------
    >>> as_windows((100, 8), {0: 24, -1: 2}, step={0: 24})
    ({0: 24, 1: 2}, {0: 24, 1: 1})
    """
    lengths = _by_axis(len(shape), {0: window} if _is_count(window) else window, "window")
    if not lengths:
        msg = "window names no axis; write a number of rows for axis 0, or {axis: rows}"
        raise PlanError(msg)
    given = _by_axis(len(shape), dict.fromkeys(lengths, step) if _is_count(step) else step, "step")
    if unknown := given.keys() - lengths.keys():
        msg = f"step names axis {min(unknown)}, window only {sorted(lengths)}; name it in both"
        raise PlanError(msg)
    steps = dict.fromkeys(lengths, 1) | given
    for axis, length in lengths.items():
        if length < 1 or steps[axis] < 1:
            msg = f"axis {axis}: window {length} and step {steps[axis]} must both be 1 or more"
            raise PlanError(msg)
        window_count(shape[axis], length, steps[axis], axis=axis)
    return lengths, steps


def _is_count(given: Any) -> TypeGuard[SupportsIndex]:  # Any: operator.index is the judge
    try:
        operator.index(given)
    except TypeError:
        return False
    return True


def _by_axis(ndim: int, given: object, what: str) -> dict[int, int]:
    found: dict[int, int] = {}
    if not isinstance(given, Mapping) or not all(map(_is_count, (*given, *given.values()))):
        msg = f"{what} must be a whole number or {{axis: whole number}}, got {given!r}"
        raise PlanError(msg)
    for axis, rows in given.items():
        if not -ndim <= axis < ndim:
            msg = f"{what} names axis {axis}, the array has {ndim} axes: 0 to {ndim - 1}"
            raise PlanError(msg)
        if axis % ndim in found:
            msg = f"{what} names axis {axis % ndim} twice; name it once"
            raise PlanError(msg)
        found[axis % ndim] = operator.index(rows)
    return found


def window_count(rows: int, length: int, step: int, *, axis: int) -> int:
    """Count the windows of `length` rows, one every `step`, that lie within `rows`.

    Raises
    ------
    PlanError
        If not one window fits along `axis`.

    Examples
    --------
    >>> window_count(10, 4, 3, axis=0)
    3
    """
    if rows < length:
        msg = (
            f"axis {axis} has {rows} rows, fewer than the {length} of one window; "
            f"ask for a window of {rows} rows or fewer"
        )
        raise PlanError(msg)
    return (rows - length) // step + 1


def reduce_windows(
    block: Numbers,
    windows: Mapping[int, int],
    steps: Mapping[int, int],
    reduce: Reduce,
    *,
    origin: Mapping[int, int],
) -> Numbers:
    """Reduce every window that lies within `block`.

    Parameters
    ----------
    block : numpy.ndarray or cupy.ndarray
        Elements, in any memory order. Not changed.
    windows : {axis: int}
        Rows of a window along each axis that slides.
    steps : {axis: int}
        Rows from one window to the next, along the same axes. The first window starts at row 0.
    reduce : str, float or callable
        ``"sum"``, ``"mean"``, ``"min"``, ``"max"``, ``"std"``, ``"var"``, ``"ptp"``, ``"any"``,
        ``"all"``, ``"median"``; a quantile from 0 to 1; or ``f(windows, axis)`` that reduces the
        last axis (-1), or the last axes (a tuple) where several slide.
    origin : {axis: int}
        Index of the block's first row in the array that it was cut from; 0 for axes not named.
        With it a window gives the same bits whatever the cut (see `sums`).

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        A new array of `result_dtype`, in the memory order of the block. Infinities and NaNs are
        as numpy's; none of them is warned about.

    Raises
    ------
    PlanError
        If a window is longer than its axis, or numpy has no such reduction of such elements.

    Examples
    --------
    >>> reduce_windows(np.arange(8), {0: 4}, {0: 2}, "sum", origin={})
    array([ 6, 14, 22])
    """
    windows, steps = as_windows(block.shape, windows, steps)
    refuse_objects(block.dtype)
    if callable(reduce):
        return _show(block, windows, steps, reduce)
    dtype = result_dtype(block.dtype, reduce)
    if isinstance(block, np.ndarray) and not block.flags.aligned:  # a field of packed records
        block = block.copy()
    with np.errstate(all="ignore"):
        if isinstance(reduce, str) and reduce in MERGING:
            return _merge(block, windows, steps, MERGING[reduce], dtype, origin)
        return _show(block, windows, steps, as_function(folds.namespace(block), reduce))


def _merge(
    block: Numbers,
    windows: Mapping[int, int],
    steps: Mapping[int, int],
    merging: Merging,
    dtype: DType,
    origin: Mapping[int, int],
) -> Numbers:
    """Slide along one axis after the other; the one that leaves least goes first."""
    state: State = (block,)
    # By the steps that were asked for, not as `_within` shortens them: a block of few rows would have
    # its axes in another order than the whole, and its windows other bits.
    axes = sorted(windows, key=lambda axis: (-steps[axis], axis))
    count = 1
    for axis in axes:
        slide = _Slide(
            merging=merging,
            length=windows[axis],
            step=_within(steps[axis], state[0].shape[axis]),
            count=count,
            first=axis == axes[0],
            dtype=dtype if axis == axes[-1] else None,
        )
        state = _along(state, axis, slide, origin.get(axis, 0))
        count *= windows[axis]
    return state[0]


def _within(step: int, rows: int) -> int:
    """Shorten a step beyond all rows to one that memory has, but to no other way of summing."""
    # Longer than any window, as the step was: of `rows` a window of all rows would be a whole block.
    return min(step, rows + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slide:
    """What happens to a tile (outer, rows, inner) along its middle axis."""

    merging: Merging
    length: int
    step: int

    count: int
    """Elements that an entry stands for."""

    first: bool
    """Whether entries are still plain elements."""

    dtype: DType | None
    """Type of the results, when nothing slides afterwards."""

    def __call__(self, state: State, begin: int) -> State:
        """Reduce the windows of a tile whose first row is row `begin` of the whole array."""
        last = self.dtype is not None
        if self.dtype is not None and self.takes_variances(state[0]):
            return (window_variances(state[0], self.length, begin, self._finished, self.dtype),)
        if self.first:
            state = self.merging.lift(state[0])
        averages = self.merging.averages and state[0].dtype.kind in "fc"
        if self.step == 1 and self.dtype is not None and averages:
            # a sum that is divided while it is at hand need not be fetched from memory again
            means = window_sums(state[0], self.length, begin, divisor=self.count * self.length)
            return (means.astype(self.dtype, copy=False),)
        if self.step == 1:
            state = self._every(state, self.length, self.count, begin)
        else:
            fold = self.merging.fold
            state = folds.step_over(
                state,
                self.length,
                self.step,
                _STEPPING.get(fold, fold),
                self.count,
                # Blocks count from the start of the whole array, too: so do the units of their sums.
                lambda blocks, n: self._every(
                    blocks, n, self.count * self.step, begin // self.step
                ),
            )
        return (self._finished(state),) if last else state

    def takes_variances(self, x: Numbers) -> TypeGuard[Block]:
        """Whether the variances of all windows of `x` can be had at once."""
        alone = self.first and self.dtype is not None and self.step == 1
        return alone and self.merging.fold is folds.VARIANCE and serves(x, self.length)

    def _finished(self, state: tuple[_N, ...]) -> _N:
        assert self.dtype is not None
        return self.merging.finish(state, self.count * self.length).astype(self.dtype, copy=False)

    def _every(self, state: State, length: int, count: int, begin: int) -> State:
        if self.merging.fold is folds.SUM:
            return (window_sums(state[0], length, begin),)
        return folds.slide(state, length, self.merging.fold, count)


def _along(state: State, axis: int, slide: _Slide, origin: int) -> State:
    """Slide along `axis`, seen as the middle one of three, tile by tile."""
    # As memory has them, the slowest first: a dense block is then seen, not copied, in whatever order
    # it lies, and the result lies in the same.
    order = sorted(range(state[0].ndim), key=lambda a: -abs(state[0].strides[a]))
    lengths = [state[0].shape[a] for a in order]
    at = order.index(axis)
    rows = lengths[at]
    shape = math.prod(lengths[:at]), rows, math.prod(lengths[at + 1 :])
    planes = tuple(plane.transpose(order).reshape(shape) for plane in state)
    lengths[at] = window_count(rows, slide.length, slide.step, axis=axis)
    xp = folds.namespace(planes[0])
    results: State = ()
    whole = shape[0], lengths[at], shape[2]
    for outer, starts, inner in _tiles(whole, slide, planes[0]):
        begin = starts.start * slide.step
        stop = begin + rows_read(starts.stop - starts.start, slide.length, slide.step)
        tile = slide(tuple(p[outer, begin:stop, inner] for p in planes), origin + begin)
        if tile[0].shape == whole:  # the only tile is the result
            results = tile
            break
        if not results:
            results = tuple(xp.empty(whole, part.dtype) for part in tile)
        for result, part in zip(results, tile, strict=True):
            result[outer, starts, inner] = part
    if not results:  # another axis is empty: ask an element of zeros for the types
        results = tuple(
            xp.empty(whole, part.dtype)
            for part in slide(tuple(xp.zeros((1, slide.length, 1), p.dtype) for p in planes), 0)
        )
    back = sorted(range(len(order)), key=order.__getitem__)
    return tuple(result.reshape(lengths).transpose(back) for result in results)


def _tiles(
    shape: tuple[int, int, int], slide: _Slide, plane: Numbers
) -> Iterator[tuple[slice, slice, slice]]:
    """Cut (outer, windows, inner) into tiles that hold about as many elements as is good."""
    own = slide.merging.fold is folds.SUM and compiles(plane)
    if own or (plane.size and slide.takes_variances(plane)):  # these have tiles of their own
        outer, windows, inner = shape
        return iter([(slice(0, outer), slice(0, windows), slice(0, inner))])
    budget = _TILE * min(slide.step, 8) if isinstance(plane, np.ndarray) else _DEVICE
    # A long window makes tiles narrow, and then larger than the budget: no tile reads more halo
    # than rows of its own, or an eighth where steps leave little to keep in the cache.
    reach = slide.length * (2 if slide.step == 1 else 8)
    inner = min(shape[2], max(64, budget // (2 * slide.length)))
    rows = max(budget // max(1, inner), reach) - slide.length
    windows = min(shape[1], -(-rows // slide.step) + 1)
    outer = max(1, budget // max(1, inner * (windows * slide.step + slide.length)))
    return itertools.product(
        _cuts(shape[0], outer), _cuts(shape[1], windows), _cuts(shape[2], max(1, inner))
    )


def _cuts(length: int, piece: int) -> list[slice]:
    return [slice(start, min(start + piece, length)) for start in range(0, length, piece)]


def _show(
    block: Numbers,
    windows: Mapping[int, int],
    steps: Mapping[int, int],
    function: Callable[..., object],
) -> Numbers:
    """Show `function` the windows themselves, as views, so many at a time."""
    xp = folds.namespace(block)
    axes = tuple(windows)
    view = xp.lib.stride_tricks.sliding_window_view(block, tuple(windows.values()), axis=axes)
    strides = {axis: _within(step, block.shape[axis]) for axis, step in steps.items()}
    view = view[tuple(slice(None, None, strides.get(axis, 1)) for axis in range(block.ndim))]
    budget = (_SIGHT if xp is np else _DEVICE) // math.prod(windows.values())
    shape = view.shape[: block.ndim]
    pieces = []
    for length in reversed(shape):
        pieces.append(max(1, min(length, budget)))
        budget //= max(1, length)
    result: Numbers | None = None
    for tile in itertools.product(*map(_cuts, shape, reversed(pieces))):
        shown = view[tile]
        part = function(shown, axis=-1 if len(axes) == 1 else tuple(range(-len(axes), 0)))
        part = xp.asarray(part)
        # np.percentile(windows, 90), say, has forgotten the axis: its one number would fill the tile.
        if np.shape(part) != shown.shape[: block.ndim]:
            msg = (
                f"reduce made {np.shape(part)} of windows {shown.shape}; it must reduce the "
                f"{'last axis' if len(axes) == 1 else f'last {len(axes)} axes'}, as "
                "lambda windows, axis: windows.max(axis=axis) does"
            )
            raise PlanError(msg)
        if result is None:
            result = xp.empty(shape, part.dtype)
        result[tile] = part
    if result is None:
        result = xp.empty(shape, result_dtype(block.dtype, function, tuple(windows.values())))
    return result

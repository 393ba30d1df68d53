"""How are variances of long windows made of a few short sums? About a mean that they share.

The 16 windows that start in a unit share an interior (see `sums`). Its whole units have a mean
in common, c. For each window the sums of (x - c) and of (x - c)**2 over the elements that it has
besides are had as in `sums`, by halving, and

    sum of squared distances from the window's own mean
        = sum of (x - c)**2  -  (sum of (x - c))**2 / elements

Subtracting is harmless here, since c is the mean of all elements but 31 or fewer: what the two
terms have in common is at most 31 elements' share of the first. The interior's own squares are
merged from those of its units, which are about their own means. So nothing is lost however far
from zero the elements are, nothing drifts, and a NaN stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mmchunks.sliding.folds import VARIANCE, exact_mean, exact_product, exact_sum, slide
from mmchunks.sliding.sums import UNIT, halve, pair_up, run_sums

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeGuard

    from mmchunks.files.layout import Block, DType, Numbers
    from mmchunks.sliding.folds import State

__all__ = ["run_moments", "serves", "window_variances"]

_Finish: TypeAlias = "Callable[[tuple[Block, ...]], Block]"

_SHORTEST = 2 * UNIT  # elements; windows of fewer may have no whole unit in common
_BATCH = 2**17  # elements that are worked on at a time, in the second-level cache


def serves(x: Numbers, length: int) -> TypeGuard[Block]:
    """Whether `window_variances` takes windows of `length` elements of `x`."""
    if not isinstance(x, np.ndarray) or length < _SHORTEST:
        return False
    return np.result_type(x.dtype, np.float64) == np.float64


def window_variances(x: Block, length: int, origin: int, finish: _Finish, dtype: DType) -> Block:
    """Reduce every window of `length` rows of the middle axis.

    Besides the result, memory is taken for a few batches, and for the units: some sixteenths of
    what `x` would be in double precision.

    Parameters
    ----------
    x : numpy.ndarray (outer, rows, inner)
        Elements.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.
    finish : callable
        Makes results of two planes: something that is finite where all elements of a window are,
        and the sum of their squared distances from their mean.
    dtype : numpy.dtype
        Type of the results.

    Returns
    -------
    numpy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    outer, rows, inner = x.shape
    result = np.empty((outer, rows - length + 1, inner), dtype)
    many = max(1, _BATCH // max(1, rows * inner))
    for first in range(0, outer, many):
        some = slice(first, first + many)
        _reduce(x[some], length, origin % UNIT, finish, result[some])
    return result


def _reduce(x: Block, length: int, skip: int, finish: _Finish, result: Block) -> None:
    outer, windows, inner = result.shape
    starting = -(-(skip + windows) // UNIT)  # units in which windows start
    units, rest = divmod(length - UNIT, UNIT)  # of the interior, which has one row more
    batch = max(1, _BATCH // max(1, outer * inner * UNIT))  # units
    # The states of all units first: windows share any number of these.
    states: tuple[Block, ...] = ()
    for start in range(0, starting + units - 1, batch):
        count = min(batch, starting + units - 1 - start)
        # The interior begins with the last row of a unit: there the sixteenth window starts.
        part = _of_units(_rows(x, (start + 1) * UNIT - 1 - skip, count * UNIT))
        if not states:
            states = tuple(np.empty((outer, starting + units - 1, inner)) for _ in part)
        for plane, values in zip(states, part, strict=True):
            plane[:, start : start + count] = values
    common = slide(states, units, VARIANCE, UNIT)
    for start in range(0, starting, batch):
        stop = min(start + batch, starting)
        total, error, square = (plane[:, start:stop] for plane in common)
        mean, lost = exact_mean(total, error, units * UNIT)
        # About a mean that is rounded distances add up to what rounding took, not to 0.
        first = units * UNIT * lost
        second = square + first * lost
        at, size = start * UNIT - skip, (stop - start) * UNIT

        def distances(row: int, mean: Block = mean, size: int = size) -> Block:
            near = _rows(x, row, size).reshape(outer, -1, UNIT, inner)
            near -= mean[:, :, None]
            return near

        after = distances(at + (units + 1) * UNIT - 1)
        for row in range(rest + 1):
            first += after[:, :, row]
            second += after[:, :, row] * after[:, :, row]
        sides = [near.reshape(outer, size, inner) for near in map(distances, (at - 1, at + length))]
        firsts = halve(first, *map(pair_up, sides))
        for side in sides:  # in place: windows took a dozen blocks of memory once
            np.multiply(side, side, out=side)
        seconds = halve(second, *map(pair_up, sides))
        _move_to_mean(seconds, firsts, length)
        # Every unit has 16 windows; of the first and the last one some are not there.
        low, high = max(0, -at), min(size, windows - at)
        here = slice(at + low, at + high)
        result[:, here] = finish((firsts[:, low:high], seconds[:, low:high]))


def _rows(x: Block, start: int, count: int) -> Block:
    """Copy rows to double precision, with zeros for those that are not there."""
    outer, rows, inner = x.shape
    found = np.zeros((outer, count, inner))
    low, high = max(0, start), min(rows, start + count)
    if low < high:
        found[:, low - start : high - start] = x[:, low:high]
    return found


def _of_units(x: Block) -> tuple[Block, Block, Block]:
    """Tell the state (see `folds`) of each unit of rows; these are changed."""
    outer, _, inner = x.shape
    mean = pair_up(x)[-1] / UNIT
    by_unit = x.reshape(outer, -1, UNIT, inner)
    by_unit -= mean[:, :, None]
    residue = pair_up(x)[-1]
    x *= x
    square = pair_up(x)[-1]
    _move_to_mean(square, residue, UNIT)
    # The mean is rounded, its product with 16 is not.
    return *exact_sum(mean * UNIT, residue), square


def _move_to_mean(squares: Block, firsts: Block, count: int) -> None:
    """Make squared distances from any one number those from the mean of `count` elements."""
    # Divided before it is multiplied, it is no larger than `squares`, and overflows no sooner. What
    # is infinite stays so: of two infinities the difference is a NaN. And what is constant has 0,
    # not a little less, of which there is no root.
    np.subtract(squares, firsts / count * firsts, out=squares, where=squares < np.inf)
    np.maximum(squares, 0, out=squares)


def run_moments(state: State, count: int) -> State:
    """Tell the state of runs of entries, as the `collect` of `VARIANCE` does.

    Plain elements are gone through twice, once for their mean and once about it, which takes a
    third of the time of merging them.
    """
    x = state[0]
    if count > 1 or not isinstance(x, np.ndarray) or x.dtype != np.float64:
        return VARIANCE.collect(state, count)
    outer, runs, inner, length = x.shape
    results = tuple(np.empty((outer, runs, inner)) for _ in state)
    batch = max(1, _BATCH // max(1, outer * inner * length))
    for start in range(0, runs, batch):
        some = slice(start, start + batch)
        for result, part in zip(results, _of_runs(x[:, some], len(state)), strict=True):
            result[:, some] = part
    return results


def _of_runs(x: Block, planes: int) -> State:
    length = x.shape[-1]
    mean = run_sums(x) / length
    distance = x - mean[..., None]
    residue = run_sums(distance)
    distance *= distance
    square = run_sums(distance)
    _move_to_mean(square, residue, length)
    # Runs merge by their sums: the mean times the length, and what either has lost to rounding.
    total, error = exact_product(mean, length)
    total, lost = exact_sum(total, residue)
    return (total, square) if planes == 2 else (total, lost + error, square)

"""How are variances of long windows made of a few short sums? About a mean that they share.

The 16 windows that start in a unit share an interior (see `unitsums`). Its whole units have a mean
in common, c. For each window the sums of (x - c) and of (x - c)**2 over the elements that it has
besides are had as in `unitsums`, by halving, and

    sum of squared distances from the window's own mean
        = sum of (x - c)**2  -  (sum of (x - c))**2 / elements

Subtracting is harmless here, since c is the mean of all elements but 31 or fewer: what the two
terms have in common is at most 31 elements' share of the first. The interior's own squares are
merged from those of its units, which are about their own means. So nothing is lost however far
from zero the elements are, nothing drifts, and a NaN stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.folds import VARIANCE, exact_mean, exact_product, exact_sum, slide
from mmchunks.summing import run_sums
from mmchunks.unitsums import UNIT, halve, pair_up

if TYPE_CHECKING:
    from mmchunks.folds import State

__all__ = ["run_moments", "serves", "window_moments"]

_SHORTEST = 2 * UNIT  # elements; windows of fewer may have no whole unit in common


def serves(x: Any, length: int) -> bool:
    """Whether `window_moments` takes windows of `length` elements of `x`."""
    if not isinstance(x, np.ndarray) or length < _SHORTEST:
        return False
    return np.result_type(x.dtype, np.float64) == np.float64


def window_moments(x: Any, length: int, origin: int) -> tuple[Any, Any]:
    """Sum squared distances from the mean, for every window of `length` rows of the middle axis.

    Parameters
    ----------
    x : numpy.ndarray (outer, rows, inner)
        Elements.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.

    Returns
    -------
    (numpy.ndarray, numpy.ndarray), both (outer, rows - length + 1, inner)
        Something that is finite where all elements are, and the sums. New arrays.
    """
    outer, rows, inner = x.shape
    skip, windows = origin % UNIT, rows - length + 1
    starting = -(-(skip + windows) // UNIT)  # units in which windows start
    units, rest = divmod(length - UNIT, UNIT)  # of the interior, which has one row more
    padded = np.zeros((outer, (starting + units + 3) * UNIT, inner))
    padded[:, skip + 1 : skip + 1 + rows] = x
    by_unit = padded.reshape(outer, -1, UNIT, inner)
    common = slide(_of_units(by_unit[:, 1 : starting + units]), units, VARIANCE, UNIT)
    mean, lost = exact_mean(common[0], common[1], units * UNIT)
    first = units * UNIT * lost
    second = common[2] + first * lost
    for row in range(rest + 1):
        distance = by_unit[:, units + 1 : units + 1 + starting, row] - mean
        first += distance
        second += distance * distance
    behind = padded[:, length + 1 : length + 1 + starting * UNIT].reshape(outer, -1, UNIT, inner)
    distances = [
        (near - mean[:, :, None]).reshape(outer, -1, inner)
        for near in (by_unit[:, :starting], behind)
    ]
    firsts = halve(first, *map(pair_up, distances))
    seconds = halve(second, *(pair_up(distance * distance) for distance in distances))
    _move_to_mean(seconds, firsts, length)
    return tuple(sums[:, skip : skip + windows] for sums in (firsts, seconds))


def _of_units(x: Any) -> tuple[Any, Any, Any]:
    """Tell the state (see `folds`) of each unit of (outer, units, 16, inner)."""
    outer, _, _, inner = x.shape
    mean = pair_up(x.reshape(outer, -1, inner))[-1] / UNIT
    distance = (x - mean[:, :, None]).reshape(outer, -1, inner)
    residue = pair_up(distance)[-1]
    square = pair_up(distance * distance)[-1]
    _move_to_mean(square, residue, UNIT)
    return *exact_sum(mean * UNIT, residue), square


def _move_to_mean(squares: Any, firsts: Any, count: int) -> None:
    """Make squared distances from any one number those from the mean of `count` elements."""
    np.subtract(squares, firsts / count * firsts, out=squares, where=squares < np.inf)
    np.maximum(squares, 0, out=squares)


def run_moments(state: State, count: int) -> State:
    """Tell the state of runs of entries, as the `collect` of `VARIANCE` does.

    Plain elements are gone through twice, once for their mean and once about it, which takes a
    third of the time of merging them.
    """
    x = state[0]
    if count > 1 or x.dtype != np.float64 or not isinstance(x, np.ndarray):
        return VARIANCE.collect(state, count)
    length = x.shape[-1]
    mean = run_sums(x) / length
    distance = x - mean[..., None]
    residue = run_sums(distance)
    distance *= distance
    square = run_sums(distance)
    _move_to_mean(square, residue, length)
    total, error = exact_product(mean, length)
    total, lost = exact_sum(total, residue)
    return (total, square) if len(state) == 2 else (total, lost + error, square)

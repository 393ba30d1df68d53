"""How are long sums made of a few short ones? By halving what neighbouring windows share.

The 16 windows that start in one unit of 16 elements have a long interior in common. Of the
elements before it the first window has 15 and the last one none; of those behind it the last
window has 15, the first none:

    before    x x x x x x x x x x x x x x x|
    interior                               |x x x x . . . . x x x|
    behind                                                       |x x x x x x x x x x x x x x x

The first eight windows have the interior and eight elements before it in common, the last eight
the interior and eight behind it. So halve, and add the four elements on either side of each half
that are next, then two, then one. Sums of eight, four and two neighbours are had by adding up
pairs.

The interior is whole units, whose sums slide as a window over a sixteenth of the elements, and a
rest, which is a sum of pairs, too. So a sum takes about seven additions whatever the window; none
subtracts, none drifts (a result is the sum of a few sums of pairs, as in NumPy's own pairwise
sum), and a NaN stays where it is.

Units begin at multiples of 16 of the *whole* array (`origin` says where this piece of it begins),
so a sum does not depend on where the array was cut. This is the arithmetic that `compiled` repeats
addition by addition: both give the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mmchunks.folds import SUM, slide

__all__ = ["UNIT", "halve", "pair_up", "unit_sums"]

UNIT = 16  # elements; shorter windows are summed by doubling
_NARROW = 16  # columns; strides over fewer of them are slow


def unit_sums(x: Any, length: int, origin: int) -> Any:
    """Sum every window of `length` rows, along the middle axis.

    Parameters
    ----------
    x : numpy.ndarray (outer, rows, inner)
        Elements, in the type in which they are added.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.

    Returns
    -------
    numpy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    if length < UNIT:
        return slide((x,), length, SUM, 1)[0]
    outer, rows, inner = x.shape
    if 1 < inner < _NARROW:
        columns = np.ascontiguousarray(x.transpose(0, 2, 1)).reshape(outer * inner, rows, 1)
        sums = unit_sums(columns, length, origin)
        return np.ascontiguousarray(sums.reshape(outer, inner, -1).transpose(0, 2, 1))
    skip, windows = origin % UNIT, rows - length + 1
    starting = -(-(skip + windows) // UNIT)  # units in which windows start
    units, rest = divmod(length - UNIT, UNIT)  # of the interior, which has one row more
    # With one row more in front, the pairs before and in an interior begin at even rows.
    padded = np.zeros((outer, (starting + units + 3) * UNIT, inner), x.dtype)
    padded[:, skip + 1 : skip + 1 + rows] = x
    behind = padded[:, length + 1 : length + 1 + starting * UNIT]
    runs = pair_up(padded)
    common = _add_first(runs, rest + 1, slice(units + 1, units + 1 + starting))
    sums = halve(common, runs, pair_up(behind))
    if units:  # last: these are the larger ones
        (few,) = slide((runs[-1][:, 1 : starting + units],), units, SUM, 1)
        by_unit = sums.reshape(outer, starting, UNIT, inner)
        by_unit += few[:, :, None]
    return sums[:, skip : skip + windows]


def pair_up(x: Any) -> list[Any]:
    """Sum runs of 1, 2, 4, 8 and 16 rows of (outer, rows, inner); rows are whole units."""
    runs = [x]
    for _ in range(UNIT.bit_length() - 1):
        runs.append(runs[-1][:, 0::2] + runs[-1][:, 1::2])
    return runs


def halve(common: Any, before: list[Any], behind: list[Any]) -> Any:
    """Sum the windows that start in each unit.

    Parameters
    ----------
    common : numpy.ndarray (outer, units, inner)
        The sum of what the windows of each unit share.
    before, behind : list of numpy.ndarray
        Runs, from `pair_up`, of the elements before that and of those behind it: 16 a unit, of
        which the first before, and the last behind, are not used.

    Returns
    -------
    numpy.ndarray (outer, 16 * units, inner)
        A new array.
    """
    sums = common
    for left, right in zip(before[-2::-1], behind[-2::-1], strict=True):
        outer, size, inner = sums.shape
        halves = np.empty((outer, 2 * size, inner), sums.dtype)
        np.add(sums, left[:, 1 : 2 * size : 2], out=halves[:, 0::2])
        np.add(sums, right[:, 0::2], out=halves[:, 1::2])
        sums = halves
    return sums


def _add_first(runs: list[Any], count: int, units: slice) -> Any:
    """Add up the first `count` rows of some units, from the shortest run on."""
    sums = None
    for level, sums_of_runs in enumerate(runs):
        size = 1 << level
        if count & size:
            outer, _, inner = sums_of_runs.shape
            by_unit = sums_of_runs.reshape(outer, -1, UNIT // size, inner)[:, units]
            run = by_unit[:, :, count // (2 * size) * 2]
            sums = run.copy() if sums is None else run + sums
    return sums

"""How are long sums made of a few short ones? By units, whatever the window's length.

    elements   ....|-- unit of 16 --|-- unit --|-- unit --|-- unit --|-- unit --|....
    window                   [ tail |        whole units, between        | head ]

The *tails* of a unit are its sums from its end back, the *heads* those from its start on; both are
had by going through it once. What lies between is a window of units, summed in the same way over
a sixteenth of the elements. So a sum takes about five additions whatever the window; none
subtracts, none drifts (no more than 16 follow one another, as in NumPy's own pairwise sum), and a
NaN stays where it is.

Units begin at multiples of 16 of the *whole* array (`origin` says where this piece of it begins),
so a sum does not depend on where the array was cut. This is the arithmetic that `compiled` repeats
addition by addition: both give the same bits.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.folds import SUM, slide

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["compiles", "unit_sums", "window_sums"]

UNIT = 16  # elements; 16 additions in a row are as many as NumPy makes
SHORTEST = 2 * UNIT + 1  # windows of fewer elements may have no whole unit
FEW = 512  # fewer units than this are summed by doubling: that rounds less, and costs a sixteenth
_WORTHWHILE = 2**20  # elements; what numba gains with fewer does not repay its import


def compiles(x: Any) -> bool:
    """Whether `window_sums` of `x` would run compiled: x is large, and numba installed."""
    return _serves(x) and x.size >= _WORTHWHILE and _compiled() is not None


def _serves(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float64)


@functools.cache
def _compiled() -> ModuleType | None:
    try:
        from mmchunks import compiled
    except ImportError:  # without the extra "fast" numpy does it, slower
        return None
    return compiled


def window_sums(x: Any, length: int, origin: int) -> Any:
    """Sum every window of `length` rows of `x`, in the fastest way that gives the same bits.

    Parameters
    ----------
    x : numpy.ndarray or cupy.ndarray (outer, rows, inner)
        Elements, in the type in which they are added.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.

    Returns
    -------
    numpy.ndarray or cupy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    if compiles(x) and (compiled := _compiled()):
        return compiled.window_sums(x, length, origin, shortest=SHORTEST)
    if _serves(x):
        return unit_sums(x, length, origin, shortest=SHORTEST)
    # GPUs add powers of two at the speed of their memory, and other types are rare: doubling
    return slide((x,), length, SUM, 1)[0]


def unit_sums(x: Any, length: int, origin: int, *, shortest: int) -> Any:
    """Sum every window of `length` rows, along the middle axis.

    Parameters
    ----------
    x : numpy.ndarray (outer, rows, inner)
        Elements, in the type in which they are added.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.
    shortest : int
        Windows of fewer rows are summed by doubling, which rounds least.

    Returns
    -------
    numpy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    if length < shortest:
        return slide((x,), length, SUM, 1)[0]
    outer, rows, inner = x.shape
    skip, windows = origin % UNIT, rows - length + 1
    whole = (length - 1) // UNIT  # from the unit where a window begins to one where it may end
    head = length - whole * UNIT  # from 1 to 16: elements of the last unit, if it begins at row 0
    starting = -(-(skip + windows) // UNIT)  # units in which windows begin
    units = _by_row(x, skip, starting + whole + 1)
    heads, tails = np.zeros_like(units), units.copy()
    for row in range(1, UNIT):
        np.add(heads[row - 1], units[row - 1], out=heads[row])
        np.add(units[-1 - row], tails[-row], out=tails[-1 - row])
    totals = heads[-1] + units[-1]
    few = unit_sums(totals, whole - 1, origin // UNIT, shortest=FEW)[:, 1 : starting + 1]
    split = UNIT - head  # windows that begin at this row of a unit end at the start of one
    sums = tails[:, :, :starting]
    # the small ones first: what they lose to rounding is small
    sums[:split] += heads[head:, :, whole : whole + starting]
    sums[split:] += heads[:head, :, whole + 1 :] + totals[:, whole : whole + starting]
    sums += few
    flat = sums.transpose(1, 2, 0, 3).reshape(outer, -1, inner)
    return flat[:, skip : skip + windows]


def _by_row(x: Any, skip: int, units: int) -> Any:
    """Copy (outer, rows, inner) to (16 rows of a unit, outer, units, inner), zeros around it."""
    outer, rows, inner = x.shape
    padded = np.zeros((outer, units * UNIT, inner), x.dtype)
    padded[:, skip : skip + rows] = x
    return np.ascontiguousarray(padded.reshape(outer, units, UNIT, inner).transpose(2, 0, 1, 3))

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# numba finds the types of what it compiles
"""How fast can windows be summed? As `unitsums` sums them, compiled by numba.

Importing this module imports numba, which takes a second: `unitsums` does so for the first large
block. Every addition is made in the order in which `unitsums` and `folds` make it, so the bits are
the same with and without numba; what is gained is that no array is made on the way. Neighbouring
units do not wait for each other, so a processor works on several of these chains of additions at
a time; a running sum, which always waits for its last addition, takes longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["window_sums"]

UNIT = 16
ROWS, ONE = np.uintp(UNIT), np.uintp(1)
FEW = 512
TILE = 4096  # elements that short windows are summed of at a time, within the first-level cache
BATCH = 64  # units that are summed at a time, in the first-level cache
WIDTH = 256  # columns that are summed side by side

_F = TypeVar("_F", bound="Callable[..., Any]")


def _jit(function: _F) -> _F:
    try:
        return numba.njit(function, nogil=True, error_model="numpy", cache=True)  # type: ignore[no-any-return]
    except RuntimeError:  # neither the package nor the home directory can be written to
        return numba.njit(function, nogil=True, error_model="numpy")  # type: ignore[no-any-return]


def window_sums(
    x: np.ndarray[Any, Any], length: int, origin: int, *, shortest: int
) -> np.ndarray[Any, Any]:
    """Sum every window of `length` rows, along the middle axis.

    Parameters
    ----------
    x : numpy.ndarray (outer, rows, inner)
        Elements, float32 or float64.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.
    shortest : int
        Windows of fewer rows are summed by doubling.

    Returns
    -------
    numpy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    x = np.ascontiguousarray(x)
    outer, rows, inner = x.shape
    sums = np.empty((outer, rows - length + 1, inner), x.dtype)
    if length < shortest:
        _short(x.reshape(outer, -1), inner, length, sums.reshape(outer, -1))
        return sums
    skip, whole = origin % UNIT, (length - 1) // UNIT
    # one unit more, of zeros, stands for what is not there behind the last whole unit
    totals = np.zeros((outer, (skip + rows) // UNIT + 1, inner), x.dtype)
    if inner == 1:
        at = np.arange(0, (BATCH + 1) * UNIT, UNIT).astype(np.uintp)
        row, total, sum_ = (a.reshape(outer, -1) for a in (x, totals, sums))
        _single_totals(row, skip, at, total)
        between = window_sums(totals, whole - 1, origin // UNIT, shortest=FEW).reshape(outer, -1)
        _single(row, skip, length, at, total, between, sum_)
    else:
        _several_totals(x, skip, totals)
        between = window_sums(totals, whole - 1, origin // UNIT, shortest=FEW)
        _several(x, skip, length, totals, between, sums)
    return sums


@_jit
def _short(x, inner, length, sums):
    """Sum short windows as `folds.slide` does, by doubling; the next row is `inner` elements on."""
    tile = max(TILE, 2 * length * inner)
    power, spare = (
        np.empty(tile + length * inner, x.dtype),
        np.empty(tile + length * inner, x.dtype),
    )
    done = np.empty(tile, x.dtype)
    for o in range(x.shape[0]):
        for first in range(0, sums.shape[1], tile):
            n = min(tile, sums.shape[1] - first)
            have = n + (length - 1) * inner
            runs = x[o, first : first + have]
            result = sums[o, first : first + n]
            rows, covered = 1, 0
            while True:
                if length & rows:
                    last = 2 * rows > length
                    out = result if last else done[:n]
                    if covered and last:
                        _add(done, runs[covered * inner :], out)
                    elif covered:
                        _add_to(out, runs[covered * inner :])
                    else:
                        _copy(runs, out)
                    covered += rows
                if 2 * rows > length:
                    break
                have -= rows * inner
                _add(runs, runs[rows * inner :], spare[:have])
                runs = spare
                power, spare = spare, power
                rows *= 2


@_jit
def _add(a, b, out):
    for i in range(len(out)):
        out[i] = a[i] + b[i]


@_jit
def _add_to(out, b):
    for i in range(len(out)):
        out[i] = out[i] + b[i]


@_jit
def _copy(a, out):
    for i in range(len(out)):
        out[i] = a[i]


# Units are found through an array, `at`, and unsigned, so that LLVM neither mixes units (gathering
# their rows takes three times as long as adding them up one by one) nor checks for indices < 0.
@_jit
def _single_totals(x, skip, at, totals):
    """Sum each unit that is whole, from its first row on; nobody asks for the others."""
    whole = totals.shape[1] - 1
    for o in range(x.shape[0]):
        for first in range(1 if skip else 0, whole, BATCH):
            _add_up(x[o, first * UNIT - skip :], at, totals[o, first : min(first + BATCH, whole)])


@_jit
def _add_up(x, at, totals):
    for unit in range(len(totals)):
        total = x.dtype.type(0)
        for r in range(ROWS):
            total = total + x[at[unit] + r]
        totals[unit] = total


@_jit
def _single(x, skip, length, at, totals, between, sums):
    """Sum long windows of rows of one column, some units at a time."""
    windows = sums.shape[1]
    whole = (length - 1) // UNIT
    head = length - whole * UNIT
    starting = (skip + windows + UNIT - 1) // UNIT
    space = np.empty((5, (BATCH + 1) * UNIT), x.dtype)
    tails, heads = space[0], space[1]
    for o in range(x.shape[0]):
        for first in range(0, starting, BATCH):
            units = min(BATCH, starting - first)
            base, n = first * UNIT - skip, units * UNIT
            _tails(_part(x[o], base, n, space[2]), at[:units], tails)
            _heads(_part(x[o], base + whole * UNIT, n + UNIT, space[3]), at[: units + 1], heads)
            low, high = max(0, -base), min(n, windows - base)
            inside = low == 0 and high == n
            out = sums[o, base : base + n] if inside else space[4]
            few = between[o, first + 1 : first + 1 + units]
            last = totals[o, first + whole :]
            _combine(tails, heads[head:], few, last, np.int64(at[1]), UNIT - head, out)
            if not inside:
                _copy(out[low:high], sums[o, base + low : base + high])


@_jit
def _part(x, base, n, space):
    """Show `n` rows from `base` on, with zeros for rows that are not there."""
    if base >= 0 and base + n <= len(x):
        return x[base : base + n]
    low, high = max(0, base), min(len(x), base + n)
    space[:] = 0
    _copy(x[low:high], space[low - base : high - base])
    return space


@_jit
def _heads(x, at, heads):
    """Add up the rows of each unit that come before each of its rows."""
    for unit in range(len(at)):
        base = at[unit]
        head = x.dtype.type(0)
        for r in range(ROWS):
            heads[base + r] = head
            head = head + x[base + r]


@_jit
def _tails(x, at, tails):
    """Add up each unit from its last row back."""
    for unit in range(len(at)):
        last = at[unit] + (ROWS - ONE)
        tail = x[last]
        tails[last] = tail
        for r in range(ONE, ROWS):
            tail = x[last - r] + tail
            tails[last - r] = tail


@_jit
def _combine(tails, heads, few, last, rows, split, out):
    """Add tails, heads, and the units between; from the row `split` of a unit on, one unit more."""
    zero = out.dtype.type(0)
    for unit in range(len(few)):
        least, more = few[unit], last[unit]
        # `rows` is UNIT, but LLVM is not to know: it would unroll this loop, not make it a vector
        for r in range(rows):
            i = unit * UNIT + r
            out[i] = (tails[i] + (heads[i] + (zero if r < split else more))) + least


@_jit
def _several_totals(x, skip, totals):
    """Do what `_single_totals` does with several columns side by side."""
    for o in range(x.shape[0]):
        for unit in range(1 if skip else 0, totals.shape[1] - 1):
            for row in range(unit * UNIT - skip, (unit + 1) * UNIT - skip):
                _add_to(totals[o, unit], x[o, row])


@_jit
def _several(x, skip, length, totals, between, sums):
    """Do what `_single` does with several columns side by side."""
    outer, windows, inner = sums.shape
    whole, units = (length - 1) // UNIT, totals.shape[1] - 1
    split = UNIT - (length - whole * UNIT)
    for o in range(outer):
        for first in range(0, inner, WIDTH):
            n = min(WIDTH, inner - first)
            tails, head, zero = (
                np.zeros((UNIT, n), x.dtype),
                np.zeros(n, x.dtype),
                np.zeros(n, x.dtype),
            )
            for row in range(length - (skip + length) % UNIT, length - 1):
                _add_to(head, x[o, row, first : first + n])
            for unit in range((skip + windows + UNIT - 1) // UNIT):
                base = unit * UNIT - skip
                low, high = max(0, -base), min(UNIT, windows - base)
                _copy(x[o, base + UNIT - 1, first : first + n], tails[UNIT - 1])
                for r in range(UNIT - 2, low - 1, -1):
                    _add(x[o, base + r, first : first + n], tails[r + 1], tails[r])
                few = between[o, unit + 1, first : first + n]
                last = totals[o, min(unit + whole, units), first : first + n]
                for r in range(low, high):
                    if r == split:
                        head[:] = 0
                    else:
                        _add_to(head, x[o, base + r + length - 1, first : first + n])
                    more = zero if r < split else last
                    _add_all(tails[r], head, more, few, sums[o, base + r, first : first + n])


@_jit
def _add_all(tail, head, more, few, out):
    for i in range(len(out)):
        out[i] = (tail[i] + (head[i] + more[i])) + few[i]

"""How fast can windows be summed? The arithmetic of `blocksums`, compiled by numba.

Importing this module imports numba, which takes a second: `blocksums` does so for the first large
block. Every addition is made in the order that `blocksums` and `folds` make it in, so the bits are
the same with and without numba; what is gained is that a block stays in registers and in the
first-level cache from its first addition to its last, and that no array is made on the way.

    x    |...................................|...................................|
                 block                                ^ ahead: heads, and the totals
          ^ the windows that begin here get their tails when the block is read, and the
            rest when the block in which they end is read

Loops are written for LLVM: short loops of known length are unrolled, the long loop around them
becomes vector code; arrays that a loop reads and writes never overlap; no array is sliced in one.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# numba finds the types of what it compiles
from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["window_sums"]

LANES = 16
ROWS = 16
BLOCK = LANES * ROWS
TILE = 2048  # elements of a column that short windows are summed of at a time

_F = TypeVar("_F", bound="Callable[..., Any]")


def _jit(function: _F) -> _F:
    try:
        return numba.njit(function, nogil=True, error_model="numpy", cache=True)  # type: ignore[no-any-return]
    except RuntimeError:  # neither the package nor the home directory can be written to
        return numba.njit(function, nogil=True, error_model="numpy")  # type: ignore[no-any-return]


def window_sums(x: np.ndarray[Any, Any], length: int, origin: int) -> np.ndarray[Any, Any]:
    """Sum every window of `length` rows, along the middle axis.

    Parameters
    ----------
    x : numpy.ndarray (outer, rows, inner)
        Elements, float32 or float64.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.

    Returns
    -------
    numpy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    x = np.ascontiguousarray(x)
    outer, rows, inner = x.shape
    sums = np.empty((outer, rows - length + 1, inner), x.dtype)
    # The number of columns that are summed together is the length of a tuple: numba compiles
    # one kernel for each, in which it is a constant.
    columns = (0,) if inner == 1 else (0,) * LANES
    if length < BLOCK + LANES:
        _short(x.reshape(-1), sums.reshape(-1), x.shape, length, columns)
    else:
        _long(x.reshape(-1), sums.reshape(-1), x.shape, length, origin % BLOCK, columns)
    return sums


@_jit
def _load(x, rows, inner, corner, first, stop, width, columns, out):
    """Copy rows ``first <= row < stop`` of some columns; zeros where there is no such row."""
    c = len(columns)
    low, high = max(0, first), min(rows, stop)
    if high - low < stop - first or width < c:
        out[:] = 0
    if c == 1:
        part = x[corner + low : corner + max(low, high)]
        to = out[low - first :]
        for i in range(len(part)):
            to[i] = part[i]
        return
    for row in range(low, high):
        part = x[corner + row * inner : corner + row * inner + width]
        to = out[(row - first) * c :]
        for i in range(len(part)):
            to[i] = part[i]


@_jit
def _store(sums, inner, corner, low, high, width, columns, values):
    """Write `values`, from row `low` on."""
    c = len(columns)
    if c == 1:
        part = sums[corner + low : corner + high]
        for i in range(len(part)):
            part[i] = values[i]
        return
    for row in range(low, high):
        part = sums[corner + row * inner : corner + row * inner + width]
        given = values[(row - low) * c :]
        for i in range(len(part)):
            part[i] = given[i]


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


@_jit
def _short(x, sums, shape, length, columns):
    """Sum short windows as `folds.slide` does, by doubling."""
    outer, rows, inner = shape
    c = len(columns)
    windows = rows - length + 1
    power = np.zeros((TILE + length) * c, x.dtype)
    spare = np.zeros_like(power)
    done = np.zeros(TILE * c, x.dtype)
    for o in range(outer):
        for j in range(0, inner, c):
            width = min(c, inner - j)
            for first in range(0, windows, TILE):
                stop = min(windows, first + TILE)
                n = (stop - first) * c
                have = (stop - first + length - 1) * c
                corner = o * rows * inner + j
                _load(x, rows, inner, corner, first, stop + length - 1, width, columns, power)
                run = 1
                covered = 0
                while True:
                    if length & run:
                        if covered:
                            _add_to(done[:n], power[covered * c :])
                        else:
                            _copy(power, done[:n])
                        covered += run
                    if 2 * run > length:
                        break
                    have -= run * c
                    _add(power, power[run * c :], spare[:have])
                    power, spare = spare, power
                    run *= 2
                corner = o * windows * inner + j
                _store(sums, inner, corner, first, stop, width, columns, done)


@_jit
def _double(columns, x1, x2, x4, x8, x16):
    """Sum 2, 4, 8 and 16 elements from each position of a block on."""
    c = len(columns)
    for i in range(BLOCK * c + 14 * c):
        x2[i] = x1[i] + x1[i + c]
    for i in range(BLOCK * c + 12 * c):
        x4[i] = x2[i] + x2[i + 2 * c]
    for i in range(BLOCK * c + 8 * c):
        x8[i] = x4[i] + x4[i + 4 * c]
    for i in range(BLOCK * c):
        x16[i] = x8[i] + x8[i + 8 * c]


@_jit
def _scan(columns, entries, heads, tails):
    """Add up the rows of a block: from the first on, without the own one, and from the last."""
    lanes = LANES * len(columns)
    for l in range(lanes):
        total = entries[l]
        heads[l] = 0
        for r in range(1, ROWS):
            heads[r * lanes + l] = total
            total = total + entries[r * lanes + l]
        heads[ROWS * lanes + l] = total
    for l in range(lanes):
        total = entries[(ROWS - 1) * lanes + l]
        tails[(ROWS - 1) * lanes + l] = total
        for r in range(1, ROWS):
            total = total + entries[(ROWS - 1 - r) * lanes + l]
            tails[(ROWS - 1 - r) * lanes + l] = total


@_jit
def _add_rest(columns, rest, x1, x2, x4, x8, heads, spare):
    """Add the `rest` < 16 elements from each position on to `heads`."""
    c = len(columns)
    n = BLOCK * c
    if rest & (rest - 1) == 0:
        part = x1 if rest == 1 else x2 if rest == 2 else x4 if rest == 4 else x8
        _add_to(heads[:n], part)
        return
    covered = 0
    for k in range(4):
        if rest >> k & 1:
            part = x1 if k == 0 else x2 if k == 1 else x4 if k == 2 else x8
            if covered:
                _add_to(spare[:n], part[covered * c :])
            else:
                _copy(part, spare[:n])
            covered += 1 << k
    _add_to(heads[:n], spare)


@_jit
def _between(totals, block, least, levels, lanes, few, many):
    """Sum the `least` blocks before `block`, and one more."""
    mask = totals.shape[1] - 1
    at = block - least
    if least == 0:
        for l in range(lanes):
            few[l] = 0
    first = True
    for k in range(levels):
        if least >> k & 1:
            at += 1 << k
            row = (at - 1) & mask
            if first:
                for l in range(lanes):
                    few[l] = totals[k, row, l]
            else:
                for l in range(lanes):
                    few[l] = few[l] + totals[k, row, l]
            first = False
    row = (block - least - 1) & mask
    for l in range(lanes):
        many[l] = totals[0, row, l] + few[l]


@_jit
def _keep(totals, block, levels, lanes, heads):
    """Remember the sums of the 1, 2, 4, ... blocks that end with `block`, in a ring."""
    mask = totals.shape[1] - 1
    row = block & mask
    last = len(heads) - lanes
    for l in range(lanes):
        totals[0, row, l] = heads[last + l]
    for k in range(1, levels):
        before = (block - (1 << (k - 1))) & mask
        for l in range(lanes):
            totals[k, row, l] = totals[k - 1, before, l] + totals[k - 1, row, l]


@_jit
def _spread(columns, few, many, between):
    """Repeat `many` for a block's rows, then `few` for as many."""
    lanes = LANES * len(columns)
    for l in range(lanes):
        a, b = many[l], few[l]
        for r in range(ROWS):
            between[r * lanes + l] = a
            between[(ROWS + r) * lanes + l] = b


@_jit
def _finish(sums, inner, corner, low, high, width, columns, between, heads):
    """Add to the tails that `sums` holds, from row `low` on."""
    c = len(columns)
    if c == 1:
        part = sums[corner + low : corner + high]
        for i in range(len(part)):
            part[i] = (part[i] + heads[i]) + between[i]
        return
    for row in range(low, high):
        part = sums[corner + row * inner : corner + row * inner + width]
        middle = between[(row - low) * c :]
        head = heads[(row - low) * c :]
        for i in range(len(part)):
            part[i] = (part[i] + head[i]) + middle[i]


@_jit
def _long(x, sums, shape, length, skip, columns):
    """Sum long windows as `blocksums` does."""
    outer, rows, inner = shape
    c = len(columns)
    windows = rows - length + 1
    whole, rest = length // LANES, length % LANES
    least, later = whole // ROWS - 1, whole % ROWS
    levels = 1
    while (1 << levels) <= least:
        levels += 1
    x1 = np.zeros((BLOCK + LANES) * c, x.dtype)
    x2, x4, x8, x16 = np.zeros_like(x1), np.zeros_like(x1), np.zeros_like(x1), np.zeros_like(x1)
    tails, heads, spare = np.zeros_like(x1), np.zeros_like(x1), np.zeros_like(x1)
    between = np.zeros(2 * BLOCK * c, x.dtype)
    few, many = np.zeros(LANES * c, x.dtype), np.zeros(LANES * c, x.dtype)
    lanes = len(few)
    totals = np.zeros((levels, 2 << levels, lanes), x.dtype)
    for o in range(outer):
        for j in range(0, inner, c):
            width = min(c, inner - j)
            of_x, of_sums = o * rows * inner + j, o * windows * inner + j
            for block in range((skip + rows) // BLOCK + 1):
                base = block * BLOCK - skip
                _load(x, rows, inner, of_x, base, base + BLOCK + LANES - 1, width, columns, x1)
                _double(columns, x1, x2, x4, x8, x16)
                _scan(columns, x16, heads, tails)
                low, high = max(0, base), min(windows, base + BLOCK)
                if low < high:
                    _store(
                        sums, inner, of_sums, low, high, width, columns, tails[(low - base) * c :]
                    )
                start = base - whole * LANES
                low, high = max(0, start), min(windows, start + BLOCK)
                if low < high:
                    if rest:
                        _add_rest(columns, rest, x1, x2, x4, x8, heads, spare)
                    _between(totals, block, least, levels, lanes, few, many)
                    _spread(columns, few, many, between)
                    skipped = (BLOCK - later * LANES + low - start) * c
                    _finish(
                        sums,
                        inner,
                        of_sums,
                        low,
                        high,
                        width,
                        columns,
                        between[skipped:],
                        heads[(low - start) * c :],
                    )
                _keep(totals, block, levels, lanes, heads)

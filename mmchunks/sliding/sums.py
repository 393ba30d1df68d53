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

import functools
import sys
import warnings
from typing import TYPE_CHECKING, overload

import numpy as np

from mmchunks.sliding.folds import SUM, slide

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import TypeGuard

    from mmchunks.files.layout import Block, DType, Numbers

__all__ = ["UNIT", "compiles", "halve", "pair_up", "run_sums", "unit_sums", "window_sums"]

UNIT = 16  # elements; shorter windows are summed by doubling
_NARROW = 16  # columns; strides over fewer of them are slow


def unit_sums(x: Block, length: int, origin: int) -> Block:
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
    # Neither copy changes a bit: each column is summed by itself.
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
    # What is behind begins where the length has it, at odd rows too: its pairs are others.
    common = _add_first(runs, rest + 1, slice(units + 1, units + 1 + starting))
    sums = halve(common, runs, pair_up(behind))
    if units:  # last: these are the larger ones, and what the small ones lose to rounding is small
        (few,) = slide((runs[-1][:, 1 : starting + units],), units, SUM, 1)
        by_unit = sums.reshape(outer, starting, UNIT, inner)
        by_unit += few[:, :, None]
    return sums[:, skip : skip + windows]


def pair_up(x: Block) -> list[Block]:
    """Sum runs of 1, 2, 4, 8 and 16 rows of (outer, rows, inner); rows are whole units."""
    runs = [x]
    for _ in range(UNIT.bit_length() - 1):
        runs.append(runs[-1][:, 0::2] + runs[-1][:, 1::2])
    return runs


def halve(common: Block, before: list[Block], behind: list[Block]) -> Block:
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
    # Of two runs a half shares the one that touches what it has in common already: the later one of
    # those before it, the earlier one of those behind.
    for left, right in zip(before[-2::-1], behind[-2::-1], strict=True):
        outer, size, inner = sums.shape
        halves = np.empty((outer, 2 * size, inner), sums.dtype)
        np.add(sums, left[:, 1 : 2 * size : 2], out=halves[:, 0::2])
        np.add(sums, right[:, 0::2], out=halves[:, 1::2])
        sums = halves
    return sums


def _add_first(runs: list[Block], count: int, units: slice) -> Block:
    """Add up the first `count` rows of some units, from the shortest run on."""
    # `compiled` adds up pairs of all 16, with -0.0 for those beyond `count`: there, too, what the last
    # pair of each level is cut to meets the runs before it from the shortest one on.
    sums: Block | None = None
    for level, sums_of_runs in enumerate(runs):
        size = 1 << level
        if count & size:
            outer, _, inner = sums_of_runs.shape
            by_unit = sums_of_runs.reshape(outer, -1, UNIT // size, inner)[:, units]
            run = by_unit[:, :, count // (2 * size) * 2]
            sums = run.copy() if sums is None else run + sums
    assert sums is not None  # of no rows there is no sum
    return sums


_WORTHWHILE = 2**20  # elements; what numba gains with fewer does not repay its import
_ONCE_IMPORTED = 2**16  # elements, when a larger block has paid for that


def compiles(x: Numbers) -> TypeGuard[Block]:
    """Whether sums of `x` run compiled: x is large enough, and numba installed and trusted."""
    worthwhile = _ONCE_IMPORTED if sys.modules.get("mmchunks.sliding.compiled") else _WORTHWHILE
    return _serves(x) and x.size >= worthwhile and _adds_units(x.dtype)


def _serves(x: Numbers) -> TypeGuard[Block]:
    return isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float64)


@functools.cache
def _compiled() -> ModuleType | None:
    """Import what numba compiles; None where there is no numba."""
    try:
        from mmchunks.sliding import compiled
    except ImportError:  # the extra "fast" is not installed
        return None
    return compiled


@functools.cache
def _adds_units(dtype: DType) -> bool:
    """Whether what is compiled adds units as `unit_sums` does."""
    compiled = _compiled()
    if compiled is None:
        return False
    x = np.random.default_rng(0).standard_normal((1, 1700)).astype(dtype)
    x[0, :40] = -0.0  # whose sums are -0.0, too: compared are bytes, because -0.0 == 0.0
    # By doubling; by units, of which some are in vectors; columns in vectors, and one beside them.
    for inner, length in ((1, 10), (1, 600), (17, 50)):
        rows = x.reshape(1, -1, inner)
        found = _attempt(compiled.window_sums, rows, length, 3)
        if found is None:
            return False
        if found.tobytes() != unit_sums(rows, length, 3).tobytes():
            _warn("it adds in another order than mmchunks wants")
            return False
    return True


def _attempt(function: Callable[..., Block], *arguments: object) -> Block | None:
    """Call what numba compiles for the first call with such arrays; None where it cannot."""
    try:
        return function(*arguments)
    except MemoryError:  # numba is not to blame, and numpy takes more
        raise
    except Exception as error:  # noqa: BLE001  whatever a numba, or a folder for its cache, may raise
        _warn(f"{type(error).__name__}: {error}")
        return None


def _warn(reason: str) -> None:
    msg = f"sums of sliding windows do without numba, and are slower: {reason}"
    warnings.warn(msg, RuntimeWarning, stacklevel=3)


def window_sums(x: Numbers, length: int, origin: int, divisor: int = 1) -> Numbers:
    """Sum every window of `length` rows of `x`, in the fastest way that gives the same bits.

    Parameters
    ----------
    x : numpy.ndarray or cupy.ndarray (outer, rows, inner)
        Elements, in the type in which they are added.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.
    divisor : int
        What each sum is divided by; 1 if they are not floating-point or complex numbers.

    Returns
    -------
    numpy.ndarray or cupy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    if compiles(x):
        compiled = _compiled()
        assert compiled is not None
        found = _attempt(compiled.window_sums, x, length, origin, divisor)
        if found is not None:
            return found
    sums = _uncompiled(x, length, origin)
    if divisor != 1:
        sums /= divisor
    return sums


def _uncompiled(x: Numbers, length: int, origin: int) -> Numbers:
    # GPUs add powers of two at the speed of their memory, and other types are rare: doubling
    return unit_sums(x, length, origin) if _serves(x) else slide((x,), length, SUM, 1)[0]


# What is NumPy's stays so: `variances` goes on with it.
@overload
def run_sums(runs: Block) -> Block: ...
@overload
def run_sums(runs: Numbers) -> Numbers: ...
def run_sums(runs: Numbers) -> Numbers:
    """Sum runs of elements, in the fastest way that gives the bits of numpy's pairwise sum.

    Parameters
    ----------
    runs : numpy.ndarray or cupy.ndarray (outer, runs, inner, length)
        Elements, in the type in which they are added.

    Returns
    -------
    numpy.ndarray or cupy.ndarray (outer, runs, inner)
        A new array.
    """
    # Compiled where columns are neighbours in memory: NumPy sums a transposed copy of those, and runs
    # that lie in one piece as they are. Left to it are also runs that go backwards, and rows that are
    # no whole number of elements apart, as in a field of packed records.
    across = runs.shape[2] > 1 and runs.strides[2] == runs.itemsize
    whole = all(stride >= 0 and stride % runs.itemsize == 0 for stride in runs.strides)
    sums: Numbers | None = None
    if across and whole and compiles(runs) and _adds_runs(runs.dtype):
        sums = _attempt(_by_halves, runs)
    if sums is None:
        (sums,) = SUM.collect((runs,), 1)
    if sums.dtype.kind in "fc":
        sums += 0  # whether -0.0 and -0.0 make -0.0 depends on who adds them
    return sums


@functools.cache
def _adds_runs(dtype: DType) -> bool:
    """Whether the order in which this NumPy adds up contiguous memory is the one compiled here."""
    x = np.random.default_rng(0).standard_normal((1000, 16)).astype(dtype)
    # NumPy adds fewer than 8 one by one, up to 128 in eight sums, and halves what is longer.
    for length in (7, 16, 100, 128, 301, 1000):
        runs = x[:length].T[None, None]
        found = _attempt(_by_halves, runs)
        if found is None or not np.array_equal(found, np.ascontiguousarray(runs).sum(axis=-1)):
            return False
    return True


def _by_halves(runs: Block) -> Block:
    length = runs.shape[-1]
    if length <= 128:
        compiled = _compiled()
        assert compiled is not None
        sums: Block = compiled.run_sums(runs)
        return sums
    half = length // 2 - length // 2 % 8  # as NumPy halves, so that its eight sums come out even
    return _by_halves(runs[..., :half]) + _by_halves(runs[..., half:])

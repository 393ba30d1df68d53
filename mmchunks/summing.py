"""Who adds up here: what numba has compiled, or numpy? The fastest that gives the same bits.

Numba is imported for the first large block, and then has to show that it adds as numpy does. A
newer numba, LLVM or numpy may not; then numpy does it, more slowly, and a warning says why.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.folds import SUM, slide
from mmchunks.unitsums import unit_sums

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["compiles", "run_sums", "window_sums"]

_WORTHWHILE = 2**20  # elements; what numba gains with fewer does not repay its import
_ONCE_IMPORTED = 2**16  # elements


def compiles(x: Any) -> bool:
    """Whether sums of `x` run compiled: x is large enough, and numba installed and trusted."""
    worthwhile = _ONCE_IMPORTED if sys.modules.get("mmchunks.compiled") else _WORTHWHILE
    return _serves(x) and x.size >= worthwhile and _adds_units(x.dtype)


def _serves(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float64)


@functools.cache
def _compiled() -> Any:
    """Import what numba compiles; None where there is no numba."""
    try:
        from mmchunks import compiled
    except ImportError:  # the extra "fast" is not installed
        return None
    return compiled


@functools.cache
def _adds_units(dtype: np.dtype[Any]) -> bool:
    """Whether what is compiled adds units as `unitsums` does."""
    compiled = _compiled()
    if compiled is None:
        return False
    x = np.random.default_rng(0).standard_normal((1, 1700)).astype(dtype)
    x[0, :40] = -0.0
    for inner, length in ((1, 10), (1, 600), (17, 50)):
        rows = x.reshape(1, -1, inner)
        found = _attempt(compiled.window_sums, rows, length, 3)
        if found is None:
            return False
        if found.tobytes() != unit_sums(rows, length, 3).tobytes():
            _warn("it adds in another order than mmchunks wants")
            return False
    return True


def _attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call what numba compiles for the first call with such arrays; None where it cannot."""
    try:
        return function(*arguments)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  whatever a numba, or a folder for its cache, may raise
        _warn(f"{type(error).__name__}: {error}")
        return None


def _warn(reason: str) -> None:
    msg = f"sums of sliding windows do without numba, and are slower: {reason}"
    warnings.warn(msg, RuntimeWarning, stacklevel=3)


def window_sums(x: Any, length: int, origin: int, divisor: int = 1) -> Any:
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
        sums = _attempt(_compiled().window_sums, x, length, origin, divisor)
        if sums is not None:
            return sums
    # GPUs add powers of two at the speed of their memory, and other types are rare: doubling
    sums = unit_sums(x, length, origin) if _serves(x) else slide((x,), length, SUM, 1)[0]
    if divisor != 1:
        sums /= divisor
    return sums


def run_sums(runs: Any) -> Any:
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
    across = runs.shape[2] > 1 and runs.strides[2] == runs.itemsize
    whole = all(stride >= 0 and stride % runs.itemsize == 0 for stride in runs.strides)
    sums = None
    if across and whole and compiles(runs) and _adds_runs(runs.dtype):
        sums = _attempt(_by_halves, runs)
    if sums is None:
        (sums,) = SUM.collect((runs,), 1)
    if sums.dtype.kind in "fc":
        sums += 0  # whether -0.0 and -0.0 make -0.0 depends on who adds them
    return sums


@functools.cache
def _adds_runs(dtype: np.dtype[Any]) -> bool:
    """Whether the order in which this NumPy adds up contiguous memory is the one compiled here."""
    x = np.random.default_rng(0).standard_normal((1000, 16)).astype(dtype)
    for length in (7, 16, 100, 128, 301, 1000):
        runs = x[:length].T[None, None]
        found = _attempt(_by_halves, runs)
        if found is None or not np.array_equal(found, np.ascontiguousarray(runs).sum(axis=-1)):
            return False
    return True


def _by_halves(runs: Any) -> Any:
    length = runs.shape[-1]
    if length <= 128:
        return _compiled().run_sums(runs)
    half = length // 2 - length // 2 % 8
    return _by_halves(runs[..., :half]) + _by_halves(runs[..., half:])

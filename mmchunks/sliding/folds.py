"""How do runs merge into windows? By doubling: in log(window) steps, and without drift.

    elements   x0  x1  x2  x3  x4  x5  x6 ...
    runs of 2  [x0 x1]
                   [x1 x2]
    runs of 4  [x0 x1  x2 x3]                  = run of 2 at 0, then run of 2 at 2
    window 6   [x0 x1][x2  x3  x4  x5]         = run of 2 at 0, then run of 4 at 2

A window is made of its own elements only, always grouped the same way, so its value does not
depend on where the block was cut, and a NaN stays in the windows that hold it. A *state* is a
tuple of arrays (outer, rows, inner) that describes runs along the middle axis; a `Fold` says how
two neighbouring runs become one. numpy and cupy arrays alike.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np

from mmchunks.sliding.halos import rows_read

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from mmchunks.files.layout import Array, Numbers

__all__ = [
    "ALL",
    "ANY",
    "MAXIMUM",
    "MINIMUM",
    "RANGE",
    "SUM",
    "VARIANCE",
    "Fold",
    "State",
    "exact_mean",
    "exact_product",
    "exact_sum",
    "namespace",
    "slide",
    "step_over",
]

State: TypeAlias = "tuple[Numbers, ...]"
"""The planes of a state."""

_N = TypeVar("_N", bound="Numbers")
_Planes: TypeAlias = tuple[_N, ...]  # a state whose planes stay NumPy's, or CuPy's, as they are


class _Merge(Protocol):
    def __call__(
        self, left: _Planes[_N], n: int, right: _Planes[_N], m: int, out: _Planes[_N] | None, /
    ) -> _Planes[_N]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """How the states of neighbouring runs become the state of both."""

    merge: _Merge
    """``merge(left, n, right, m, out)``: runs of `n` elements, each followed by a run of `m`.
    `out` is memory that the result may be written to."""

    collect: Callable[[State, int], State]
    """``collect(state, count)``: reduce the last axis (outer, runs, inner, length) of every plane;
    `count` elements are in each entry already."""

    overlapping: bool = False
    """Whether counting an element twice changes nothing, as for a minimum."""


def namespace(array: Array) -> ModuleType:
    """Return the module whose functions take `array`: numpy, or cupy if it comes from there."""
    # Whoever made the array has imported its module: CuPy is not imported to ask.
    return sys.modules[type(array).__module__.partition(".")[0]]


def slide(state: _Planes[_N], length: int, fold: Fold, count: int) -> _Planes[_N]:
    """Merge every `length` neighbouring entries, one window per start.

    Parameters
    ----------
    state : tuple of arrays (outer, rows, inner)
        Entries, each the state of a run of `count` elements.
    length : int
        Entries in a window, from 1 to rows.
    fold : Fold
        How runs merge.
    count : int
        Elements in an entry.

    Returns
    -------
    tuple of arrays (outer, rows - length + 1, inner)
        New arrays.
    """
    if length == 1:  # a copy, because means are divided in place, and a block is not to change
        return tuple(plane.copy() for plane in state)
    windows = state[0].shape[1] - length + 1
    done: _Planes[_N] | None = None
    done_rows = 0
    spare: _Planes[_N] | None = None  # memory of a power that nobody needs any more
    power, rows = state, 1
    while True:
        if length & rows and not fold.overlapping:
            part = _rows(power, done_rows, windows)
            if done is None:
                done = part
            else:
                done = fold.merge(done, done_rows * count, part, rows * count, None)
            done_rows += rows
        if 2 * rows > length:
            break
        rest = power[0].shape[1] - rows
        left, right = _rows(power, 0, rest), _rows(power, rows, rest)
        out = None if spare is None else _rows(spare, 0, rest)
        # Neither the caller's memory, nor what `done` is still a view of: the first power it took.
        spare = None if power is state or done_rows == rows else power
        power = fold.merge(left, rows * count, right, rows * count, out)
        rows *= 2
    if done is not None:
        return done
    # What may be counted twice needs no other power: the largest one from either end, however they
    # overlap. Nor does it ask how many elements these are.
    first, last = _rows(power, 0, windows), _rows(power, length - rows, windows)
    return first if rows == length else fold.merge(first, rows, last, rows, None)


def step_over(
    state: State,
    length: int,
    step: int,
    fold: Fold,
    count: int,
    over: Callable[[State, int], State],
) -> State:
    """Merge `length` entries at every `step`-th start, reading each entry about once.

    A window is `length // step` whole blocks of `step` entries, which begin where windows begin,
    and what is left over. Each block is collected once, and the windows slide over blocks.

    Parameters
    ----------
    state : tuple of arrays (outer, rows, inner)
        Entries, each the state of a run of `count` elements.
    length, step : int
        Entries in a window, and from one start to the next.
    fold : Fold
        How runs merge.
    count : int
        Elements in an entry.
    over : callable
        ``over(blocks, n)``: windows of `n` blocks, one per start.

    Returns
    -------
    tuple of arrays (outer, windows, inner)
        A new state.
    """
    windows = (state[0].shape[1] - length) // step + 1
    whole, rest = divmod(length, step)
    blocks = tail = None
    if whole:
        blocks = over(fold.collect(_runs(state, 0, step, step, windows + whole - 1), count), whole)
    if rest:
        tail = fold.collect(_runs(state, whole * step, rest, step, windows), count)
    if blocks is None or tail is None:
        return blocks or tail or ()
    return fold.merge(blocks, whole * step * count, tail, rest * count, None)


def _runs(state: State, start: int, length: int, step: int, number: int) -> State:
    """Show `number` runs of `length` rows, one every `step` rows from `start`, on a new last axis."""

    def view(plane: Numbers) -> Numbers:
        # as_strided knows no bounds: one run too many would be read from someone else's memory.
        assert start + rows_read(number, length, step) <= plane.shape[1]
        outer, rows, inner = plane.strides
        runs: Numbers = namespace(plane).lib.stride_tricks.as_strided(
            plane[:, start:],
            (plane.shape[0], number, plane.shape[2], length),
            (outer, rows * step, inner, rows),
        )
        return runs

    return tuple(view(plane) for plane in state)


def _rows(state: _Planes[_N], start: int, number: int) -> _Planes[_N]:
    return tuple(plane[:, start : start + number] for plane in state)


def _elementwise(*names: str) -> Fold:
    """Fold each plane with a ufunc that minds neither order nor repetition."""

    def merge(
        left: _Planes[_N], _n: int, right: _Planes[_N], _m: int, out: _Planes[_N] | None
    ) -> _Planes[_N]:
        return tuple(
            getattr(namespace(a), name)(a, b, out=c)
            for name, a, b, c in zip(names, left, right, out or (None,) * len(names), strict=True)
        )

    def collect(state: State, _count: int) -> State:
        return tuple(
            getattr(plane, _METHODS[name])(axis=-1)
            for name, plane in zip(names, state, strict=True)
        )

    return Fold(merge=merge, collect=collect, overlapping=True)


_METHODS = {"minimum": "min", "maximum": "max", "logical_or": "any", "logical_and": "all"}

MINIMUM = _elementwise("minimum")
MAXIMUM = _elementwise("maximum")
RANGE = _elementwise("minimum", "maximum")
ANY = _elementwise("logical_or")
ALL = _elementwise("logical_and")


def _add(
    left: _Planes[_N], _n: int, right: _Planes[_N], _m: int, out: _Planes[_N] | None
) -> _Planes[_N]:
    return (namespace(left[0]).add(left[0], right[0], out=out and out[0]),)


def _add_up(state: State, _count: int) -> State:
    # NumPy adds pairwise only along contiguous memory, and one after the other otherwise: a
    # value must not depend on how its block lies in memory, so the runs are made contiguous.
    # Integers are not copied: they add up to the same in any order.
    plane = state[0]
    if plane.strides[-1] != plane.itemsize and plane.dtype.kind in "fc":
        plane = namespace(plane).ascontiguousarray(plane)
    return (plane.sum(axis=-1),)


SUM = Fold(merge=_add, collect=_add_up)


def _merge_variance(
    left: _Planes[_N], n: int, right: _Planes[_N], m: int, _out: _Planes[_N] | None
) -> _Planes[_N]:
    """Merge (sum, what rounding took from the sum, sum of squared distances from the mean).

    Chan, Golub and LeVeque (1983), for n elements followed by m. Their formula subtracts two
    means, which loses what the means have in common. So the sums carry their rounding error
    along; the plane is left out where the sums are wide enough for the elements without it.
    """
    if len(left) == 2:
        (total, square), (other, other_square) = left, right
        # Of as many elements, sums differ as means do, only n times as much: nothing is divided.
        distance = other - total if n == m else other / m - total / n
        return total + other, square + other_square + _between(distance, n, m)
    (high, low, square), (other, other_low, other_square) = left, right
    total, error = exact_sum(high, other)
    if n == m:
        distance = (other - high) + (other_low - low)
    else:
        mean, mean_error = exact_mean(high, low, n)
        other_mean, other_error = exact_mean(other, other_low, m)
        distance = (other_mean - mean) + (other_error - mean_error)
    square = square + other_square + _between(distance, n, m)
    return total, error + low + other_low, square


def _between(distance: _N, n: int, m: int) -> _N:
    """Tell what two runs add to the squares: from the distance of their sums, or of their means."""
    squared: _N
    if distance.dtype.kind == "c":
        squared = distance.real**2 + distance.imag**2
    else:
        squared = distance * distance
    # By whole numbers, and the division last: a weight such as n * m / (n + m), made first, would
    # bring a rounding of its own.
    if n == m:
        squared /= 2 * n
    else:
        squared *= n * m
        squared /= n + m
    return squared


def exact_sum(a: _N, b: _N) -> tuple[_N, _N]:
    """Knuth's two-sum: the rounded sum, and exactly what rounding took."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def exact_product(a: _N, n: int) -> tuple[_N, _N]:
    """Multiply by a count: the rounded product, and exactly what rounding took."""
    product = a * n
    # The upper half of the digits times n is exact, and so is the lower half, of
    # doubles up to n = 2**26.
    if a.dtype == np.float64:  # by its bits, so that a mean of 1e301 stays a number
        upper = (a.view(np.int64) & -(1 << 27)).view(np.float64)
    else:  # Veltkamp's split, which overflows where a is close to the largest number
        scaled = a * (2.0 ** ((np.finfo(a.dtype).nmant + 2) // 2) + 1)
        upper = scaled - (scaled - a)
    return product, (upper * n - product) + (a - upper) * n


def exact_mean(high: _N, low: _N, n: int) -> tuple[_N, _N]:
    """Divide a sum by `n`: the rounded mean, and what rounding took."""
    mean = high / n
    product, error = exact_product(mean, n)
    # `high - product` is exact, because they are nearly the same.
    return mean, ((high - product) - error + low) / n


def _collect_variance(state: State, count: int) -> State:
    """Merge runs (…, length) from halves down; what does not halve is merged last."""
    length = state[0].shape[-1]
    # A power of two, so that each merge but the last is of two runs of as many elements: the way
    # that needs no means.
    rows = 1 << (length.bit_length() - 1)
    rest = tuple(plane[..., rows:] for plane in state)
    state = tuple(plane[..., :rows] for plane in state)
    merged = 1
    while rows > 1:
        rows //= 2
        left, right = (
            tuple(p[..., cut] for p in state) for cut in (slice(rows), slice(rows, None))
        )
        state = _merge_variance(left, merged * count, right, merged * count, None)
        merged *= 2
    whole = tuple(plane[..., 0] for plane in state)
    if merged == length:
        return whole
    tail = _collect_variance(rest, count)
    return _merge_variance(whole, merged * count, tail, (length - merged) * count, None)


VARIANCE = Fold(merge=_merge_variance, collect=_collect_variance)

"""What does a reduction's name mean? Its types, what it merges, and its result."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np

from mmchunks.errors import PlanError
from mmchunks.sliding import folds

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from mmchunks.files.layout import DType, Numbers
    from mmchunks.sliding.folds import Fold, State

__all__ = ["MERGING", "Merging", "Reduce", "as_function", "refuse_objects", "result_dtype"]

Reduce: TypeAlias = "str | float | Callable[..., object]"
"""What is written as ``reduce=``: a name, a quantile, or a function of windows and their axes."""

_N = TypeVar("_N", bound="Numbers")


class _Finish(Protocol):
    def __call__(self, state: tuple[_N, ...], count: int, /) -> _N: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """A reduction of a run that can be made from the states of its parts."""

    lift: Callable[[Numbers], State]
    """States of runs of one element."""

    fold: Fold
    """How runs merge."""

    finish: _Finish
    """Results of runs of so many elements."""

    averages: bool = False
    """Whether `finish` does nothing but divide by their number."""


def _addends(name: str) -> Callable[[Numbers], State]:
    def lift(x: Numbers) -> State:
        # numpy adds halves as singles; a type that widens does so before it is added
        half = x.dtype.kind == "f" and x.dtype.itemsize == 2
        return (x.astype(np.float32 if half else result_dtype(x.dtype, name), copy=False),)

    return lift


def _truths(x: Numbers) -> State:
    return (x.astype(bool, copy=False),)


def _moments(x: Numbers) -> State:
    wide = x.astype(np.result_type(x.dtype, np.float64), copy=False)
    xp = folds.namespace(x)
    zero = xp.broadcast_to(xp.zeros((), wide.dtype), wide.shape)  # without memory of its own
    if x.dtype.kind == "f" and x.dtype.itemsize <= 4:
        return wide, zero
    return wide, zero, zero.real


def _only(state: tuple[_N, ...], _count: int) -> _N:
    return state[0]


def _mean(state: tuple[_N, ...], count: int) -> _N:
    total = state[0]
    if total.dtype.kind in "fc":
        total /= count  # in place: fresh memory costs more than the division
        return total
    return total / count


def _spread(state: tuple[_N, ...], _count: int) -> _N:
    return state[1] - state[0]


def _variance(state: tuple[_N, ...], count: int) -> _N:
    total, squares = state[0], state[-1]
    xp = folds.namespace(total)
    # numpy subtracts the mean first: whatever is infinite becomes a NaN
    variance: _N = xp.where(xp.isfinite(total), squares / count, xp.nan)
    return variance


def _deviation(state: tuple[_N, ...], count: int) -> _N:
    return _variance(state, count) ** 0.5


MERGING = {
    "sum": Merging(lift=_addends("sum"), fold=folds.SUM, finish=_only),
    "mean": Merging(lift=_addends("mean"), fold=folds.SUM, finish=_mean, averages=True),
    "min": Merging(lift=lambda x: (x,), fold=folds.MINIMUM, finish=_only),
    "max": Merging(lift=lambda x: (x,), fold=folds.MAXIMUM, finish=_only),
    "ptp": Merging(lift=lambda x: (x, x), fold=folds.RANGE, finish=_spread),
    "any": Merging(lift=_truths, fold=folds.ANY, finish=_only),
    "all": Merging(lift=_truths, fold=folds.ALL, finish=_only),
    "var": Merging(lift=_moments, fold=folds.VARIANCE, finish=_variance),
    "std": Merging(lift=_moments, fold=folds.VARIANCE, finish=_deviation),
}


def as_function(xp: ModuleType, reduce: Reduce) -> Callable[..., object]:
    """Return `reduce` as ``f(windows, axis)``, with the functions of the module `xp`.

    Raises
    ------
    PlanError
        If there is no such reduction.

    Examples
    --------
    >>> as_function(np, 0.25)(np.arange(5), axis=-1)
    np.float64(1.0)
    """
    if callable(reduce):
        return reduce
    if isinstance(reduce, str) and (reduce in MERGING or reduce == "median"):
        return getattr(xp, reduce)  # type: ignore[no-any-return]
    try:
        share = float(reduce) if not isinstance(reduce, str | bytes | bool | np.bool_) else -1
    except (TypeError, ValueError):
        share = -1
    if 0 <= share <= 1:
        return lambda windows, axis: xp.quantile(windows, share, axis=axis)
    msg = (
        f"no reduction is named {reduce!r}; write one of {', '.join(MERGING)}, median, "
        "a quantile from 0.0 to 1.0, or a function f(windows, axis)"
    )
    raise PlanError(msg)


def refuse_objects(dtype: DType) -> None:
    """Refuse elements that only Python can add up.

    Raises
    ------
    PlanError
        For such a dtype.
    """
    if dtype.hasobject:
        msg = f"elements are Python objects ({dtype}), which do not slide; convert them first"
        raise PlanError(msg)


def result_dtype(dtype: DType, reduce: Reduce, lengths: tuple[int, ...] = (1,)) -> DType:
    """Tell the dtype that numpy gives to `reduce` of windows of `dtype`.

    Parameters
    ----------
    dtype : numpy.dtype
        Type of the elements.
    reduce : str, float or callable
        As in `reduce_windows`. A callable is tried on one window of zeros.
    lengths : tuple of int
        Rows of that window along each axis that slides: a callable may need them all.

    Returns
    -------
    numpy.dtype
        As numpy's.

    Raises
    ------
    PlanError
        If there is no such reduction, or numpy has none for this dtype.

    Examples
    --------
    >>> result_dtype(np.dtype("i2"), "sum"), result_dtype(np.dtype("f2"), "mean")
    (dtype('int64'), dtype('float16'))
    """
    function = as_function(np, reduce)
    refuse_objects(dtype)
    if callable(reduce):
        axis = -1 if len(lengths) == 1 else tuple(range(-len(lengths), 0))
        with warnings.catch_warnings():  # a window of zeros is no fault of the user's
            warnings.simplefilter("ignore")
            return np.asarray(function(np.zeros((1, *lengths), dtype), axis=axis)).dtype
    try:
        return np.asarray(function(np.zeros((1, 1), dtype), axis=-1)).dtype
    except TypeError as error:
        msg = f"numpy has no {reduce!r} of {dtype} elements; convert them first ({error})"
        raise PlanError(msg) from error

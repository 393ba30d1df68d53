"""What does ``halo=`` mean? How far a chunk reads beyond what it owns, along each axis."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, TypeAlias

from mmchunks.chunkspec import as_axis
from mmchunks.errors import PlanError

__all__ = ["Halo", "parse_halo"]

Halo: TypeAlias = tuple[tuple[int, int], ...]


def parse_halo(halo: Any, ndim: int) -> Halo:
    """Read a halo.

    Parameters
    ----------
    halo : None, int or dict
        Elements at both sides of axis 0, or ``{axis: n}``, or ``{axis: (before, after)}``. Axes
        may be counted from the end.
    ndim : int
        Number of axes.

    Returns
    -------
    tuple of (int, int)
        Elements before and after, for every axis.

    Raises
    ------
    PlanError
        If there is no such axis, or a number is negative or none.

    Examples
    --------
    >>> parse_halo(2, 2), parse_halo({-1: (0, 5)}, 2)
    (((2, 2), (0, 0)), ((0, 0), (0, 5)))
    """
    found = [(0, 0)] * ndim
    entries = halo if isinstance(halo, Mapping) else {} if halo is None else {0: halo}
    for axis, entry in entries.items():
        found[as_axis(axis, ndim)] = _reach(entry, axis)
    return tuple(found)


def _reach(entry: Any, axis: Any) -> tuple[int, int]:
    """Read how far one axis is read before and after."""
    try:
        before, after = entry if isinstance(entry, (tuple, list)) else (entry, entry)
        reach = (operator.index(before), operator.index(after))
    except (TypeError, ValueError):
        reach = (-1, -1)
    if min(reach) < 0:
        msg = (
            f"halo of axis {axis} must be one or two numbers of elements >= 0, got {entry!r}; "
            f"write {{{axis}: 3}} or {{{axis}: (0, 3)}}"
        )
        raise PlanError(msg)
    return reach

"""How much of a file should one task read, so that halos stay cheap?

    rows of the file   |----------------------------------------------------|
    task 0 owns        |==================|
           and reads   |==================|~~~~|          halo: window - step rows
    task 1                                |==================|~~~~|

Every row of a halo is read by two tasks. So tasks own many rows at a time, as long as memory
allows; where a halo is longer than that, axes on which no window slides may be cut instead, at the
price of reading pieces of rows, of which each brings in whole pages.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mmchunks.files.layout import PAGE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mmchunks.files.layout import Layout

__all__ = ["result_sizes", "rows_read"]

_CHEAP = 1.1  # bytes that are touched, of bytes that are owned


def result_sizes(
    layout: Layout,
    windows: Mapping[int, int],
    steps: Mapping[int, int],
    *,
    target_nbytes: int,
    limit_nbytes: int,
) -> tuple[int, ...]:
    """Choose the shape of a chunk of the result.

    Parameters
    ----------
    layout : Layout
        The array that is read.
    windows, steps : {axis: int}
        Rows of a window, and from one to the next.
    target_nbytes : int
        Bytes that a task should read, its halo included.
    limit_nbytes : int
        Bytes that it may read, where that makes halos cheaper.

    Returns
    -------
    tuple of int
        Lengths along each axis of the result, of all chunks but the last.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(100_000, 1024), dtype=np.dtype("f4"))
    >>> result_sizes(layout, {0: 24}, {0: 1}, target_nbytes=2**24, limit_nbytes=2**26)
    (4073, 1024)
    >>> result_sizes(layout, {0: 2000}, {0: 1}, target_nbytes=2**24, limit_nbytes=2**26)
    (14385, 1024)
    """
    counts = tuple(
        (n - windows.get(axis, 1)) // steps.get(axis, 1) + 1 for axis, n in enumerate(layout.shape)
    )
    candidates = []
    for nbytes in (target_nbytes, 2 * target_nbytes, limit_nbytes):
        for order in (layout.axes, tuple(sorted(layout.axes, key=lambda axis: axis in windows))):
            sizes = _fitting(layout, windows, steps, counts, order, min(nbytes, limit_nbytes))
            candidates.append((_cost(layout, windows, steps, sizes), sizes))
            if candidates[-1][0] <= _CHEAP:
                return sizes
    return min(candidates)[1]


def rows_read(count: int, length: int, step: int) -> int:
    """Count the rows that so many neighbouring windows hold together.

    Examples
    --------
    >>> rows_read(3, length=4, step=2)
    8
    """
    return (count - 1) * step + length


def _fitting(
    layout: Layout,
    windows: Mapping[int, int],
    steps: Mapping[int, int],
    counts: tuple[int, ...],
    order: tuple[int, ...],
    nbytes: int,
) -> tuple[int, ...]:
    """Cut axes in `order`, each as little as makes what is read fit into `nbytes`."""
    sizes = list(counts)
    for axis in order:
        rest = math.prod(_read(sizes, windows, steps, other) for other in order if other != axis)
        rows = nbytes // max(rest * layout.itemsize, 1)
        size = (rows - windows.get(axis, 1)) // steps.get(axis, 1) + 1
        sizes[axis] = max(min(size, counts[axis]), min(1, counts[axis]))
        if size >= 1:
            break
    return tuple(sizes)


def _read(
    sizes: list[int] | tuple[int, ...],
    windows: Mapping[int, int],
    steps: Mapping[int, int],
    axis: int,
) -> int:
    """Rows that are read for so many windows."""
    return rows_read(sizes[axis], windows.get(axis, 1), steps.get(axis, 1))


def _cost(
    layout: Layout, windows: Mapping[int, int], steps: Mapping[int, int], sizes: tuple[int, ...]
) -> float:
    """Bytes that are touched for each byte that is owned."""
    cost = 1.0
    run = layout.itemsize
    whole = True
    for axis in reversed(layout.axes):
        rows = _read(sizes, windows, steps, axis)
        owned = min(sizes[axis] * steps.get(axis, 1), layout.shape[axis])
        if owned:
            cost *= max(rows / owned, 1.0)
        if whole:
            run *= rows
            whole = rows >= layout.shape[axis]
    return cost if whole else cost * (run + PAGE) / run  # on average a run touches one page more

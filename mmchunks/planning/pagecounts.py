"""How many pages have two owners, or are touched by one chunk? Counted in closed form.

    page    |.......|.......|.......|.......|
    chunk     |0....|1..|2.....|3..........|
    shared          |   2   |   2   |              the second and the third have two owners each

Boundaries are counted, not visited: how often ``(start + n * spacing) % page`` is small has a
closed form, a sum of floors, which Euclid's algorithm gives in a few steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmchunks.files.layout import Layout
    from mmchunks.files.runs import Runs
    from mmchunks.planning.grids import Grid

__all__ = ["runs_on_pages", "shared_pages", "touched_pages"]


def shared_pages(grid: Grid, page: int) -> int:
    """Count the pages of `page` bytes that hold bytes of more than one chunk, exactly.

    A page is counted at the first boundary inside it, that is where the boundary before lies in
    an earlier page (or at its own start): ``1 <= boundary % page <= bytes since the one before``.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.planning.cuts import even
    >>> from mmchunks.planning.grids import Grid
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(10_000,), dtype=np.dtype("u1"), offset=128)
    >>> shared_pages(Grid(layout=layout, cuts=(even(10_000, 5_000),)), 4096)
    1
    """
    axis = grid.cut_axis
    if axis is None:
        return 0
    rows, stride, cuts = grid.rows(axis), grid.layout.strides[axis], grid.cuts[axis]
    row_nbytes = stride * cuts.length
    start = grid.layout.offset
    # Ends of rows: the last piece of one row meets the first piece of the next.
    total = _count(start + row_nbytes, rows - 1, row_nbytes, 1, 0, cuts.last * stride, page)
    for group in cuts.boundaries():
        total += _count(
            start + group.start * stride,
            rows,
            row_nbytes,
            group.count,
            group.spacing * stride,
            group.before * stride,
            page,
        )
    # The very first boundary has none before it, only the header: it is the first one inside its page
    # even where that page begins before the data.
    first_nbytes = next(cuts.boundaries()).start * stride
    return total + ((start + first_nbytes) % page > first_nbytes)


def runs_on_pages(layout: Layout, runs: Runs, page: int) -> bool:
    """Whether all `runs` of a chunk begin and end on pages, but for the ends of the array.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(10_000,), dtype=np.dtype("u1"), offset=128)
    >>> runs_on_pages(layout, layout[slice(0, 3968),].runs, 4096)
    True
    """
    # Strides count as well: of rows of 40 bytes, on pages of 16, the first one alone looks aligned.
    if len(runs) > 1:  # between them lie bytes of others, in every row alike
        return not any(n % page for n in (runs.offset, runs.nbytes, *runs.strides))
    # Before the array lies the header, behind it nothing: those pages are no other chunk's.
    ends = {runs.offset, runs.offset + runs.nbytes} if runs.nbytes else set()
    return not any(place % page for place in ends - {layout.offset, layout.stop})


def touched_pages(runs: Runs, page: int) -> int:
    """Count the pages that hold bytes of `runs`.

    Exact for one level of runs; where groups of runs repeat, the first group stands for all.

    Examples
    --------
    >>> from mmchunks.files.runs import Runs
    >>> touched_pages(Runs(offset=0, nbytes=100, counts=(10,), strides=(8192,)), 4096)
    10
    """
    if not runs.nbytes:
        return 0
    *groups, count = runs.counts or (1,)
    spacing = runs.strides[-1] if runs.strides else runs.nbytes
    last = runs.offset + runs.nbytes - 1
    if spacing - runs.nbytes < page:  # no page lies between two runs
        pages = (last + (count - 1) * spacing) // page - runs.offset // page + 1
    else:  # no page holds bytes of two runs: each counts its own
        pages = count + _floor_sum(count, page, spacing, last)
        pages -= _floor_sum(count, page, spacing, runs.offset)
    # Groups that lie close together share pages: all of them touch no more than the span has.
    reach = sum((n - 1) * stride for n, stride in zip(runs.counts, runs.strides, strict=True))
    return min(math.prod(groups) * pages, (last + reach) // page - runs.offset // page + 1)


def _count(
    start: int, rows: int, row: int, columns: int, column: int, before: int, page: int
) -> int:
    """Count places ``start + i * row + j * column`` that lie 1 to `before` bytes into a page."""
    # (place - 1) // page - (place - 1 - depth) // page is 1 for such a place, and 0 for any other.
    depth = min(before, page - 1)
    if rows == columns == 1:
        return int(1 <= start % page <= depth)
    # One direction is listed by the places in a page that it falls on, a page of them at most; the
    # other one is summed in closed form. Which is which is free, so the shorter list is taken.
    by_rows, by_columns = _classes(rows, row, page), _classes(columns, column, page)
    if by_rows > by_columns:
        rows, row, columns, column, by_rows = columns, column, rows, row, by_columns
    return sum(
        times
        * (
            _floor_sum(columns, page, column, start + shift - 1)
            - _floor_sum(columns, page, column, start + shift - 1 - depth)
        )
        for shift, times in _shifts(rows, row, by_rows)
    )


def _classes(count: int, spacing: int, page: int) -> int:
    """How many different places in a page `count` multiples of `spacing` fall on."""
    return min(count, page // math.gcd(spacing, page))


def _shifts(count: int, spacing: int, classes: int) -> Iterator[tuple[int, int]]:
    """List those places, and how often each occurs."""
    for place in range(classes):
        yield place * spacing, (count - place + classes - 1) // classes


def _floor_sum(count: int, divisor: int, slope: int, start: int) -> int:
    """Sum ``(start + slope * n) // divisor`` over ``0 <= n < count``, by Euclid's algorithm."""
    # `start` may be negative: divmod rounds down, as the floors that are summed do.
    total = 0
    while count > 0:
        whole, slope = divmod(slope, divisor)
        rest, start = divmod(start, divisor)
        total += whole * (count * (count - 1) // 2) + rest * count
        top = slope * count + start
        if top < divisor:
            break
        # Count the same lattice points by columns instead of rows.
        count, start = divmod(top, divisor)
        divisor, slope = slope, divisor
    return total

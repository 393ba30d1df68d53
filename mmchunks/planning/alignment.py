"""Can the boundaries between chunks fall on pages? Exact arithmetic, for pages of any size.

    page  |.......|.......|.......|.......|.......|.......|.......|
    row      |a....|b....|c....|d....|e....|f....|g....|h....|
             ^offset                 ^e starts on a page; so does every 4th row after it

Boundary k of an axis lies at byte ``offset + k * stride``. One of them falls on a page exactly if
``gcd(stride, page)`` divides ``offset``, and then every ``page / gcd``-th one does. So there are
three ends: *aligned*; *aligned with coarser chunks*, where the chunks had to grow for it; *not
alignable*, with the reason. What stays in the user's own sizes although it could be aligned is
*kept as asked*.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from mmchunks.planning.cuts import Boundaries, Cuts, EvenCuts, listed, whole
from mmchunks.planning.grids import Grid

__all__ = ["Alignment", "Comb", "Outcome", "align_grid", "is_aligned", "page_boundaries"]

Outcome: TypeAlias = Literal[
    "aligned", "aligned with coarser chunks", "not alignable", "kept as asked"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comb:
    """The indices of an axis that fall on pages: ``first + n * period``."""

    first: int
    """The smallest of them, ``0 <= first < period``."""

    period: int
    """Distance from one to the next."""

    def next(self, index: int) -> int:
        """Give the smallest one that is not less than `index`."""
        return index + (self.first - index) % self.period

    def holds(self, places: Boundaries) -> bool:
        """Whether all of `places` are among them."""
        start = self.next(places.start) == places.start
        return start and (places.count == 1 or places.spacing % self.period == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How a plan ended, and why."""

    outcome: Outcome
    """One of the four ends."""

    reason: str
    """One sentence."""


def page_boundaries(offset: int, stride: int, page: int) -> Comb | None:
    """Find the multiples of `stride` that fall on pages when counted from `offset`.

    Parameters
    ----------
    offset : int
        Byte of index 0.
    stride : int
        Bytes from one index to the next, 1 or more.
    page : int
        Bytes of a page, any number from 1.

    Returns
    -------
    Comb or None
        None if none ever does.

    Examples
    --------
    >>> page_boundaries(128, 4000, 4096)
    Comb(first=44, period=128)
    >>> page_boundaries(128, 4096, 4096)  # what np.save writes for 1024 float32 a row
    >>> page_boundaries(4096, 4096, 4096)
    Comb(first=0, period=1)
    """
    divisor = math.gcd(stride, page)
    if offset % divisor:
        return None
    period = page // divisor
    # Solved for k in offset + k * stride = 0 (mod page). What is left of stride and page after their
    # divisor has no factor in common, so the inverse is there.
    first = (-offset // divisor) * pow(stride // divisor, -1, period) % period
    return Comb(first=first, period=period)


def is_aligned(grid: Grid, page: int) -> bool:
    """Whether no page holds bytes of two chunks."""
    axis = grid.cut_axis
    if axis is None:
        return True
    comb = _comb(grid, axis, page)
    return comb is not None and all(comb.holds(places) for places in grid.cuts[axis].boundaries())


def align_grid(grid: Grid, *, page: int, grow: bool, limit_nbytes: int) -> tuple[Grid, Alignment]:
    """Move the boundaries of `grid` onto pages, if chunks of at most `limit_nbytes` allow it.

    The cut axis is moved first. Where that does not help it is left whole, and the next slower
    axis is moved instead.

    Parameters
    ----------
    grid : Grid
        The grid as asked.
    page : int
        Bytes of a page.
    grow : bool
        Whether chunks may not become smaller than asked. Otherwise they shrink to the next whole
        number of pages, and grow only where they hold none.
    limit_nbytes : int
        Upper bound of the bytes of a chunk.

    Returns
    -------
    (Grid, Alignment)
        The aligned grid, or `grid` itself where there is none.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.planning.cuts import even, whole
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(900, 1000), dtype=np.dtype("f4"), offset=128)
    >>> grid = Grid(layout=layout, cuts=(even(900, 200), whole(1000)))
    >>> moved, alignment = align_grid(grid, page=4096, grow=True, limit_nbytes=10**7)
    >>> moved.cuts[0].sizes(), alignment.outcome
    ((172, 256, 256, 216), 'aligned with coarser chunks')
    """
    if is_aligned(grid, page):
        return grid, Alignment(outcome="aligned", reason=_already(grid, page))
    cuts = list(grid.cuts)
    obstacles: list[str] = []
    axis = grid.cut_axis
    slower = grid.layout.axes[: grid.layout.axes.index(axis) + 1] if axis is not None else ()
    for axis in reversed(slower):
        comb = _comb(grid, axis, page)
        if comb is None:
            obstacles.append(_never(grid, axis, page))
        else:
            cuts[axis] = _moved(cuts[axis], comb, grow=grow)
            moved = Grid(layout=grid.layout, cuts=tuple(cuts))
            if moved.cut_axis != axis:
                obstacles.append(_beyond(grid, axis, comb, page))
            elif moved.chunk_nbytes > limit_nbytes:
                obstacles.append(_too_large(moved, axis, comb, page, limit_nbytes))
                break  # with this axis whole, chunks along a slower one are larger still
            else:
                return moved, _success(grid, moved, axis, comb, page)
        cuts[axis] = whole(grid.layout.shape[axis])
    # The first obstacle is about the axis that was cut, the others about those tried in its stead.
    return grid, Alignment(outcome="not alignable", reason=obstacles[0])


def _comb(grid: Grid, axis: int, page: int) -> Comb | None:
    """Find the indices of `axis` that fall on pages in every row along it."""
    layout = grid.layout
    stride = layout.strides[axis]
    row_nbytes = stride * layout.shape[axis]
    # The ends of rows are boundaries, too, and the same cuts recur in each: with rows of 20 bytes, on
    # pages of 16, a cut at 16 is on a page in the first row only.
    if grid.rows(axis) > 1 and (layout.offset % page or row_nbytes % page):
        return None
    return page_boundaries(layout.offset, stride, page)


def _moved(cuts: Cuts, comb: Comb, *, grow: bool) -> Cuts:
    """Move the boundaries of one axis onto the teeth of `comb`; fewer may be left."""
    if isinstance(cuts, EvenCuts):
        step = cuts.step + (-cuts.step % comb.period if grow else -(cuts.step % comb.period))
        step = max(step, comb.period)
        # Where the teeth do not begin at 0, the first piece is the shorter one: no chunk is larger
        # than `step`, which is what `limit_nbytes` is held against.
        first = comb.first + step - comb.period if comb.first else step
        return EvenCuts(length=cuts.length, first=min(first, cuts.length), step=step)
    stops = sorted({0, cuts.length, *(min(comb.next(s), cuts.length) for s in cuts.stops)})
    return listed([stop - start for start, stop in itertools.pairwise(stops)])


def _already(grid: Grid, page: int) -> str:
    """Say why nothing had to move."""
    if grid.cut_axis is None:
        return "no boundary lies between two chunks, so no page can be shared"
    return f"every boundary between chunks already falls on a {page}-byte page"


def _success(before: Grid, after: Grid, axis: int, comb: Comb, page: int) -> Alignment:
    """Say what was moved, and by how much chunks grew."""
    reason = (
        f"{_every(comb, axis, page)}, so chunks of {after.cuts[axis].largest} along it share none"
    )
    if after.chunk_nbytes <= before.chunk_nbytes:
        return Alignment(outcome="aligned", reason=reason)
    growth = f"; they grew from {before.chunk_nbytes:,} to {after.chunk_nbytes:,} bytes for it"
    return Alignment(outcome="aligned with coarser chunks", reason=reason + growth)


def _never(grid: Grid, axis: int, page: int) -> str:
    """Say why no boundary of `axis` falls on a page in every row."""
    layout = grid.layout
    stride = layout.strides[axis]
    if page_boundaries(layout.offset, stride, page):
        return (
            f"axis {axis} is cut inside rows of {stride * layout.shape[axis]} bytes that start at "
            f"byte {layout.offset}, and its cuts fall on {page}-byte pages only if both are "
            f"multiples of {page}"
        )
    reason = (
        f"rows of axis {axis} are {stride} bytes and data starts at byte {layout.offset}, so no "
        f"row boundary ever falls on a {page}-byte page"
    )
    created = page_boundaries(4096, stride, page)
    if grid.rows(axis) > 1 or created is None:
        return reason
    return (
        f"{reason}; np.save pads headers to 64 bytes, a file from create_npy starts its data at "
        f"byte 4096 and would align every {_ordinal(created.period)}row"
    )


def _too_large(moved: Grid, axis: int, comb: Comb, page: int, limit: int) -> str:
    """Say that alignment would cost too much, and how to ask for it all the same."""
    return (
        f"only {_every(comb, axis, page)}, and chunks of {moved.chunk_nbytes:,} bytes are more "
        f"than the {limit:,} allowed here; write chunks={moved.spelled}, align={page} to have them"
    )


def _beyond(grid: Grid, axis: int, comb: Comb, page: int) -> str:
    """Say that only the whole axis is aligned."""
    length = grid.layout.shape[axis]
    return f"only {_every(comb, axis, page)}, and with {length} of them one piece would be left"


def _every(comb: Comb, axis: int, page: int) -> str:
    """Say which boundaries fall on pages."""
    start = f" from index {comb.first}" if comb.first else ""
    return (
        f"every {_ordinal(comb.period)}boundary of axis {axis}{start} falls on a {page}-byte page"
    )


def _ordinal(number: int) -> str:
    """Write "2nd ", "3rd ", "4th ", and nothing for 1."""
    teen = number % 100 // 10 == 1
    ending = "th" if teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return "" if number == 1 else f"{number}{ending} "

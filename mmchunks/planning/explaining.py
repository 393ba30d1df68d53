"""Why is a plan as it is? One sentence a decision, and what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmchunks.planning.alignment import align_grid
from mmchunks.planning.cuts import even
from mmchunks.planning.grammar import slabs
from mmchunks.planning.pagecounts import shared_pages, touched_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmchunks.planning.alignment import Alignment
    from mmchunks.planning.grids import Grid

__all__ = ["sentences", "typical_touch"]


def sentences(
    grid: Grid,
    *,
    asked: str,
    chosen: bool,
    target_nbytes: int,
    alignment: Alignment,
    page: int,
    halo: tuple[tuple[int, int], ...],
    limit_nbytes: int,
) -> Iterator[str]:
    """Explain a plan.

    Parameters
    ----------
    grid : Grid
        The chunks.
    asked : str
        What was written as ``chunks=``.
    chosen : bool
        Whether that left the sizes to us.
    target_nbytes : int
        Bytes of a chunk that "auto" aims at.
    alignment : Alignment
        How the boundaries came to lie where they lie.
    page : int
        Bytes of a page.
    halo : tuple of (int, int)
        What a chunk reads before and after what it owns, along each axis.
    limit_nbytes : int
        Bytes of a chunk up to which advice to align is worth giving.

    Yields
    ------
    str
        One sentence for each decision.
    """
    layout = grid.layout
    yield (
        f"shape {layout.shape} of {layout.dtype} in {layout.order} order takes {layout.nbytes:,} "
        f"bytes from byte {layout.offset}"
    )
    yield _sizes(grid, asked, target_nbytes if chosen else None)
    yield f"{alignment.outcome}: {alignment.reason}"
    yield _sharing(grid, page)
    yield _touching(grid, page)
    for axis, (before, after) in enumerate(halo):
        if before or after:
            yield (
                f"along axis {axis} a chunk also reads {before} before and {after} after what it "
                "owns, clipped to the array"
            )
    yield from _instead(grid, alignment, page, limit_nbytes)


def typical_touch(grid: Grid, page: int) -> tuple[int, int]:
    """Give the bytes that a chunk amid the others owns, and those of the pages it touches."""
    index = tuple(min(1, blocks - 1) for blocks in grid.numblocks)
    region = grid.region(index)
    touched = touched_pages(grid.layout[region].runs, page) * page
    return grid.layout[region].nbytes, touched


def _sizes(grid: Grid, asked: str, target_nbytes: int | None) -> str:
    """Say why chunks are as large as they are."""
    each = f"{grid.count:,} of up to {grid.largest}, {grid.chunk_nbytes:,} bytes"
    if target_nbytes is None:
        return f"chunks={asked} was spelled out; the plan has {each}"
    if grid.cut_axis is None:
        return f"chunks={asked} aims at {target_nbytes:,} bytes a chunk, so nothing is cut: {each}"
    why = f"chunks={asked} makes contiguous slabs near {target_nbytes:,} bytes: {each}"
    slowest = grid.layout.axes[0]
    if grid.cut_axis == slowest:
        return f"{why}, along axis {slowest}, the slowest"
    row_nbytes = grid.layout.strides[slowest]
    return (
        f"{why}; one row of axis {slowest} takes {row_nbytes:,} bytes, so axis {grid.cut_axis} is "
        "cut as well"
    )


def _sharing(grid: Grid, page: int) -> str:
    """Say how many pages have two owners, and who must care."""
    shared = shared_pages(grid, page)
    pages = grid.layout[grid.layout.whole].span.pages(page).nbytes // page
    count = f"{shared:,} of {pages:,} pages of {page} bytes hold bytes of more than one chunk"
    if not shared:
        return f"{count}: any process on any host may write any chunk"
    return f"{count}: harmless for reading and on one host; across hosts each needs one writer"


def _touching(grid: Grid, page: int) -> str:
    """Say how much a chunk really reads."""
    owned, touched = typical_touch(grid, page)
    if not owned:
        return "a chunk owns no bytes"
    times = f"{touched / owned:.2f} times as many"
    pages = f"{touched // page:,} pages, {touched:,} bytes ({times})"
    if grid.contiguous:
        return f"a chunk owns {owned:,} bytes in one piece and touches {pages}"
    runs = grid.layout[grid.region(tuple(min(1, n - 1) for n in grid.numblocks))].runs
    return (
        f"a chunk owns {owned:,} bytes in {len(runs):,} pieces of {runs.nbytes:,} and touches "
        f"about {pages}, because axis {grid.cut_axis} is cut inside the rows"
    )


def _instead(grid: Grid, alignment: Alignment, page: int, limit_nbytes: int) -> Iterator[str]:
    """Give the chunks to write where others would serve better."""
    if not grid.contiguous:
        other = slabs(grid.layout, max(grid.chunk_nbytes, 1))
        yield f"write chunks={other.spelled} for contiguous chunks of about the same size"
    if alignment.outcome == "kept as asked":
        other, found = align_grid(grid, page=page, grow=True, limit_nbytes=limit_nbytes)
        if found.outcome == "not alignable":
            yield f"align={page} would not help: {found.reason}"
        else:
            regular = all(cut == even(cut.length, max(cut.largest, 1)) for cut in other.cuts)
            what = f"chunks={other.spelled}" if regular else f"align={page}"
            yield f"write {what} for chunks on page boundaries"

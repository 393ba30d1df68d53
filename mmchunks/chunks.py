"""What does chunk number n promise? Its region, what it reads for it, and the bytes of that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmchunks.sharing import runs_on_pages

if TYPE_CHECKING:
    from mmchunks.grids import Grid
    from mmchunks.halospec import Halo
    from mmchunks.layout import Region

__all__ = ["Chunk", "promise"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A promise about a region: who handles it reads and writes these bytes, and no others."""

    index: tuple[int, ...]
    """Block index in the dask array of the whole plan."""

    region: Region
    """The elements it owns."""

    read_region: Region
    """The elements it reads: `region` and the halo, clipped to the array."""

    offset: int
    """Byte of its first owned element, counted from the start of the file."""

    nbytes: int
    """Bytes from there to the end of its last owned element, gaps included."""

    contiguous: bool
    """Whether there are no gaps: all those bytes are its own."""

    aligned: bool
    """Whether no page that holds bytes of it holds bytes of another chunk."""


def promise(grid: Grid, number: int, *, halo: Halo, page: int) -> Chunk:
    """Make chunk `number` of `grid`, counted in the order of the file.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.cuts import even
    >>> from mmchunks.grids import Grid
    >>> from mmchunks.layout import Layout
    >>> grid = Grid(layout=Layout(shape=(9,), dtype=np.dtype("f8")), cuts=(even(9, 4),))
    >>> chunk = promise(grid, 2, halo=((3, 3),), page=4096)
    >>> chunk.region, chunk.read_region, chunk.offset, chunk.nbytes, chunk.aligned
    ((slice(8, 9, None),), (slice(5, 9, None),), 64, 8, False)
    """
    layout = grid.layout
    index = grid.index(number)
    region = grid.region(index)
    span = layout.span(region)
    return Chunk(
        index=index,
        region=region,
        read_region=tuple(
            slice(max(0, part.start - before), min(length, part.stop + after))
            for part, (before, after), length in zip(region, halo, layout.shape, strict=True)
        ),
        offset=min(span.offset, layout.stop),  # where nothing is owned, any place will do
        nbytes=span.nbytes,
        contiguous=layout.contiguous(region),
        aligned=runs_on_pages(layout, layout.runs(region), page),
    )

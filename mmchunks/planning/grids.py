"""Which elements does chunk number n own? A layout and the cuts of its axes, nothing more.

    C order, shape (4, 6), chunks (2, 3)      F order: the same chunks, numbered as the file lies
    |0 0 0|1 1 1|                             |0 0 0|2 2 2|
    |0 0 0|1 1 1|                             |0 0 0|2 2 2|
    |2 2 2|3 3 3|                             |1 1 1|3 3 3|
    |2 2 2|3 3 3|                             |1 1 1|3 3 3|

Walk through the file, and the owner of the bytes changes at the boundaries of one axis only: the
*cut axis*, the fastest one that is cut at all, once in every *row* along it (and at the end of
each row). Boundaries of slower axes coincide with ends of rows. So whether pages are shared is a
question about one axis, however many are cut.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmchunks.errors import PlanError

if TYPE_CHECKING:
    from mmchunks.files.layout import Layout, Region
    from mmchunks.planning.cuts import Cuts

__all__ = ["Grid"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A layout and how each of its axes is cut; takes memory for the axes, not for the chunks.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.planning.cuts import even, whole
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(10, 4), dtype=np.dtype("f4"))
    >>> grid = Grid(layout=layout, cuts=(even(10, 3), whole(4)))
    >>> grid.count, grid.index(3), grid.region((3, 0))
    (4, (3, 0), (slice(9, 10, None), slice(0, 4, None)))
    """

    layout: Layout
    """The array that is cut."""

    cuts: tuple[Cuts, ...]
    """How each axis is cut, in NumPy's order."""

    def __post_init__(self) -> None:
        lengths = tuple(cut.length for cut in self.cuts)
        if lengths != self.layout.shape:
            msg = f"cuts of axes of lengths {lengths} do not fit an array of shape "
            raise PlanError(msg + str(self.layout.shape))

    @property
    def numblocks(self) -> tuple[int, ...]:
        """Number of pieces of each axis."""
        return tuple(len(cut) for cut in self.cuts)

    @property
    def count(self) -> int:
        """Number of chunks."""
        return math.prod(self.numblocks)

    @property
    def largest(self) -> tuple[int, ...]:
        """Shape of the largest chunk."""
        return tuple(cut.largest for cut in self.cuts)

    @property
    def spelled(self) -> tuple[int, ...]:
        """What to write as ``chunks=`` for chunks of the largest shape."""
        cuts = zip(self.cuts, self.largest, strict=True)
        return tuple(-1 if len(cut) == 1 else largest for cut, largest in cuts)

    @property
    def chunk_nbytes(self) -> int:
        """Bytes of the elements of the largest chunk."""
        return math.prod(self.largest) * self.layout.itemsize

    @property
    def cut_axis(self) -> int | None:
        """The fastest axis that is cut; None where no boundary lies between two bytes."""
        if not self.layout.nbytes:
            return None
        fastest_first = reversed(self.layout.axes)
        return next((axis for axis in fastest_first if self.cuts[axis].is_cut), None)

    @property
    def contiguous(self) -> bool:
        """Whether every chunk lies in the file in one piece."""
        axis = self.cut_axis
        if axis is None:
            return True
        slower = self.layout.axes[: self.layout.axes.index(axis)]
        return all(self.cuts[axis].largest == 1 for axis in slower)

    def rows(self, axis: int) -> int:
        """How many rows along `axis` the file holds one after another: all slower indices."""
        axes = self.layout.axes
        return math.prod(self.layout.shape[slower] for slower in axes[: axes.index(axis)])

    def index(self, number: int) -> tuple[int, ...]:
        """Give dask's block index of chunk `number`, counted in the order of the file."""
        index = [0] * self.layout.ndim
        for axis in reversed(self.layout.axes):
            number, index[axis] = divmod(number, len(self.cuts[axis]))
        return tuple(index)

    def number(self, index: tuple[int, ...]) -> int:
        """Give the number of the chunk with dask's block index `index`."""
        number = 0
        for axis in self.layout.axes:
            number = number * len(self.cuts[axis]) + index[axis]
        return number

    def region(self, index: tuple[int, ...]) -> Region:
        """Give the elements that the chunk with dask's block index `index` owns."""
        return tuple(cut.piece(i) for cut, i in zip(self.cuts, index, strict=True))

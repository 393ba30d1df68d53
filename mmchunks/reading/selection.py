"""Which elements of a file does a lazy array stand for? An array-like that reads when it is sliced.

A `Selection` holds one pick per axis of its source: a number (the axis is gone), a ``range`` or an
array of numbers. Indexing composes the picks and touches no file, so a slice of a slice of a file
is still one small object; only `read` brings bytes into memory, and only those that were picked.

    source axis  0 1 2 3 4 5 6 7 8 9
    range(10)[2:8]   2 3 4 5 6 7
    ...[::2]         2   4   6          a range again
    ...[[2, 0]]      6   2              an array
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mmchunks.errors import LayoutError
from mmchunks.gpu.forms import device_form
from mmchunks.reading import regions, uploading

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mmchunks.files.layout import Block, DType, Region
    from mmchunks.files.sources import Source

__all__ = ["Pick", "Selection", "select"]

_Places: TypeAlias = "np.ndarray[Any, np.dtype[np.intp]]"
Pick: TypeAlias = "int | range | _Places"
Entry: TypeAlias = "int | slice | _Places"

# Picks whose neighbours lie at least this far apart are read one by one; closer ones together, with
# the gaps between them. A read of 64 KiB from the page cache takes about as long as the call itself.
_FAR_NBYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """Part of one file's array, as what dask calls an array-like.

    Pickles as a path, a layout and the picks; equal selections have equal dask tokens.
    """

    source: Source
    """The file."""

    picks: tuple[Pick, ...]
    """What is taken of each axis of the source."""

    field: str | None
    """Field of a structured dtype that is taken, or None for whole elements."""

    io: str
    """How bytes are read, as in `mmchunks.from_npy`."""

    device: str
    """Where blocks are made: ``"cpu"`` or ``"gpu"``."""

    @property
    def _element(self) -> tuple[DType, tuple[int, ...]]:
        """Dtype and inner shape of one selected element, as it arrives on the device.

        A sub-array field has an inner shape, and so have the bytes that a GPU gets of what it
        cannot count.
        """
        dtype = self.source.dtype if self.field is None else self.source.dtype[self.field]
        if self.device == "cpu":
            return dtype.base, dtype.shape
        form = device_form(dtype.base)
        return form.dtype, dtype.shape + form.tail

    @property
    def dtype(self) -> DType:
        """Type of one element, as it arrives on the device."""
        return self._element[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes that are left, then those that each element has of its own."""
        lengths = tuple(len(pick) for pick in self.picks if not isinstance(pick, int))
        return lengths + self._element[1]

    @property
    def ndim(self) -> int:
        """Number of axes that are left."""
        return len(self.shape)

    @property
    def inner_ndim(self) -> int:
        """Number of trailing axes that belong to each element (see `shape`)."""
        return len(self._element[1])

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return (
            "mmchunks.Selection",
            self.source.__dask_tokenize__(),
            tuple(pick if isinstance(pick, int | range) else pick.tolist() for pick in self.picks),
            self.field,
            self.io,
            self.device,
        )

    def narrowed(self, index: Sequence[Entry]) -> Selection:
        """Take less of every axis that is left.

        Parameters
        ----------
        index : tuple of int, slice or numpy.ndarray of int
            One entry per axis that is left and belongs to the source.
        """
        entries = iter(index)
        picks = tuple(
            pick if isinstance(pick, int) else _take(pick, next(entries)) for pick in self.picks
        )
        return dataclasses.replace(self, picks=picks)

    def __getitem__(self, index: tuple[slice, ...]) -> Any:
        """Read one block: dask asks for a tuple of slices without steps."""
        outer = self.ndim - self.inner_ndim
        block = self.narrowed(index[:outer]).read()
        if self.inner_ndim:
            return block[(slice(None),) * outer + index[outer:]]
        if isinstance(block, np.generic) and (self.dtype.kind in "SUV" or not self.dtype.isnative):
            # As a scalar it would be a str, which has no axes to add, or in the other byte order.
            return np.asarray(block, self.dtype)
        return block

    def read(self) -> Any:
        """Bring the selected elements into memory.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            Of the selection's shape, owned by the caller.
        """
        axis = self._scattered_axis()
        if axis is None:
            return self._covered()
        pieces = [
            dataclasses.replace(
                self, picks=(*self.picks[:axis], piece, *self.picks[axis + 1 :])
            )._covered()
            for piece in _neighbours(self.picks[axis])
        ]
        kept = sum(not isinstance(pick, int) for pick in self.picks[:axis])
        # Dispatches on the blocks: cupy's for cupy. Left alone it turns bytes into native order.
        return np.concatenate(pieces, axis=kept, dtype=self.dtype)

    def _scattered_axis(self) -> int | None:
        """Find the slowest axis whose picks lie so far apart that the gaps should not be read."""
        layout = self.source.layout
        for axis in layout.axes:
            pick, stride = self.picks[axis], layout.strides[axis]
            if isinstance(pick, int) or len(pick) < 2:
                continue
            cover = _cover(pick)
            if (cover.stop - cover.start - len(pick)) * stride >= len(pick) * _FAR_NBYTES:
                return axis
        return None

    def _covered(self) -> Any:
        """Read the smallest region around the picks, and index it."""
        region: Region = tuple(_cover(pick) for pick in self.picks)
        block = regions.block(self.source, region, io=self.io, device=self.device)
        if self.field is not None:
            block = self._field_of(block, self.field)
        for axis in reversed(range(len(self.picks))):
            inner = _within(self.picks[axis], region[axis])
            if inner is not None:
                block = block[(slice(None),) * axis + (inner,)]
        return block

    def _field_of(self, block: Any, field: str) -> Any:
        if self.device == "cpu":
            return block[field]
        return uploading.gpu_field(block, self.source.dtype, field)


def select(source: Source, *, field: str | None, io: str, device: str) -> Selection:
    """Select every element of `source`, or one field of each.

    Raises
    ------
    LayoutError
        If the dtype has no such field.
    """
    if field is not None and field not in (source.dtype.names or ()):
        names = ", ".join(map(repr, source.dtype.names or ()))
        msg = f"{source.path}: no field {field!r} in {source.dtype}; " + (
            f"its fields are {names}" if names else "its dtype is not structured: leave field out"
        )
        raise LayoutError(msg)
    picks = tuple(range(length) for length in source.shape)
    return Selection(source=source, picks=picks, field=field, io=io, device=device)


def _take(pick: range | Block, entry: Entry) -> Pick:
    """Index a pick; a list of numbers makes an array of it."""
    if isinstance(entry, slice):
        return pick[entry]
    if not isinstance(entry, np.ndarray):
        return int(pick[entry])
    if isinstance(pick, np.ndarray):
        taken: _Places = pick[entry]
        return taken
    entry = np.where(entry < 0, entry + len(pick), entry)
    if entry.size and not 0 <= entry.min() <= entry.max() < len(pick):
        msg = f"index out of bounds for an axis of length {len(pick)}"
        raise IndexError(msg)
    return np.asarray(pick.start + pick.step * entry, dtype=np.intp)


def _cover(pick: Pick) -> slice:
    """Bound a pick by the smallest slice that holds it."""
    if isinstance(pick, int):
        return slice(pick, pick + 1)
    if not len(pick):
        return slice(0, 0)
    if isinstance(pick, range):  # its ends are its extremes; min() would walk through all of it
        return slice(min(pick[0], pick[-1]), max(pick[0], pick[-1]) + 1)
    return slice(int(pick.min()), int(pick.max()) + 1)


def _within(pick: Pick, cover: slice) -> Entry | None:
    """Index of the pick inside what was read around it; None when it is all of that."""
    if isinstance(pick, int):
        return 0
    if isinstance(pick, np.ndarray):
        moved: _Places = pick - cover.start
        return moved
    if len(pick) < 2 or pick.step == 1:
        return None
    return slice(None, None, pick.step)


def _neighbours(pick: Pick) -> Iterator[Pick]:
    """Split picks into stretches that climb by one, in their own order."""
    numbers = np.asarray(pick, dtype=np.intp)
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    for start, stop in pairwise([0, *breaks.tolist(), len(numbers)]):
        first = int(numbers[start])
        yield range(first, first + stop - start)

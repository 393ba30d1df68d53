"""Where do the elements of an array lie in its file? The geometry of bytes, and nothing else.

    file   |header......|r0..........|r1..........|r2..........|
           ^offset=0    ^layout.offset             ^stop
    region (slice(1, 2), slice(2, 4)) owns two elements of r1; its span runs from the first byte
    of its first element to the last byte of its last one, gaps included.

A *region* is a tuple of slices, one per axis, each with ``0 <= start <= stop <= length`` and no
step. Axes are named in NumPy's order; the *slowest* axis is the one whose neighbours lie farthest
apart (axis 0 in C order, the last one in Fortran order).
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, SupportsIndex, TypeAlias, overload

import numpy as np

from mmchunks.errors import LayoutError
from mmchunks.files.runs import Runs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import EllipsisType

    from numpy.typing import DTypeLike

__all__ = [
    "PAGE",
    "Array",
    "ArrayModule",
    "Block",
    "Bytes",
    "DType",
    "Index",
    "Layout",
    "Numbers",
    "Order",
    "Region",
    "Span",
    "Subarray",
    "as_shape",
    "spelled_out",
]

Region: TypeAlias = tuple[slice, ...]
Order: TypeAlias = Literal["C", "F"]
DType: TypeAlias = np.dtype[Any]

_Entry: TypeAlias = "SupportsIndex | slice | EllipsisType | None"
Index: TypeAlias = "_Entry | tuple[_Entry, ...]"
"""What may stand between the brackets of an array; arrays, masks and names of fields do not."""

Block: TypeAlias = np.ndarray[Any, Any]
"""An array in the memory of this host."""

Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
"""Memory of this host, one axis of bytes."""

PAGE = 4096
"""Bytes of what kernels write back, and of what O_DIRECT asks for: offsets, lengths and addresses of
disks are multiples of 512 or of this. Larger pages (64 KiB on some arm64) are made of these."""

_LARGEST = 2**63 - 1  # what off_t and Py_ssize_t can count


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A half-open range of bytes of a file."""

    offset: int
    """First byte, counted from the start of the file."""

    nbytes: int
    """Length in bytes."""

    @property
    def stop(self) -> int:
        """The byte after the last one."""
        return self.offset + self.nbytes

    def pages(self, page: int) -> Span:
        """Round out to whole pages of `page` bytes.

        Examples
        --------
        >>> Span(offset=5000, nbytes=10).pages(4096)
        Span(offset=4096, nbytes=4096)
        """
        start = self.offset // page * page
        return Span(offset=start, nbytes=-(-self.stop // page) * page - start)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Shape, dtype and order of one array, and the byte at which it starts.

    Examples
    --------
    >>> layout = Layout(shape=(3, 4), dtype=np.dtype("<f4"), offset=128)
    >>> layout.nbytes, layout.strides
    (48, (16, 4))
    >>> layout[slice(1, 3), slice(0, 4)].span
    Span(offset=144, nbytes=32)
    """

    shape: tuple[int, ...]
    """Lengths of the axes, in NumPy order."""

    dtype: DType
    """Type of one element, as stored (byte order included)."""

    order: Order = "C"
    """``"C"``: the last axis is contiguous; ``"F"``: the first one is."""

    offset: int = 0
    """First byte of the data, counted from the start of the file."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(operator.index(n) for n in self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        object.__setattr__(self, "offset", operator.index(self.offset))
        if self.order not in {"C", "F"}:
            msg = f'order must be "C" or "F", got {self.order!r}'
            raise LayoutError(msg)
        if self.offset < 0:
            msg = f"offset must be >= 0 bytes, got {self.offset}"
            raise LayoutError(msg)
        if any(n < 0 for n in self.shape):
            msg = f"shape must hold no negative length, got {self.shape}"
            raise LayoutError(msg)
        if len(self.shape) > 64:
            msg = f"shape has {len(self.shape)} axes, NumPy arrays have at most 64"
            raise LayoutError(msg)
        if self.dtype.hasobject:
            msg = (
                f"dtype {self.dtype} holds Python objects, which have no bytes of their own in a "
                "file; store numbers, or fixed-length strings"
            )
            raise LayoutError(msg)
        # NumPy multiplies the lengths that are not zero, so (0, 2**62, 2**62) is refused as well.
        extent = math.prod(n for n in self.shape if n) * max(self.dtype.itemsize, 1)
        if self.offset + extent > _LARGEST:
            msg = f"shape {self.shape} of {self.dtype} takes more bytes than a file can have"
            raise LayoutError(msg)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.dtype.itemsize)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, header not counted."""
        return self.size * self.itemsize

    @property
    def stop(self) -> int:
        """The byte after the last element, counted from the start of the file."""
        return self.offset + self.nbytes

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes from the slowest to the fastest (contiguous) one."""
        axes = range(self.ndim)
        return tuple(axes) if self.order == "C" else tuple(reversed(axes))

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next along each axis."""
        strides = [0] * self.ndim
        step = self.itemsize
        for axis in reversed(self.axes):
            strides[axis] = step
            step *= self.shape[axis]
        return tuple(strides)

    @property
    def whole(self) -> Region:
        """The region that holds every element."""
        return tuple(slice(0, n) for n in self.shape)

    def region(self, index: Index) -> Region:
        """Turn what a user writes between brackets into a region.

        Parameters
        ----------
        index : None, Ellipsis, slice, or tuple of slice and Ellipsis
            Slices may be open, negative and out of bounds, as in NumPy; ``None`` (the whole
            argument, not an entry) means everything. Axes that are not named are taken whole.

        Returns
        -------
        tuple of slice
            One per axis, clipped to the shape, without steps.

        Raises
        ------
        LayoutError
            For a step, an integer, or more entries than axes.

        Examples
        --------
        >>> Layout(shape=(10, 4), dtype=np.dtype("u1")).region(slice(-3, None))
        (slice(7, 10, None), slice(0, 4, None))
        """
        if index is None:
            return self.whole
        try:
            entries = spelled_out(index, self.ndim)
        except IndexError as error:
            raise LayoutError(str(error)) from error
        if None in entries:
            msg = f"a region has no new axes, got {index!r}; index the block instead"
            raise LayoutError(msg)
        return tuple(
            _bounds(entry, length) for entry, length in zip(entries, self.shape, strict=True)
        )

    def __getitem__(self, region: Region) -> Subarray:
        """Describe one region, as `region` makes it: ``layout[region].span``."""
        return Subarray(layout=self, region=region)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subarray:
    """One region of a layout: its elements, and where their bytes lie.

    Examples
    --------
    >>> layout = Layout(shape=(3, 4, 5), dtype=np.dtype("u1"))
    >>> subarray = layout[slice(0, 2), slice(1, 3), slice(0, 5)]
    >>> subarray.shape, subarray.nbytes, subarray.span
    ((2, 2, 5), 20, Span(offset=5, nbytes=30))
    >>> subarray.runs
    Runs(offset=5, nbytes=10, counts=(2,), strides=(20,))
    """

    layout: Layout
    """The whole array."""

    region: Region
    """What of it; one slice per axis, clipped to the shape, without steps."""

    @property
    def dtype(self) -> DType:
        """Type of one element, as stored."""
        return self.layout.dtype

    @property
    def order(self) -> Order:
        """Which axis is contiguous, in the file and in a dense block."""
        return self.layout.order

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes of its block."""
        return tuple(part.stop - part.start for part in self.region)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements, gaps between them not counted."""
        return math.prod(self.shape) * self.layout.itemsize

    @property
    def span(self) -> Span:
        """Bytes from its first element to its last, gaps included."""
        layout, lengths = self.layout, self.shape
        start = layout.offset + sum(
            part.start * stride for part, stride in zip(self.region, layout.strides, strict=True)
        )
        if not layout.itemsize or 0 in lengths:
            return Span(offset=start, nbytes=0)
        reach = sum((n - 1) * stride for n, stride in zip(lengths, layout.strides, strict=True))
        return Span(offset=start, nbytes=reach + layout.itemsize)

    @property
    def contiguous(self) -> bool:
        """Whether its elements follow each other without a gap."""
        return self.span.nbytes == self.nbytes

    @property
    def runs(self) -> Runs:
        """Its contiguous pieces, as long as they can be made."""
        layout, lengths = self.layout, self.shape
        strides = layout.strides
        offset = self.span.offset
        nbytes = layout.itemsize
        if not nbytes or 0 in lengths:
            return Runs(offset=offset, nbytes=0, counts=(), strides=())
        counts: list[int] = []
        steps: list[int] = []
        # From the fastest axis outwards: as long as what was gathered reaches the next index of an
        # axis, that axis only makes the run longer; the first one that does not cuts it for good.
        for axis in reversed(layout.axes):
            if lengths[axis] == 1:
                continue
            if not counts and strides[axis] == nbytes:
                nbytes *= lengths[axis]
            else:
                counts.insert(0, lengths[axis])
                steps.insert(0, strides[axis])
        return Runs(offset=offset, nbytes=nbytes, counts=tuple(counts), strides=tuple(steps))


def spelled_out(index: object, ndim: int) -> list[Any]:
    """Write an index as one entry per axis, and its new axes: without ``...``, or its absence.

    Raises
    ------
    IndexError
        For two ``...``, or more entries than axes.

    Examples
    --------
    >>> spelled_out((..., 5), 3)
    [slice(None, None, None), slice(None, None, None), 5]
    """
    entries = index if isinstance(index, tuple) else (index,)
    # Compared by identity: an array among the entries would compare element by element.
    dots = [at for at, entry in enumerate(entries) if entry is Ellipsis]
    named = sum(entry is not None for entry in entries) - len(dots)
    if len(dots) > 1:
        msg = "an index may hold one ... only"
        raise IndexError(msg)
    if named > ndim:
        msg = f"index has {named} entries, the array has {ndim} axes"
        raise IndexError(msg)
    at = dots[0] if dots else len(entries)
    return [*entries[:at], *[slice(None)] * (ndim - named), *entries[at + 1 :]]


def _bounds(entry: object, length: int) -> slice:
    """Clip one entry of an index to ``0 <= start <= stop <= length``."""
    if not isinstance(entry, slice):
        msg = f"a region holds slices only, got {entry!r}; write slice(i, i + 1) for one index"
        raise LayoutError(msg)
    start, stop, step = entry.indices(length)
    if step != 1:
        msg = f"a region has no steps, got {entry!r}; read the range and step through the block"
        raise LayoutError(msg)
    return slice(start, max(start, stop))


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Read a shape as NumPy does: one number means one axis.

    Examples
    --------
    >>> as_shape(5), as_shape([2, 3])
    ((5,), (2, 3))
    """
    try:
        return (operator.index(shape),)  # type: ignore[arg-type]
    except TypeError:
        return tuple(operator.index(n) for n in shape)  # type: ignore[union-attr]


# ruff: disable[D102]  # NumPy documents what these are
class _Flags(Protocol):
    """How an array lies in memory."""

    @property
    def c_contiguous(self) -> bool: ...


class Array(Protocol):
    """What we ask of an array, be it NumPy's or CuPy's: where its elements lie, and views of them."""

    real: Any  # both are set where complex numbers are made of two arrays
    imag: Any

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def flags(self) -> _Flags: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: Index, /) -> Self: ...
    def __setitem__(self, index: Index, value: Self | complex, /) -> None: ...
    @overload
    def reshape(self, length: int, /, *lengths: int) -> Self: ...
    @overload
    def reshape(self, shape: Sequence[int], /) -> Self: ...
    @overload
    def transpose(self, axes: Sequence[int], /) -> Self: ...
    @overload
    def transpose(self, *axes: int) -> Self: ...
    def view(self, dtype: DTypeLike, /) -> Self: ...
    def copy(self) -> Self: ...
    def astype(
        self, dtype: DTypeLike, /, order: Literal["C", "F", "K"] = ..., *, copy: bool = ...
    ) -> Self: ...


class Numbers(Array, Protocol):
    """What we ask of arrays that are added up: NumPy's, or CuPy's, but those of one of them at a time."""

    def sum(self, *, axis: int) -> Self: ...
    def __add__(self, other: Self | complex, /) -> Self: ...
    def __sub__(self, other: Self | complex, /) -> Self: ...
    def __mul__(self, other: Self | complex, /) -> Self: ...
    def __truediv__(self, other: Self | complex, /) -> Self: ...
    def __pow__(self, other: float, /) -> Self: ...
    def __and__(self, other: int, /) -> Self: ...
    def __iadd__(self, other: Self | complex, /) -> Self: ...
    def __imul__(self, other: Self | complex, /) -> Self: ...
    def __itruediv__(self, other: Self | complex, /) -> Self: ...


class ArrayModule(Protocol):
    """What we ask of the module that makes arrays, NumPy or CuPy, where we are given it as `xp`."""

    def array(self, array: Array, /, *, order: Literal["C"], copy: bool) -> Array: ...
    def empty_like(self, array: Array, /, *, dtype: DType) -> Array: ...


# ruff: enable[D102]

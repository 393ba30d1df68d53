"""How does what a user assigns become the block of a region? As in NumPy's own assignment.

Shapes are brought together by views alone, so that a scalar may fill a region of any size; where
elements must be cast or moved, that happens later, a slab at a time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import LayoutError
from mmchunks.files.indexing import split_index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmchunks.files.layout import Block, DType, Index, Region, Subarray

__all__ = ["as_array", "castable", "check_cast", "fitted", "slabs", "split_region"]


def split_region(index: Index, shape: tuple[int, ...]) -> tuple[Region, tuple[int | slice, ...]]:
    """Split an index without steps into its region, and what drops the axes of its integers.

    Parameters
    ----------
    index : int, slice, Ellipsis or tuple of these
        As between the brackets of a NumPy array.
    shape : tuple of int
        Shape of the array.

    Returns
    -------
    region : tuple of slice
        One per axis of the array.
    pick : tuple of int or slice
        Index that makes the result out of the region's block.

    Raises
    ------
    LayoutError
        For steps and new axes.

    Examples
    --------
    >>> split_region(2, (5, 3))
    ((slice(2, 3, None), slice(0, 3, None)), (0, slice(None, None, 1)))
    """
    region, pick = split_index(index, shape)
    entries = [entry for entry in pick if isinstance(entry, int | slice)]
    steps = {entry.step for entry in entries if isinstance(entry, slice)}
    if None in pick or steps - {None, 1}:
        msg = f"a region has no steps and no new axes, got {index!r}; write a region for each"
        raise LayoutError(msg)
    return region, tuple(entries)


def as_array(block: Any, dtype: DType) -> Block:
    """Take what a user assigns as an array in host memory that may be cast to `dtype`.

    Parameters
    ----------
    block : array_like
        In the memory of this host.
    dtype : numpy.dtype
        What it will be cast to, by the rule "same_kind".

    Returns
    -------
    numpy.ndarray
        Not cast yet, unless it had no dtype of its own.

    Raises
    ------
    TypeError
        If a cast may lose what the block says.

    Examples
    --------
    >>> as_array([1, 2], np.dtype("u1"))
    array([1, 2], dtype=uint8)
    """
    own = hasattr(block, "dtype")
    array = np.asarray(block, None if own or not dtype.names else dtype)
    # Python's integers and strings have no width of their own: those that do not fit are refused.
    if not own and array.dtype.kind in "biuSU" and not _cuts_text(array.dtype, dtype):
        array = np.asarray(block, dtype)
    check_cast(array.dtype, dtype)
    return array


def check_cast(found: DType, dtype: DType) -> None:
    """Refuse a cast, from what a block is to what a file holds, that may lose what the block says.

    Raises
    ------
    TypeError
        If it is not `castable`.
    """
    if not castable(found, dtype):
        msg = (
            f"the file holds {dtype}, the block is {found}, of which something may be lost; "
            f"pass block.astype({str(dtype)!r}) if that is meant"
        )
        raise TypeError(msg)


def castable(found: DType, dtype: DType) -> bool:
    """Whether a cast is NumPy's "same_kind", and cuts no text short, which NumPy counts as that.

    Examples
    --------
    >>> castable(np.dtype("f8"), np.dtype("f4")), castable(np.dtype("U9"), np.dtype("U4"))
    (True, False)
    """
    return np.can_cast(found, dtype, casting="same_kind") and not _cuts_text(found, dtype)


def _cuts_text(found: DType, dtype: DType) -> bool:
    """Whether text of one dtype may be too long for another."""
    nbytes = {"U": 4, "S": 1}  # of a character
    if found.kind not in nbytes or dtype.kind not in nbytes:
        return False
    return found.itemsize // nbytes[found.kind] > dtype.itemsize // nbytes[dtype.kind]


def fitted(array: Block, region: Region, pick: tuple[int | slice, ...]) -> Block:
    """Broadcast an array to the block of a region: a view.

    Parameters
    ----------
    array : numpy.ndarray
        What was assigned.
    region, pick : tuple
        As `split_region` returned them.

    Returns
    -------
    numpy.ndarray
        One axis per axis of the region.

    Raises
    ------
    ValueError
        If the shapes do not go together.

    Examples
    --------
    >>> fitted(np.arange(3), *split_region((slice(1, 3), 0), (5, 3, 3))).shape
    (2, 1, 3)
    """
    lengths = [part.stop - part.start for part in region]
    dropped = tuple(axis for axis, entry in enumerate(pick) if not isinstance(entry, slice))
    shape = tuple(length for axis, length in enumerate(lengths) if axis not in dropped)
    extra = max(0, array.ndim - len(shape))  # NumPy lets go of leading axes of length 1
    if math.prod(array.shape[:extra]) == 1:
        array = array.reshape(array.shape[extra:])
    try:
        return np.expand_dims(np.broadcast_to(array, shape), dropped)
    except ValueError:
        msg = f"a block of shape {array.shape} does not go into a region of shape {shape}"
        raise ValueError(msg) from None


def slabs(subarray: Subarray, block: Block, *, nbytes: int) -> Iterator[tuple[Subarray, Block]]:
    """Cut a subarray and its block along the slowest axis.

    Parameters
    ----------
    subarray : Subarray
        What to cut.
    block : numpy.ndarray
        Its block.
    nbytes : int
        Upper bound of a slab in bytes of the file, if an index of the slowest axis takes no more.

    Yields
    ------
    subarray : Subarray
        A slab. None where there is no byte to write.
    block : numpy.ndarray
        A view of its part of the block.

    Examples
    --------
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(5, 2), dtype=np.dtype("u1"))
    >>> whole = layout[layout.whole]
    >>> [slab.region[0] for slab, _ in slabs(whole, np.zeros((5, 2)), nbytes=5)]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    total, layout, region = subarray.nbytes, subarray.layout, subarray.region
    if not total or not region:
        yield from [(subarray, block)] if total else []
        return
    axis = layout.axes[0]
    start, stop = region[axis].start, region[axis].stop
    rows = max(1, nbytes * (stop - start) // total)
    for first in range(start, stop, rows):
        last = min(first + rows, stop)
        yield (
            layout[(*region[:axis], slice(first, last), *region[axis + 1 :])],
            block[(slice(None),) * axis + (slice(first - start, last - start),)],
        )

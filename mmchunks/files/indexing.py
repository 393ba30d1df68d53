"""Which region must be mapped to answer a NumPy index? The region, and the index into its block.

index            array[10:2:-3, 5]
region           (slice(4, 11), slice(5, 6))     from the first element touched to the last
index in block   (slice(None, None, -3), 0)
"""

from __future__ import annotations

import operator
import reprlib
from types import EllipsisType
from typing import TYPE_CHECKING, SupportsIndex, TypeAlias

from mmchunks.files.layout import spelled_out

if TYPE_CHECKING:
    from mmchunks.files.layout import Index, Region

__all__ = ["split_index"]

_Pick: TypeAlias = int | slice | EllipsisType | None


def split_index(index: Index, shape: tuple[int, ...]) -> tuple[Region, tuple[_Pick, ...]]:
    """Split a basic index into the region it covers, and what it picks from that.

    Parameters
    ----------
    index : int, slice, Ellipsis, None, or tuple of these
        As between the brackets of a NumPy array.
    shape : tuple of int
        Shape of the array.

    Returns
    -------
    region : tuple of slice
        The smallest region that holds every element of the result.
    pick : tuple
        Index that makes the result out of the region's block, without a copy; a scalar where NumPy
        gives one, and an array without axes where it gives that.

    Raises
    ------
    IndexError
        For an integer out of bounds, too many entries, or arrays and masks.

    Examples
    --------
    >>> split_index((slice(10, 2, -3), 5), (20, 8))
    ((slice(4, 11, None), slice(5, 6, None)), (slice(None, None, -3), 0))
    """
    entries = spelled_out(index, len(shape))
    region: list[slice] = []
    pick: list[_Pick] = []
    for entry in entries:
        if entry is None:
            pick.append(None)
            continue
        axis = len(region)
        covered, picked = _split_entry(entry, shape[axis], axis)
        region.append(covered)
        pick.append(picked)
    if index is Ellipsis or (isinstance(index, tuple) and any(e is Ellipsis for e in index)):
        pick.append(Ellipsis)
    return tuple(region), tuple(pick)


def _split_entry(entry: SupportsIndex | slice, length: int, axis: int) -> tuple[slice, int | slice]:
    if isinstance(entry, slice):
        picked = range(*entry.indices(length))
        if not picked:
            return slice(0, 0), slice(None)
        first, last = sorted((picked[0], picked[-1]))
        return slice(first, last + 1), slice(None, None, picked.step)
    at = _integer(entry)
    if not -length <= at < length:
        msg = f"index {at} is out of bounds for axis {axis} with {length} elements"
        raise IndexError(msg)
    at %= length
    return slice(at, at + 1), 0


def _integer(entry: SupportsIndex) -> int:
    try:
        if not isinstance(entry, bool):  # NumPy takes True for a mask
            return operator.index(entry)
    except TypeError:
        pass
    msg = f"an index holds integers, slices and ..., got {reprlib.repr(entry)}; index the block instead"
    raise IndexError(msg)

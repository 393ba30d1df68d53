"""How do bytes in memory become the block of a region? Views only, nothing is copied.

    span of a region in the file     |aaaa....|bbbb....|cccc|     strided: the gaps stay
    its dense stream                 |aaaa|bbbb|cccc|             dense: one run after another

NumPy turns the lengths of a sub-array dtype into further axes of an array; so do these views.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.layout import Layout, Region

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["borrowed", "dense", "flattened", "strided"]


class _Lease:
    """What NumPy keeps alive as the base of every view of some memory."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, address: int, nbytes: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
        }


def borrowed(
    address: int, nbytes: int, release: Callable[..., Any], *arguments: Any
) -> np.ndarray[Any, Any]:
    """Show memory that is not NumPy's own, until the last view of it dies.

    Parameters
    ----------
    address : int
        Where the memory begins. It must be readable and writable.
    nbytes : int
        How much there is, in bytes, more than 0.
    release : callable
        Called once, with `arguments`, when nothing views the memory any more: in whatever thread
        that happens, and not at the end of the process.
    *arguments : Any
        For `release`.

    Returns
    -------
    numpy.ndarray
        One axis of uint8, writable. Nobody can take the memory away under it.
    """
    lease = _Lease(address, nbytes)
    weakref.finalize(lease, release, *arguments).atexit = False
    return np.asarray(lease)


def strided(memory: np.ndarray[Any, Any], layout: Layout, region: Region) -> np.ndarray[Any, Any]:
    """View the bytes of a region's span as its block.

    Parameters
    ----------
    memory : numpy.ndarray
        One axis of uint8 that begins with the first byte of ``layout.span(region)`` and holds all
        of it. The view keeps it alive.
    layout : Layout
        Where the elements lie.
    region : tuple of slice
        The region that `memory` holds.

    Returns
    -------
    numpy.ndarray
        The block, with the strides of the layout.

    Examples
    --------
    >>> layout = Layout(shape=(2, 3), dtype=np.dtype("u1"))
    >>> strided(np.arange(5, dtype="u1"), layout, (slice(0, 2), slice(0, 2)))
    array([[0, 1],
           [3, 4]], dtype=uint8)
    """
    element = np.empty((), layout.dtype)  # a sub-array dtype shows its axes here
    # Of an array, unlike of a map, ndarray(buffer=...) keeps what lies under it alive.
    return np.ndarray(
        layout.block_shape(region) + element.shape,
        element.dtype,
        buffer=memory,
        strides=layout.strides + element.strides,
    )


def dense(memory: np.ndarray[Any, Any], layout: Layout, region: Region) -> np.ndarray[Any, Any]:
    """View the dense byte stream of a region as its block, in the order of the layout.

    Parameters
    ----------
    memory : numpy.ndarray
        One axis of uint8, of ``layout.region_nbytes(region)`` or more. The view keeps it alive.
    layout : Layout
        Where the elements lie in the file.
    region : tuple of slice
        The region that `memory` holds, or will hold.

    Returns
    -------
    numpy.ndarray
        The block, without gaps.
    """
    packed = Layout(
        shape=layout.block_shape(region), dtype=layout.dtype, order=layout.order, offset=0
    )
    return strided(memory, packed, packed.whole)


def flattened(block: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """View a dense block as the bytes of its stream: the inverse of `dense`.

    Parameters
    ----------
    block : numpy.ndarray
        A block without gaps, in the order of the layout.
    layout : Layout
        The layout that the block was cut from.

    Returns
    -------
    numpy.ndarray
        One axis of uint8 that shares the block's memory.
    """
    stream = block.transpose(*layout.axes, *range(layout.ndim, block.ndim))
    assert stream.flags.c_contiguous
    return stream.reshape(-1).view(np.uint8)

"""How do bytes in memory become the block of a region? Views only, nothing is copied.

    span of a region in the file     |aaaa....|bbbb....|cccc|     strided: the gaps stay
    its dense stream                 |aaaa|bbbb|cccc|             dense: one run after another

NumPy turns the lengths of a sub-array dtype into further axes of an array; so do these views.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mmchunks.layout import Layout, Region

__all__ = ["dense", "flattened", "strided"]


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

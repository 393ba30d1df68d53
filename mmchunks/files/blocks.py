"""How do bytes in memory become the block of a region? Views of them, in memory that is used again.

    span of a region in the file     |aaaa....|bbbb....|cccc|     strided: the gaps stay
    its dense stream                 |aaaa|bbbb|cccc|             dense: one run after another

Nothing is copied here. NumPy turns the lengths of a sub-array dtype into further axes of an array;
so do these views.

The first touch of fresh memory costs as much time as reading into it. Large buffers therefore go
back to a pool when the last view of them dies, and the next block of that size gets them, pages
and all. The pool belongs to the process, and what lies idle in it is bounded.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np

from mmchunks.files.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mmchunks.files.layout import Block, Bytes, DType, Order, Subarray

__all__ = ["Pool", "borrowed", "dense", "flattened", "strided", "take"]


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
    address: int, nbytes: int, release: Callable[..., object], *arguments: object
) -> Bytes:
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
    *arguments : object
        For `release`.

    Returns
    -------
    numpy.ndarray
        One axis of uint8, writable. Nobody can take the memory away under it.
    """
    lease = _Lease(address, nbytes)
    weakref.finalize(lease, release, *arguments).atexit = False
    return np.asarray(lease)


def strided(memory: Bytes, subarray: Subarray) -> Block:
    """View the bytes of a region's span as its block.

    Parameters
    ----------
    memory : numpy.ndarray
        One axis of uint8 that begins with the first byte of the subarray's span and holds all of
        it. The view keeps it alive.
    subarray : Subarray
        What `memory` holds.

    Returns
    -------
    numpy.ndarray
        The block, with the strides of the layout.

    Examples
    --------
    >>> layout = Layout(shape=(2, 3), dtype=np.dtype("u1"))
    >>> strided(np.arange(5, dtype="u1"), layout[slice(0, 2), slice(0, 2)])
    array([[0, 1],
           [3, 4]], dtype=uint8)
    """
    # A sub-array dtype shows its axes here. Not np.empty, which makes U1 of U0.
    element: Block = np.ndarray((), subarray.dtype)
    # Of an array, unlike of a map, ndarray(buffer=...) keeps what lies under it alive.
    return np.ndarray(
        subarray.shape + element.shape,
        element.dtype,
        buffer=memory,
        strides=subarray.layout.strides + element.strides,
    )


def dense(memory: Bytes, subarray: Subarray) -> Block:
    """View the dense byte stream of a region as its block, in the order of the layout.

    Parameters
    ----------
    memory : numpy.ndarray
        One axis of uint8, of ``subarray.nbytes`` or more. The view keeps it alive.
    subarray : Subarray
        What `memory` holds, or will hold.

    Returns
    -------
    numpy.ndarray
        The block, without gaps.
    """
    packed = Layout(shape=subarray.shape, dtype=subarray.dtype, order=subarray.order)
    return strided(memory, packed[packed.whole])


def flattened(block: Block, layout: Layout) -> Bytes:
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


_HUGE_NBYTES = 2 << 20
_IDLE_NBYTES = 256 << 20  # four blocks of 64 MiB


class Pool:
    """Buffers that wait to be used again.

    Notes
    -----
    `give` runs whenever a block dies: in any thread, and in the middle of `lend` where a garbage
    collection begins there. So it never waits for the lock. A buffer that comes at such a moment
    is freed instead of kept.
    """

    def __init__(self, *, idle_nbytes: int) -> None:
        self._limit_nbytes = idle_nbytes
        self._lock = threading.Lock()
        self._idle: list[mmap.mmap] = []

    @property
    def idle_nbytes(self) -> int:
        """Bytes of the buffers that wait."""
        return sum(map(len, self._idle))

    def lend(self, nbytes: int) -> Bytes:
        """Give a buffer on a page boundary, with whatever bytes it was left with.

        Parameters
        ----------
        nbytes : int
            Bytes that are needed, more than 0.

        Returns
        -------
        numpy.ndarray
            One axis of `nbytes` uint8. When it and all of its views are gone, the buffer is back.
        """
        slab_nbytes = -(-nbytes // _HUGE_NBYTES) * _HUGE_NBYTES
        slab = self._find(slab_nbytes) or _slab(slab_nbytes)
        address = np.frombuffer(slab, np.uint8).ctypes.data
        return borrowed(address, nbytes, self.give, slab)

    def give(self, slab: mmap.mmap) -> None:
        """Take a buffer back; the oldest ones go when too much lies idle.

        Parameters
        ----------
        slab : mmap.mmap
            A buffer that nobody uses any more.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            self._idle.append(slab)
            while self.idle_nbytes > self._limit_nbytes:
                del self._idle[0]
        finally:
            self._lock.release()

    def _find(self, nbytes: int) -> mmap.mmap | None:
        with self._lock:
            for index, slab in enumerate(self._idle):
                if len(slab) == nbytes:
                    return self._idle.pop(index)
        return None


def _slab(nbytes: int) -> mmap.mmap:
    slab = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        slab.madvise(mmap.MADV_HUGEPAGE)
    return slab


_pool = Pool(idle_nbytes=_IDLE_NBYTES)


def _forget() -> None:
    """Begin anew in a forked child: its parent may have held the lock in that moment."""
    global _pool  # noqa: PLW0603  # one pool a process
    _pool = Pool(idle_nbytes=_IDLE_NBYTES)


os.register_at_fork(after_in_child=_forget)


def take(shape: Sequence[int], dtype: DType, order: Order) -> Block:
    """Give a block with arbitrary contents, in memory that was used before where there is some.

    Parameters
    ----------
    shape : sequence of int
        Lengths of the axes.
    dtype : numpy.dtype
        Type of one element. The axes of a sub-array dtype are added to the shape.
    order : {"C", "F"}
        Which axis is contiguous.

    Returns
    -------
    numpy.ndarray
        The block, on a page boundary if it is large. Its memory is used again when the last view
        of it is gone.

    Examples
    --------
    >>> take((2, 3), np.dtype("f4"), "F").strides
    (4, 8)
    """
    layout = Layout(shape=tuple(shape), dtype=dtype, order=order)
    # Small blocks are left to the allocator of the C library, which keeps what it got.
    small = layout.nbytes < _HUGE_NBYTES // 2
    memory = np.empty(layout.nbytes, np.uint8) if small else _pool.lend(layout.nbytes)
    return dense(memory, layout[layout.whole])

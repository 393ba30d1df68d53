"""Where does a block that is read, not mapped, lie? In memory that earlier blocks have used.

The first touch of fresh memory costs as much time as reading into it. Large buffers therefore go
back to a pool when the last view of them dies, and the next block of that size gets them, pages
and all. The pool belongs to the process, and what lies idle in it is bounded.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.blocks import borrowed, dense
from mmchunks.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mmchunks.layout import Order

__all__ = ["Pool", "take"]

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

    def lend(self, nbytes: int) -> np.ndarray[Any, Any]:
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


def take(shape: Sequence[int], dtype: np.dtype[Any], order: Order) -> np.ndarray[Any, Any]:
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
    return dense(memory, layout, layout.whole)

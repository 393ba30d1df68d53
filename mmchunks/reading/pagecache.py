"""How much of a file is in memory already? Ask the kernel's page cache, without reading."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import TYPE_CHECKING

import numpy as np

from mmchunks.files.mapping import MAP_FAILED, libc

if TYPE_CHECKING:
    from mmchunks.files.layout import Span

__all__ = ["evict", "resident_fraction"]

_CACHESTAT = 451  # the same number on every architecture that Linux 6.5 or newer runs on, but alpha
_WINDOW_NBYTES = 1 << 30  # mincore(2) wants a byte of memory for every page

libc.syscall.restype = ctypes.c_long


def resident_fraction(fd: int, span: Span) -> float | None:
    """Tell which part of a span a map could show without waiting for the disk.

    Parameters
    ----------
    fd : int
        The file, open for reading.
    span : Span
        The bytes that are asked about; within the file.

    Returns
    -------
    float or None
        Between 0 and 1, counted in pages; None where the kernel does not say.
    """
    if not span.nbytes:
        return 1.0
    pages = span.pages(mmap.PAGESIZE)
    count = _by_cachestat(fd, pages)
    if count is None and _may_ask_mincore(fd):
        count = _by_mincore(fd, pages)
    return None if count is None else min(1.0, count * mmap.PAGESIZE / pages.nbytes)


def evict(fd: int, span: Span) -> None:
    """Drop the clean pages of a span, for whoever wants to measure a cold read.

    Parameters
    ----------
    fd : int
        The file, open for reading.
    span : Span
        The bytes to drop. Pages that are mapped or not yet written stay.
    """
    os.posix_fadvise(fd, span.offset, span.nbytes, os.POSIX_FADV_DONTNEED)


def _by_cachestat(fd: int, pages: Span) -> int | None:
    asked = (ctypes.c_uint64 * 2)(pages.offset, pages.nbytes)
    found = (ctypes.c_uint64 * 5)()  # cached, dirty, under writeback, evicted, recently evicted
    if libc.syscall(_CACHESTAT, fd, asked, found, 0):
        return None
    return int(found[0])


def _may_ask_mincore(fd: int) -> bool:
    """Of files that one neither owns nor may write, mincore(2) calls every page resident."""
    return os.fstat(fd).st_uid == os.geteuid() or os.access(f"/proc/self/fd/{fd}", os.W_OK)


def _by_mincore(fd: int, pages: Span) -> int | None:
    count = 0
    for offset in range(pages.offset, pages.stop, _WINDOW_NBYTES):
        nbytes = min(_WINDOW_NBYTES, pages.stop - offset)
        address = libc.mmap(None, nbytes, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
        if address == MAP_FAILED:
            return None
        resident = np.zeros(nbytes // mmap.PAGESIZE, np.uint8)
        failed = libc.mincore(address, nbytes, resident.ctypes.data)
        libc.munmap(address, nbytes)
        if failed:
            return None
        count += int(np.count_nonzero(resident & 1))
    return count

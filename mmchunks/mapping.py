"""How does one region of a file become a block without a copy? By a private map of its pages.

    file       |.....page.....|.....page.....|.....page.....|.....page.....|
    region                 |<- span ->|
    the map    |<- skip ->|<- span ->|

Only the pages under the region are mapped. The map is private and copy-on-write: blocks are
writable, and the file never changes. It belongs to its block and goes with the block's last view.

A map follows the file it was made from. Once it is deleted or replaced, the old bytes stay
readable. If another process *truncates* it while a block lives, touching a page beyond the new
end kills the reader with SIGBUS; no check can prevent that. Reading (``io="pread"``) does.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import resource
from typing import Any

import numpy as np

from mmchunks.blocks import strided
from mmchunks.descriptors import path_of, require
from mmchunks.errors import StaleFileError
from mmchunks.layout import Layout, Region, Span

__all__ = ["map_region"]

# Linux numbers that Python 3.11's mmap module does not name.
_MAP_FIXED = 0x10
_MAP_NORESERVE = 0x4000
_MADV_POPULATE_READ = 22
_MLOCK_ONFAULT = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]  # fmt: skip
_libc.mlock2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def map_region(
    fd: int,
    layout: Layout,
    region: Region,
    *,
    populate: bool = False,
    willneed: bool = False,
    hugepage: bool = False,
    lock: bool = False,
) -> np.ndarray[Any, Any]:
    """Map one region, privately and copy-on-write.

    Parameters
    ----------
    fd : int
        The file, open for reading. It may be closed afterwards.
    layout : Layout
        Where the elements lie in the file.
    region : tuple of slice
        What to map, as ``layout.region`` makes it.
    populate : bool
        Bring every page in now. This also finds out whether they can be read at all, without the
        signal that touching them would raise.
    willneed : bool
        Ask the kernel to begin reading ahead, and do not wait.
    hugepage : bool
        Ask for huge pages. File systems that have none ignore it.
    lock : bool
        Keep the pages in memory: they are brought in, and never paged out.

    Returns
    -------
    numpy.ndarray
        The block, writable. It owns its map.

    Raises
    ------
    StaleFileError
        If the file ends before the region does.
    OSError
        If the kernel refuses the map, or to lock it.
    """
    span = layout.span(region)
    if not span.nbytes:
        return np.zeros(layout.block_shape(region), layout.dtype, layout.order)
    require(fd, span.stop)
    start = span.pages(mmap.ALLOCATIONGRANULARITY).offset
    memory = _private_map(fd, Span(offset=start, nbytes=span.stop - start))
    if hugepage:
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    if willneed:
        memory.madvise(mmap.MADV_WILLNEED)
    if lock:
        _lock(fd, memory)
    if populate or lock:
        _populate(fd, memory)
    # frombuffer, not ndarray(buffer=...): only the former keeps the map from being closed under
    # a live view, which would crash the process.
    flat = np.frombuffer(memory, np.uint8, offset=span.offset - start)
    return strided(flat, layout, region)


def _private_map(fd: int, span: Span) -> mmap.mmap:
    """Map the bytes of `span` into a fresh address range that the returned object owns.

    ``mmap.mmap(fd, ...)`` keeps a duplicate of `fd` for as long as it lives (before Python 3.13
    always), so that a thousand blocks exhaust the usual limit of 1024 open files. The range is
    therefore made without a file, and the file is mapped over it.

    Without MAP_NORESERVE the kernel counts a private writable map as if all of it were to be
    copied, and refuses one that is larger than memory.
    """
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
    memory = mmap.mmap(-1, span.nbytes, flags | mmap.MAP_ANONYMOUS, protection)
    mapped = _libc.mmap(
        _address(memory), span.nbytes, protection, flags | _MAP_FIXED, fd, span.offset
    )
    if mapped == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        raise OSError(number, f"{path_of(fd)}: cannot be mapped, {os.strerror(number)}")
    return memory


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _populate(fd: int, memory: mmap.mmap) -> None:
    """Bring the pages in for reading.

    MAP_POPULATE would do it for writing, which copies every page of a private map.
    """
    try:
        memory.madvise(_MADV_POPULATE_READ)
    except OSError as error:
        if error.errno == errno.EFAULT:
            msg = (
                f"{path_of(fd)}: its pages cannot be read; it was truncated while it was being "
                "mapped, or its disk fails: open it again"
            )
            raise StaleFileError(msg) from error
        if error.errno != errno.EINVAL:  # EINVAL: Linux before 5.14 does not know it
            raise


def _lock(fd: int, memory: mmap.mmap) -> None:
    """Keep in memory what is brought in; plain mlock(2) would copy every page, as MAP_POPULATE."""
    if _libc.mlock2(_address(memory), len(memory), _MLOCK_ONFAULT) == 0:
        return
    number = ctypes.get_errno()
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    msg = (
        f"{path_of(fd)}: cannot lock {len(memory):,} bytes in memory, this process may lock "
        f"{limit:,} in all (RLIMIT_MEMLOCK); raise it with 'ulimit -l', or map less at once"
    )
    raise OSError(number, msg)

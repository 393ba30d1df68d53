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

import ctypes
import errno
import functools
import mmap
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np

from mmchunks.errors import StaleFileError, os_error
from mmchunks.files.blocks import borrowed, strided
from mmchunks.files.identity import path_of, require
from mmchunks.files.layout import Layout, Region, Span

__all__ = ["map_region"]

# Linux numbers that Python 3.11's mmap module does not name.
_MAP_NORESERVE = 0x4000
_MADV_POPULATE_READ = 22
_MLOCK_ONFAULT = 1

# One map of so many is left for the memory of Python, which fails anywhere when there is none.
_SPARE_MAPS = 8

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.mlock2.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


_live: set[int] = set()  # addresses of the maps of live blocks; changed by one bytecode, so safely


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
        _advise(memory, mmap.MADV_HUGEPAGE)
    if willneed:
        _advise(memory, mmap.MADV_WILLNEED)
    if lock:
        _lock(fd, memory)
    if populate or lock:
        _populate(fd, memory)
    return strided(memory[span.offset - start :], layout, region)


def _private_map(fd: int, span: Span) -> np.ndarray[Any, Any]:
    """Map the bytes of `span`, until the last view of them dies.

    Not by ``mmap.mmap``: that keeps a duplicate of `fd` for as long as it lives (before Python
    3.13 always), so that a thousand blocks exhaust the usual limit of 1024 open files. And it can
    be closed under a view.

    The kernel chooses the address: it knows which one lets huge pages of the page cache be mapped
    in one piece. At any other a warm map was four times slower. Without MAP_NORESERVE it counts a
    private map as if all of it were to be copied, and refuses one that is larger than memory.
    """
    _require_room(fd)
    flags = mmap.MAP_PRIVATE | _MAP_NORESERVE
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    address = _libc.mmap(None, span.nbytes, protection, flags, fd, span.offset)
    if address == ctypes.c_void_p(-1).value:
        number = ctypes.get_errno()
        reason = os.strerror(number).lower()
        msg = f'{path_of(fd)}: cannot be mapped ({reason}); read it instead, with io="pread"'
        raise os_error(number, msg)
    _live.add(address)
    return borrowed(address, span.nbytes, _unmap, address, span.nbytes)


def _unmap(address: int, nbytes: int) -> None:
    _live.discard(address)  # first: as soon as it is free, another thread may be given the address
    _libc.munmap(address, nbytes)


def _require_room(fd: int) -> None:
    """Leave an eighth of the maps that the kernel grants a process to everything else in it."""
    limit = _most_maps()
    if len(_live) >= limit - limit // _SPARE_MAPS:
        msg = (
            f"{path_of(fd)}: cannot be mapped, {len(_live):,} blocks that live are maps already, of "
            f'{limit:,} for all purposes (vm.max_map_count); read it instead, with io="pread"'
        )
        raise os_error(errno.ENOMEM, msg)


@functools.cache
def _most_maps() -> int:
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return 65530  # the kernel's own default


def _advise(memory: np.ndarray[Any, Any], advice: int) -> int:
    """Give the kernel advice on a map; return the error number, 0 if there was none."""
    failed = _libc.madvise(memory.ctypes.data, len(memory), advice)
    return ctypes.get_errno() if failed else 0


def _populate(fd: int, memory: np.ndarray[Any, Any]) -> None:
    """Bring the pages in for reading.

    MAP_POPULATE would do it for writing, which copies every page of a private map.
    """
    number = _advise(memory, _MADV_POPULATE_READ)
    if number == errno.EFAULT:
        msg = (
            f"{path_of(fd)}: its pages cannot be read; it was truncated while it was being mapped, "
            "or its disk fails: open it again"
        )
        raise StaleFileError(msg)
    if number not in {0, errno.EINVAL}:  # EINVAL: Linux before 5.14 does not know it
        raise os_error(
            number, f"{path_of(fd)}: cannot be brought in, {os.strerror(number).lower()}"
        )


def _lock(fd: int, memory: np.ndarray[Any, Any]) -> None:
    """Keep in memory what is brought in; plain mlock(2) would copy every page, as MAP_POPULATE."""
    if _libc.mlock2(memory.ctypes.data, len(memory), _MLOCK_ONFAULT) == 0:
        return
    number = ctypes.get_errno()
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    msg = (
        f"{path_of(fd)}: cannot lock {len(memory):,} bytes in memory, this process may lock "
        f"{limit:,} in all (RLIMIT_MEMLOCK); raise it with 'ulimit -l', or map less at once"
    )
    raise os_error(number, msg)

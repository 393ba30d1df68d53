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
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mmchunks.errors import os_error
from mmchunks.files.blocks import borrowed, strided
from mmchunks.files.identity import path_of, require
from mmchunks.files.layout import Span

if TYPE_CHECKING:
    from mmchunks.files.layout import Block, Bytes, Subarray

__all__ = ["MAP_FAILED", "REFUSALS", "libc", "map_region"]

_MAP_NORESERVE = 0x4000  # a Linux number that the mmap module of Python 3.11 does not name

# One map of so many is left for the memory of Python, which fails anywhere when there is none.
_SPARE_MAPS = 8

libc = ctypes.CDLL(None, use_errno=True)
"""The C library, with the signatures of what maps memory."""

libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
]  # fmt: skip
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]

MAP_FAILED = ctypes.c_void_p(-1).value

_live: set[int] = set()  # addresses of the maps of live blocks; changed by one bytecode, so safely


REFUSALS = frozenset(
    {
        errno.ENODEV,
        errno.ENOMEM,
        errno.EACCES,
        errno.EPERM,
        errno.EINVAL,
        errno.ENOSYS,
        errno.EAGAIN,
    }
)
"""What a kernel says that has no map to give, of this file or in all: a read may do all the same."""


def map_region(fd: int, subarray: Subarray) -> Block:
    """Map one region, privately and copy-on-write.

    Parameters
    ----------
    fd : int
        The file, open for reading. It may be closed afterwards.
    subarray : Subarray
        What to map.

    Returns
    -------
    numpy.ndarray
        The block, writable. It owns its map.

    Raises
    ------
    StaleFileError
        If the file ends before the region does.
    OSError
        If the kernel refuses the map.

    Notes
    -----
    No flags: of a bare map's speed, cold, ``MADV_HUGEPAGE`` and ``MADV_WILLNEED`` ran at 1.07 and
    1.02, ``MAP_POPULATE``, ``MADV_POPULATE_READ`` and ``mlock`` at 0.89 to 0.91; warm, all at 0.98
    to 1.02 (``benchmarks/read_paths.py``, where they stay to be measured elsewhere).
    """
    span = subarray.span
    if not span.nbytes:
        return np.ndarray(subarray.shape, subarray.dtype, order=subarray.order)
    require(fd, span.stop)
    start = span.pages(mmap.ALLOCATIONGRANULARITY).offset
    memory = _private_map(fd, Span(offset=start, nbytes=span.stop - start))
    return strided(memory[span.offset - start :], subarray)


def _private_map(fd: int, span: Span) -> Bytes:
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
    address = libc.mmap(None, span.nbytes, protection, flags, fd, span.offset)
    if address == MAP_FAILED:
        number = ctypes.get_errno()
        reason = os.strerror(number).lower()
        msg = f'{path_of(fd)}: cannot be mapped ({reason}); read it instead, with io="pread"'
        raise os_error(number, msg)
    _live.add(address)
    return borrowed(address, span.nbytes, _unmap, address, span.nbytes)


def _unmap(address: int, nbytes: int) -> None:
    _live.discard(address)  # first: as soon as it is free, another thread may be given the address
    libc.munmap(address, nbytes)


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

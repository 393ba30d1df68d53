"""How do the bytes of a region get from a file into memory that is already there? By preadv(2).

A region is read as its *dense stream*: its runs, one after another, without the gaps.

    file     |..|aaaa|....|bbbb|....|cccc|......|dddd|....|eeee|....|ffff|..|
    stream   |aaaa|bbbb|cccc|dddd|eeee|ffff|

Where the gaps are short, a call for every run would cost more than the bytes between them: the
runs are then read together, gaps included, into a small scratch buffer, and gathered from there.

Reading cannot be killed by another process that truncates the file, as a live map can.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from mmchunks.errors import StaleFileError
from mmchunks.files.blocks import flattened
from mmchunks.files.identity import path_of, require
from mmchunks.files.layout import PAGE
from mmchunks.files.runs import boxes, joined, offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mmchunks.files.layout import Block, Bytes, Subarray
    from mmchunks.files.runs import Runs

__all__ = ["read_range", "read_region", "warm"]

_SCRATCH_NBYTES = 4 << 20
# A call costs about as much as copying this many bytes out of the page cache.
_SHORT_GAP_NBYTES = 16 << 10

_scratch = threading.local()

if TYPE_CHECKING:
    _Fill: TypeAlias = Callable[[int, Bytes], None]


def read_region(
    fd: int,
    subarray: Subarray,
    out: Block,
    *,
    direct: bool,
    threads: int,
    piece_nbytes: int,
) -> None:
    """Read one region into `out`.

    Parameters
    ----------
    fd : int
        The file, open for reading.
    subarray : Subarray
        What to read.
    out : numpy.ndarray
        The block to fill: of the region's shape and dtype, without gaps, in the layout's order.
    direct : bool
        Bypass the page cache (O_DIRECT). A file system that refuses is read through the page
        cache, with a warning.
    threads : int
        How many threads read. More than two slow each other down on one file.
    piece_nbytes : int
        Bytes of one call; 4 MiB to 64 MiB run at the speed of a disk.

    Raises
    ------
    StaleFileError
        If the file ends before the region does.
    """
    runs = subarray.runs
    if not len(runs):
        return
    require(fd, subarray.span.stop)
    stream = flattened(out, subarray.layout)

    def read_piece(start: int) -> None:
        _read_stream(fill, runs, start, stream[start : start + piece_nbytes])

    starts = range(0, len(stream), piece_nbytes)
    with _filler(fd, direct=direct) as fill:
        if threads == 1 or len(starts) == 1:
            for start in starts:
                read_piece(start)
        else:
            with ThreadPoolExecutor(threads) as executor:
                list(executor.map(read_piece, starts))


def read_range(fd: int, runs: Runs, start: int, buffer: memoryview) -> None:
    """Fill `buffer` with a range of a region's dense stream.

    Parameters
    ----------
    fd : int
        The file, open for reading.
    runs : Runs
        The runs of the region, as its subarray describes them.
    start : int
        First byte to read, counted in the dense stream.
    buffer : memoryview
        Memory to fill, of bytes. ``start + len(buffer)`` is at most the length of the stream.

    Raises
    ------
    StaleFileError
        If the file ends before the range does.
    """
    fill = partial(_fill_buffered, fd)
    _read_stream(fill, runs, start, np.frombuffer(buffer, np.uint8))


def warm(fd: int, subarray: Subarray) -> None:
    """Pull one region into the page cache, through a small buffer that is used again and again.

    A map that is made afterwards costs no disk waits, and no fresh memory at all.

    Parameters
    ----------
    fd : int
        The file, open for reading.
    subarray : Subarray
        What to bring in.

    Raises
    ------
    StaleFileError
        If the file ends before the region does.
    """
    runs, nbytes = subarray.runs, subarray.nbytes
    sink = _reused("sink", min(nbytes, _SCRATCH_NBYTES))
    fill = partial(_fill_buffered, fd)
    for start in range(0, nbytes, _SCRATCH_NBYTES):
        _read_stream(fill, runs, start, sink[: nbytes - start])


def _read_stream(fill: _Fill, runs: Runs, start: int, out: Bytes) -> None:
    """Fill `out` with the dense stream from byte `start` on."""
    done = 0
    for box in boxes(runs, start, start + len(out)):
        nbytes = len(box) * box.nbytes
        _read_box(fill, box, out[done : done + nbytes])
        done += nbytes


def _read_box(fill: _Fill, box: Runs, out: Bytes) -> None:
    """Read a box of runs: the axes with short gaps together, the others one by one."""
    outer, group = joined(box, gap_nbytes=_SHORT_GAP_NBYTES, reach_nbytes=_SCRATCH_NBYTES)
    for offset, part in zip(offsets(outer), out.reshape(len(outer), -1), strict=True):
        if group.counts:
            _gather(fill, offset, group, part)
        else:
            fill(offset, part)


def _gather(fill: _Fill, offset: int, group: Runs, out: Bytes) -> None:
    """Read a group of runs with the gaps between them, as many rows at once as the scratch holds."""
    item = np.dtype((np.void, group.nbytes))
    target = out.view(item).reshape(group.counts)
    stride = group.strides[0]
    reach = group.nbytes + sum(
        (count - 1) * step for count, step in zip(group.counts[1:], group.strides[1:], strict=True)
    )
    rows = 1 + max(0, _SCRATCH_NBYTES - reach) // stride
    for row in range(0, len(target), rows):
        part = target[row : row + rows]
        scratch = _reused("scratch", (len(part) - 1) * stride + reach)
        fill(offset + row * stride, scratch)
        part[...] = np.ndarray(part.shape, item, buffer=scratch, strides=group.strides)


@contextmanager
def _filler(fd: int, *, direct: bool) -> Iterator[_Fill]:
    """Give the function that fills memory with the bytes from an offset on."""
    if not direct:
        yield partial(_fill_buffered, fd)
        return
    own = _open_direct(fd)
    try:
        yield partial(_fill_direct, own)
    finally:
        os.close(own)


def _fill_buffered(fd: int, offset: int, target: Bytes) -> None:
    done = 0
    while done < len(target):
        count = os.preadv(fd, [target[done:].data], offset + done)
        if not count:
            raise StaleFileError(_short(fd, offset + len(target), offset + done))
        done += count


def _fill_direct(fd: int, offset: int, target: Bytes) -> None:
    """Read whole pages: straight into `target` where it lies on them, else by the scratch."""
    done = 0
    while done < len(target):
        rest = target[done:]
        skip = (offset + done) % PAGE
        straight = not skip and rest.ctypes.data % PAGE == 0 and len(rest) >= PAGE
        wanted = len(rest) // PAGE * PAGE if straight else _pages_nbytes(skip + len(rest))
        pages = rest[:wanted] if straight else _reused("pages", min(wanted, _SCRATCH_NBYTES))
        count = min(_read_pages(fd, offset + done - skip, pages) - skip, len(rest))
        if count <= 0:
            raise StaleFileError(_short(fd, offset + len(target), offset + done))
        if not straight:
            rest[:count] = pages[skip : skip + count]
        done += count


def _pages_nbytes(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE


def _open_direct(fd: int) -> int:
    path = f"/proc/self/fd/{fd}"
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        _warn_refused(fd)
        return os.open(path, os.O_RDONLY)


def _read_pages(fd: int, offset: int, pages: Bytes) -> int:
    try:
        return os.preadv(fd, [pages.data], offset)
    except OSError as error:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        if error.errno != errno.EINVAL or not flags & os.O_DIRECT:
            raise
        _warn_refused(fd)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)
        return os.preadv(fd, [pages.data], offset)


def _warn_refused(fd: int) -> None:
    msg = f'{path_of(fd)}: its file system refuses O_DIRECT, it is read as with io="pread"'
    warnings.warn(msg, RuntimeWarning, stacklevel=2)


def _short(fd: int, wanted: int, found: int) -> str:
    return (
        f"{path_of(fd)}: the bytes asked for end at {wanted:,}, the file ended at {found:,} while "
        "it was being read; it was truncated: write it anew, or open it again"
    )


def _reused(name: str, nbytes: int) -> Bytes:
    """Give this thread's buffer of that name, on a page, of at least as many bytes, cut to size."""
    buffer = getattr(_scratch, name, None)
    if buffer is None or len(buffer) < nbytes:
        memory = np.empty(nbytes + PAGE, np.uint8)
        start = -memory.ctypes.data % PAGE
        buffer = memory[start : start + nbytes]
        setattr(_scratch, name, buffer)
    return buffer[:nbytes]

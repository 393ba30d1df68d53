"""How do the bytes of a chunk reach the disk? Each page by one writer, whole, past the cache.

    page       |.......|.......|.......|.......|.......|
    chunk          |===|=======|=======|=======|==|
               head ^   body: whole pages, its own    ^ tail
                        O_DIRECT, large pieces

Head and tail lie in pages that another chunk may share. On one host there is one page cache, and
exact bytes keep their neighbours. Between hosts each kernel has its own, and writes back whole
pages, neighbours' stale bytes included: there they are not written but handed back as *fragments*,
which one process settles when no page is being written any more.

While some bytes are on their way to the disk, others are read by the checksum, or copied to
aligned memory: O_DIRECT asks the processor for next to nothing. What is left of their cost is in
``benchmarks/write_paths.py``.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from mmchunks.files.layout import PAGE
from mmchunks.files.runs import overlaps
from mmchunks.writing.durable import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mmchunks.files.layout import Bytes, Span, Subarray
    from mmchunks.files.runs import Runs
    from mmchunks.writing.journallines import Fragment

__all__ = [
    "Output",
    "aligned",
    "flush",
    "opened",
    "patch",
    "patches",
    "settle",
    "write_runs",
    "write_span",
]


_SHORT = 2**18  # bytes that are written in the time in which a thread starts
_PIECE = 8 * 2**20  # large enough for the disk, and a few of them small enough for the cache
_THREADS = 3  # at once keep the disk at work while pieces are copied
_threads = threading.local()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One file, open for writing both through the page cache and past it."""

    path: str
    """Its name, for errors."""

    fd: int
    """Through the cache."""

    direct: int | None
    """Past the cache; None where the file system does not have that."""

    local: bool
    """Whether this host's page cache is the only one."""


@contextmanager
def opened(path: str, *, local: bool) -> Iterator[Output]:
    """Open a file for writing; it neither grows nor shrinks by that.

    The kernel reports a lost write once to every opening of a file. So an opening is for one
    chunk: shared by two threads, one would hear what the other should.

    Parameters
    ----------
    path : str
        A file that exists.
    local : bool
        Whether this host's page cache is the only one that holds it.

    Yields
    ------
    Output
        Closed when the block ends.
    """
    # O_DSYNC keeps network clients from widening a write to the pages around it (NFS).
    flags = os.O_RDWR | os.O_CLOEXEC | (0 if local else os.O_DSYNC)
    fd = os.open(path, flags)
    direct = None
    try:
        with suppress(OSError):
            direct = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_DIRECT)
        yield Output(path=path, fd=fd, direct=direct, local=local)
    finally:
        os.close(fd)
        if direct is not None:
            os.close(direct)


def aligned(memory: Bytes, nbytes: int, offset: int) -> Bytes:
    """Take the part of `memory` that lies in its pages as the file's bytes from `offset` on do.

    Parameters
    ----------
    memory : numpy.ndarray
        One axis of uint8, a page longer than `nbytes`.
    nbytes : int
        How much of it.
    offset : int
        Byte of the file that the first byte is for.

    Returns
    -------
    numpy.ndarray
        A view, which `write_span` writes without copying it first.

    Examples
    --------
    >>> aligned(np.empty(100 + 4096, np.uint8), 100, 4196).ctypes.data % 4096
    100
    """
    skip = (offset - memory.ctypes.data) % PAGE
    return memory[skip : skip + nbytes]


def write_span(
    output: Output,
    span: Span,
    data: Bytes,
    *,
    share_head: bool,
    share_tail: bool,
    seen: Callable[[Bytes], object],
) -> list[Fragment]:
    """Write the bytes of one span; not flushed yet.

    Parameters
    ----------
    output : Output
        The file.
    span : Span
        Where in the file; all of it lies within.
    data : numpy.ndarray
        ``span.nbytes`` bytes, one axis of uint8. Fastest in memory that is `aligned`; other memory is
        copied piece by piece.
    share_head, share_tail : bool
        Hand back the bytes of the first, or last, page if they do not fill it, because another
        host may write the rest; False writes them, as exact bytes.
    seen : callable
        Called with the data, piece by piece and in order, while others are being written.

    Returns
    -------
    list of (int, bytes)
        The fragments that were not written: none, one or two.

    Raises
    ------
    OSError
        What the file system reports. Any part of the span may have been written.
    """
    if output.direct is None and not (share_head or share_tail):
        seen(data)
        _pwrite(output, output.fd, span.offset, data)
        return []
    start = min(-span.offset % PAGE, span.nbytes)
    stop = start + (span.nbytes - start) // PAGE * PAGE
    head, body, tail = data[:start], data[start:stop], data[stop:]
    seen(head)
    _write_body(output, span.offset + start, body, seen)
    seen(tail)
    # A chunk within one page is all head; then the page's end is its end too.
    share_head = share_head or (share_tail and start == span.nbytes and span.stop % PAGE != 0)
    fragments: list[Fragment] = []
    for offset, edge, shared in (
        (span.offset, head, share_head),
        (span.offset + stop, tail, share_tail),
    ):
        if shared and edge.size:
            fragments.append((offset, edge.tobytes()))
        else:
            _write_exact(output, offset, edge)
    return fragments


def write_runs(output: Output, runs: Runs, data: Bytes) -> None:
    """Write the pieces of a strided region, as exact bytes; not flushed yet.

    Parameters
    ----------
    output : Output
        The file.
    runs : Runs
        Where in the file.
    data : numpy.ndarray
        The runs one after another, one axis of uint8.

    Raises
    ------
    OSError
        What the file system reports.
    """
    for number, places in enumerate(np.ndindex(runs.counts)):
        offset = runs.offset + sum(i * step for i, step in zip(places, runs.strides, strict=True))
        _write_exact(output, offset, data[number * runs.nbytes : (number + 1) * runs.nbytes])


def flush(output: Output) -> None:
    """Make everything durable that was written through `output`. Ask once only.

    Raises
    ------
    OSError
        If the kernel lost a write. It says so once, so that another flush would succeed, and the
        bytes would be missing all the same.
    """
    try:
        os.fdatasync(output.fd)
    except OSError as error:
        raise refusal(output.path, "what was written is lost", error) from error


def settle(output: Output, fragments: Iterable[Fragment], *, stop: int) -> int:
    """Write the pages that chunks share, from the fragments of all of them; not flushed yet.

    For one process at a time that knows all fragments, while nobody writes a page they lie in.
    Settling twice writes the same bytes.

    Parameters
    ----------
    output : Output
        The file.
    fragments : iterable of (int, bytes)
        As `write_span` handed them back; where two overlap the later one counts.
    stop : int
        Length of the file.

    Returns
    -------
    int
        How many pages were written.

    Raises
    ------
    OSError
        What the file system reports.
    """
    pages: dict[int, Bytes] = {}
    for offset, fragment in fragments:
        start = offset // PAGE * PAGE
        if start not in pages:
            pages[start] = _read_page(output, start)[: stop - start]
        pages[start][offset - start : offset - start + len(fragment)] = np.frombuffer(
            fragment, np.uint8
        )
    for start, page in pages.items():
        _write_exact(output, start, page)
    return len(pages)


def patches(subarray: Subarray, fragments: Iterable[Fragment]) -> list[tuple[int, bytes]]:
    """Find what fragments that wait for the owner of their pages say of a region.

    Parameters
    ----------
    subarray : Subarray
        The region.
    fragments : iterable of (int, bytes)
        As `write_span` handed them back; where two overlap the later one counts.

    Returns
    -------
    list of (int, bytes)
        Where in the dense stream of the region which bytes belong, whatever the file holds there.
    """
    runs = subarray.runs
    return [
        (at, data[where - offset : where - offset + nbytes])
        for offset, data in fragments
        for at, where, nbytes in overlaps(runs, offset, offset + len(data))
    ]


def patch(stream: Bytes, start: int, found: Iterable[tuple[int, bytes]]) -> None:
    """Lay patches over a part of a region's dense stream, which begins at `start`."""
    for at, data in found:
        first, last = max(at, start), min(at + len(data), start + len(stream))
        if first < last:
            piece = np.frombuffer(data, np.uint8)[first - at : last - at]
            stream[first - start : last - start] = piece


def _write_body(output: Output, offset: int, body: Bytes, seen: Callable[[Bytes], object]) -> None:
    """Write whole pages, while they are looked at, and copied to where O_DIRECT takes them from."""
    if body.size <= _SHORT:  # to start a thread takes longer
        if body.size:
            straight = output.direct is None or body.ctypes.data % PAGE == 0
            piece = body if straight else _slots()[0][: body.size]
            if not straight:
                np.copyto(piece, body)
            _write_pages(output, offset, piece)
            seen(piece)
        return
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="mmchunks-write") as threads:
        if output.direct is None or body.ctypes.data % PAGE == 0:
            written = threads.submit(_write_pages, output, offset, body)
            seen(body)
            written.result()
            return
        under_way: deque[Future[None]] = deque()
        for start, slot in zip(range(0, body.size, _PIECE), cycle(_slots()), strict=False):
            if len(under_way) > _THREADS:
                under_way.popleft().result()
            piece = slot[: body.size - start]
            np.copyto(piece, body[start : start + _PIECE])
            under_way.append(threads.submit(_write_pages, output, offset + start, piece))
            seen(piece)
        for written in under_way:
            written.result()


def _slots() -> list[Bytes]:
    """Give this thread's aligned pieces of memory; new ones would cost as much as the writing."""
    if not hasattr(_threads, "slots"):
        # One for each thread that writes, and one to copy to.
        _threads.slots = [_fresh(_PIECE) for _ in range(_THREADS + 1)]
    slots: list[Bytes] = _threads.slots
    return slots


def _fresh(nbytes: int) -> Bytes:
    """Take new memory that begins with a page."""
    return aligned(np.empty(nbytes + PAGE, np.uint8), nbytes, 0)


def _write_pages(output: Output, offset: int, data: Bytes) -> None:
    """Write past the cache, or through it where the file system refuses."""
    if output.direct is not None:
        try:
            _pwrite(output, output.direct, offset, data)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        else:
            return
    _pwrite(output, output.fd, offset, data)


def _write_exact(output: Output, offset: int, data: Bytes) -> None:
    """Write so that the neighbours of the bytes stay as they are, where that can be had."""
    if output.local:
        _pwrite(output, output.fd, offset, data)
    else:
        # Network file systems take any range past the cache, and send that range alone; through
        # it some send the page, or 2 MiB, as this host knew it.
        _write_pages(output, offset, data)


def _pwrite(output: Output, fd: int, offset: int, data: Bytes) -> None:
    done = 0
    while done < data.size:  # one call writes 2 GiB at most, and less on a disk that fills
        try:
            done += os.pwrite(fd, data[done:].data, offset + done)
        except OSError as error:
            what = f"bytes {offset:,} to {offset + data.size:,} were not written"
            raise refusal(output.path, what, error, nbytes=data.size - done) from error


def _read_page(output: Output, start: int) -> Bytes:
    """Read one page as it is on the disk, whatever this host remembers of it."""
    page = _fresh(PAGE)
    if not output.local and output.direct is not None:
        try:
            os.preadv(output.direct, [page.data], start)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        else:
            return page
    os.preadv(output.fd, [page.data], start)
    return page

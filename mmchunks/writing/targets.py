"""What can be done to a file that is being filled? Write regions, flush, read back, settle.

A target is an ordinary ``.npy`` of its final length from the moment it has its name. There are two
ways to write it:

- ``target[region] = block`` for one process, or several of one host: exact bytes, durable after
  ``target.flush()``.
- ``target.write_chunk(region, block)`` for chunks that many processes on any host write at once:
  durable when it returns, and what it returns can be written down as done. Parts of pages that
  other chunks share may come back as fragments, for `settle` when all chunks are done.
"""

from __future__ import annotations

import errno
import os
import warnings
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import LayoutError, os_error
from mmchunks.files import npy
from mmchunks.files.blocks import dense, flattened, take
from mmchunks.files.indexing import split_index
from mmchunks.files.layout import PAGE, Layout, as_shape
from mmchunks.files.mounts import mount_of
from mmchunks.files.preading import read_region
from mmchunks.files.sources import Source, name_of, open_source
from mmchunks.gpu import transfers
from mmchunks.gpu.forms import device_form
from mmchunks.planning.grammar import parse_align
from mmchunks.writing import pages, reserving
from mmchunks.writing.casting import as_array, check_cast, fitted, slabs, split_region
from mmchunks.writing.checksums import Checksum
from mmchunks.writing.handles import Handle
from mmchunks.writing.journal import Journal
from mmchunks.writing.journallines import Done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import DTypeLike

    from mmchunks.files.layout import Block, Bytes, DType, Index, Order, Subarray
    from mmchunks.files.sources import File
    from mmchunks.planning.grammar import Chunks
    from mmchunks.writing.journallines import Fragment
    from mmchunks.writing.pages import Output

__all__ = ["Target", "create_npy", "open_target"]

_SLAB_NBYTES = 64 * 2**20  # how much of a block is converted at a time
_PIECE_NBYTES = 8 * 2**20  # what one call reads
_CACHED_NBYTES = (
    2**20
)  # writes up to so many bytes go through the page cache, unless flushed at once


class Target:
    """An array in a file of fixed length, whose regions can be written.

    Made by `create_npy` and `open_target`. Travels to other processes in a few hundred bytes; each
    opens the file anew, and finds out if it is another one by then.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/out.npy"
    >>> target = create_npy(path, (4, 3), "f4", fill_value=-1)
    >>> target[1:3] = [[1, 2, 3]]
    >>> target.flush()
    >>> np.load(path)[:, 0]
    array([-1.,  1.,  1., -1.], dtype=float32)
    """

    def __init__(self, source: Source, chunks: Chunks) -> None:
        self.source = source
        """The same file, to read: its layout and its identity."""
        self.chunks = chunks
        """How it is meant to be cut, in dask's grammar."""
        self._cautious = True

    def __reduce__(self) -> tuple[Any, ...]:
        return Target, (self.source, self.chunks)

    def __repr__(self) -> str:
        return f"Target({self.path!r}, shape={self.shape}, dtype={self.dtype})"

    @property
    def path(self) -> str:
        """Absolute path of the file."""
        return self.source.path

    @property
    def layout(self) -> Layout:
        """Where the elements lie."""
        return self.source.layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.source.shape

    @property
    def dtype(self) -> DType:
        """Type of one element, as stored."""
        return self.source.dtype

    @cached_property
    def local(self) -> bool:
        """Whether all writers are on this host, because no other can have the file."""
        try:
            return mount_of(self.path).local
        except FileNotFoundError:  # whoever is about to write hears that from the handle
            return mount_of(os.path.dirname(self.path)).local

    @cached_property
    def _handle(self) -> Handle:
        return Handle(
            self.path,
            self.source.identity,
            head_nbytes=self.layout.offset,
            local=self.local,
        )

    def __getitem__(self, index: Index) -> Any:
        region, pick = split_index(index, self.shape)
        return self._read(self.layout[region])[pick]

    def __setitem__(self, index: Index, block: Any) -> None:
        subarray, block = self._fitted(index, block)
        if not self.local:
            self._caution(subarray)
        if self.local and subarray.nbytes <= min(_CACHED_NBYTES, _SLAB_NBYTES):
            # People assign a row of 3 kB ten thousand times a second: past the cache, and by threads,
            # each would take as long as a hundred.
            self._write(self._handle.shared(cached=True), subarray, block, exact=True, seen=_ignore)
            return
        output = self._handle.shared()
        for part, slab in slabs(subarray, block, nbytes=_SLAB_NBYTES):
            self._write(output, part, slab, exact=True, seen=_ignore)

    def flush(self) -> None:
        """Make everything durable that was assigned to regions of this target.

        Raises
        ------
        OSError
            If the kernel lost a write. It says so once, so this target stays failed: open it
            again, and write anew what was written since the flush before.
        """
        self._handle.flush()

    def write_chunk(self, index: Index, block: Any) -> Done:
        """Write one region so that it is durable when this returns; for many writers at once.

        Parameters
        ----------
        index : slice, int, Ellipsis or a tuple of these
            The region. No other chunk may hold an element of it.
        block : array_like
            What belongs there, on the CPU or a GPU; cast and broadcast as by assignment.

        Returns
        -------
        Done
            What a journal says of a chunk: its box, bytes and checksum and, where pages are shared
            with chunks that other hosts may write, the fragments that `settle` needs.

        Raises
        ------
        OSError
            If it is not durable. Write it again, all of it: to flush again would prove nothing.
        """
        subarray, block = self._fitted(index, block)
        checksum = Checksum()
        with self._handle.opened() as output:
            fragments = self._write(output, subarray, block, exact=self.local, seen=checksum.update)
            pages.flush(output)
        return Done(
            box=tuple((part.start, part.stop) for part in subarray.region),
            nbytes=subarray.nbytes,
            checksum=str(checksum),
            fragments=tuple(fragments),
        )

    def settle(self, chunks: Iterable[Done]) -> int:
        """Write the pages that chunks share, durably, from their fragments.

        Parameters
        ----------
        chunks : iterable of Done
            What `write_chunk` returned for every chunk, or what the journal holds of them, oldest
            first. All chunks are done, or nobody is writing any more. Two processes may settle the
            same chunks at once.

        Returns
        -------
        int
            How many pages were written.

        Raises
        ------
        OSError
            If they are not durable.
        """
        fragments = [fragment for chunk in chunks for fragment in chunk.fragments]
        with self._handle.opened() as output:
            count = pages.settle(output, fragments, stop=self.source.identity.nbytes)
            pages.flush(output)
        return count

    def checksum(self, index: Index, like: str, *, fragments: Iterable[Fragment] = ()) -> str:
        """Read a region, and compute the checksum that `write_chunk` would return for it.

        Parameters
        ----------
        index : slice, int, Ellipsis or a tuple of these
            The region.
        like : str
            A checksum of the algorithm to use.
        fragments : iterable of (int, bytes)
            Bytes of the region that may wait for the owner of their pages.
        """
        region, _ = split_region(index, self.shape)
        subarray, checksum = self.layout[region], Checksum(like)
        stream = flattened(self._read(subarray), self.layout)
        pages.patch(stream, 0, pages.patches(subarray, fragments))
        checksum.update(stream)
        return str(checksum)

    @contextmanager
    def map(self, index: Index) -> Iterator[Block]:
        """Fill a region in place; durable when the block ends.

        The view is memory of its own, read from the file and written back at the end: that is five
        to twelve times faster than to store through a shared map, and is told of a full disk
        instead of killed by it. If the block fails nothing is written.

        Parameters
        ----------
        index : slice, int, Ellipsis or a tuple of these
            The region.

        Yields
        ------
        numpy.ndarray
            What the region holds.

        Raises
        ------
        OSError
            If it is not durable.
        """
        region, pick = split_region(index, self.shape)
        subarray = self.layout[region]
        self._caution(subarray)
        view = self._read(subarray)
        yield view[(*pick, ...)]
        with self._handle.opened() as output:
            self._write(output, subarray, view, exact=True, seen=_ignore)
            pages.flush(output)

    def empty(self, index: Index) -> Block:
        """Take memory for a region, uninitialised, that `write_chunk` need not copy."""
        region, pick = split_region(index, self.shape)
        block: Block = _room(self.layout[region])[(*pick, ...)]
        return block

    def _read(self, subarray: Subarray) -> Block:
        """Read a region into memory of its own: a map would change while others write."""
        block = _room(subarray)
        with self.source.opened() as fd:
            # What this host remembers may be older than what another one wrote.
            read_region(
                fd,
                subarray,
                block,
                direct=not self.local,
                threads=1,
                piece_nbytes=_PIECE_NBYTES,
            )
        return block

    def _fitted(self, index: Index, block: Any) -> tuple[Subarray, Block]:
        """Bring a block into the shape of its region, by views only."""
        region, pick = split_region(index, self.shape)
        try:
            return self.layout[region], fitted(_taken(block, self.dtype), region, pick)
        except (TypeError, ValueError, OverflowError) as error:
            msg = f"{self.path}: {error}"
            raise type(error)(msg) from error

    def _write(
        self,
        output: Output,
        subarray: Subarray,
        block: Block,
        *,
        exact: bool,
        seen: Callable[[Bytes], object],
    ) -> list[Fragment]:
        data, span = self._dense(subarray, block), subarray.span
        if span.nbytes != data.size:  # there are gaps
            seen(data)
            pages.write_runs(output, subarray.runs, data)
            return []
        return pages.write_span(
            output,
            span,
            data,
            share_head=not exact and span.offset > self.layout.offset,
            share_tail=not exact and span.stop < self.layout.stop,
            seen=seen,
        )

    def _dense(self, subarray: Subarray, block: Block) -> Bytes:
        """Give the bytes of a block as they lie in the file; a copy only where they do not."""
        if transfers.on_device(block):
            data = flattened(_room(subarray), self.layout)
            transfers.download(block, self.dtype, self.layout.order, partial(_put, data))
            return data
        if block.dtype != self.dtype or not block.transpose(self.layout.axes).flags.c_contiguous:
            copy = _room(subarray)
            np.copyto(copy, block, casting="same_kind")
            block = copy
        return flattened(block, self.layout)

    def _caution(self, subarray: Subarray) -> None:
        """Say once that exact bytes are for one host, where there may be several."""
        if self.local or not self._cautious:
            return
        span = subarray.span
        ends = {span.offset, span.stop} - {self.layout.offset, self.layout.stop}
        if not subarray.contiguous or any(end % PAGE for end in ends):
            self._cautious = False
            msg = (
                f"{self.path}: lies on a network file system, and {subarray.region} shares pages with its "
                "neighbours; that is safe while no other host writes there: use sweep or to_npy, "
                "which see to it, or regions that begin and end on 4096 bytes"
            )
            warnings.warn(msg, stacklevel=3)


def create_npy(
    path: File,
    shape: int | Sequence[int],
    dtype: DTypeLike,
    *,
    chunks: Chunks = "auto",
    order: Order = "C",
    fill_value: Any = None,
    align: int | str | None = "auto",
    reserve: bool = True,
    overwrite: bool = False,
    force: bool = False,
) -> Target:
    """Make a ``.npy`` file of full length, to be filled.

    The file appears under its name when its header and its space are on stable storage, and
    ``np.load`` opens it from then on.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
        Its name.
    shape : int or sequence of int
        Lengths of the axes.
    dtype : DTypeLike
        Type of one element.
    chunks : int, tuple, dict or str
        How it is meant to be cut, in dask's grammar: `plan` of the target cuts it so.
    order : {"C", "F"}
        Which axis is contiguous.
    fill_value : scalar, optional
        What every element holds at first. None means zeros, which cost no writing.
    align : {"auto", "page"}, int, str or None
        The data start at a multiple of so many bytes, or of ``"2 MiB"``; ``"auto"`` is a page (4096
        bytes), which lets pages be written whole, None what `numpy.save` does (64).
    reserve : bool
        Take the space now, so that no writer finds the disk full. Where the file system cannot,
        it is not taken.
    overwrite : bool
        Take the name, and the journal, from a file that has it.
    force : bool
        With `overwrite`, take it from a driver on another host, of which only you know that it has
        ended.

    Returns
    -------
    Target
        To write its regions.

    Raises
    ------
    FileExistsError
        If the name is taken and `overwrite` is False.
    JournalError
        If the file that would be overwritten is being filled by another driver.
    LayoutError
        If no file can hold such an array, or ``np.load`` would refuse a header so aligned.
    OSError
        If there is not enough space: it says how much is needed and free. Nothing is left behind.

    Examples
    --------
    >>> import tempfile
    >>> target = create_npy(tempfile.mkdtemp() + "/out.npy", (1000, 12), "f4")
    >>> target.layout.offset, np.load(target.path).shape
    (4096, (1000, 12))
    """
    name = name_of(path)
    element = np.dtype(dtype)
    if element.subdtype:
        msg = f"{name}: dtype {element} is an array; put its axes {element.shape} into the shape"
        raise LayoutError(msg)
    head = npy.encode(shape, element, order, align=parse_align(align, PAGE) or npy.ALIGN)
    layout = Layout(shape=as_shape(shape), dtype=element, order=order, offset=len(head))
    make = partial(
        reserving.create,
        name,
        head,
        layout.stop,
        reserve=reserve,
        overwrite=overwrite,
        fill=None if fill_value is None else _element(fill_value, element, name),
    )
    journal = Journal(path=name)
    if overwrite and journal.folder.exists():
        with journal.lock(force=force):
            make()
            # Only now: were it gone first, a crash would leave the old file without its journal.
            journal.remove()
    else:
        make()
    return Target(open_target(name).source, chunks)


def open_target(path: File) -> Target:
    """Open an existing ``.npy`` file to write regions of it; it never grows or shrinks.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
        A file that anybody made.

    Returns
    -------
    Target
        To write its regions.

    Raises
    ------
    HeaderError
        If it is no ``.npy``, or shorter than its header says.
    OSError
        If there is no such file, or it may not be written.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/ramp.npy"
    >>> np.save(path, np.arange(5))
    >>> target = open_target(path)
    >>> target[1:3] = 0
    >>> target[:]
    array([0, 0, 0, 3, 4])
    """
    source = replace(open_source(path), filling=True)
    if not os.access(source.path, os.W_OK):
        msg = f"{source.path}: may not be written by this user"
        raise os_error(errno.EACCES, msg)
    return Target(source, "auto")


def _room(subarray: Subarray) -> Block:
    """Take memory for a block that lies in its pages as the file's bytes do in theirs."""
    room = take((subarray.nbytes + PAGE,), np.dtype(np.uint8), "C")
    return dense(pages.aligned(room, subarray.nbytes, subarray.span.offset), subarray)


def _element(value: Any, dtype: DType, path: str) -> bytes:
    """Give the bytes of one element that holds `value`."""
    array = as_array(transfers.on_host(value), dtype)
    if array.ndim:
        msg = f"{path}: fill_value must be one element, got an array of shape {array.shape}"
        raise LayoutError(msg)
    return array.astype(dtype, casting="same_kind").tobytes()


def _taken(block: Any, dtype: DType) -> Any:
    """Take what a user assigns: where it is on a GPU, else in the memory of this host."""
    if not transfers.on_device(block):
        return as_array(block, dtype)
    array = transfers.own(block)
    check_cast(array.dtype, device_form(dtype).dtype)
    return array


def _put(data: Bytes, start: int, memory: memoryview) -> None:
    """Keep a piece that came from a device."""
    data[start : start + memory.nbytes] = np.frombuffer(memory, np.uint8)


def _ignore(data: Bytes) -> None:
    """Look at nothing."""

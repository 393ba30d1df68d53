"""What is known of a file that was opened? Its layout and its identity; it holds no data.

A `Source` holds no open file and no data, so it travels to other processes in a few hundred
bytes. Whoever reads through it opens the file anew, and is told when it is another one by then.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from mmchunks.errors import HeaderError
from mmchunks.files import npy
from mmchunks.files.blocks import take
from mmchunks.files.identity import Identity, head_crc, identify, require_same
from mmchunks.files.indexing import split_index
from mmchunks.files.mapping import REFUSALS, map_region
from mmchunks.files.paths import as_name, open_fd, regular_file
from mmchunks.files.preading import read_region

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import DTypeLike

    from mmchunks.files.layout import Block, DType, Index, Layout, Order
    from mmchunks.files.raw import Samples

__all__ = ["MAX_HEADER_NBYTES", "File", "Fillable", "Source", "name_of", "open_source"]

MAX_HEADER_NBYTES = 10_000  # numpy's own limit, of the header's text
_PIECE_NBYTES = 4 << 20
_FIRST_READ_NBYTES = 4096  # nearly every header, and one page either way

# A child that is forked while another thread reads a header would wait for that thread for ever.
os.register_at_fork(
    before=npy.FILTERS.acquire,
    after_in_parent=npy.FILTERS.release,
    after_in_child=npy.FILTERS.release,
)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Source:
    """An array in a file, of which nothing but the header has been read.

    Made by `open_npy` and `open_raw`. Indexing maps the region that the index covers, as a
    private copy-on-write map: the block is writable, and the file never changes. A block reads
    the file while it is used; truncating the file in that time ends the process with SIGBUS. Where
    that can happen, read with ``io="pread"``: it copies at once, and keeps nothing of the file.

    Attributes
    ----------
    path : str
        Absolute path of the file, symbolic links resolved.
    layout : Layout
        Where the elements lie.
    identity : Identity
        The file as it was when it was opened.
    filling : bool
        Whether the file is our own target, still being filled: its time of change then says
        nothing, and only its inode and length are checked.
    samples : Samples | None
        What the stored elements are samples of, if the file is a radio recording that was opened by
        a SigMF name; they are decoded when they are read.

    Examples
    --------
    >>> import tempfile
    >>> import mmchunks as mm
    >>> path = tempfile.mkdtemp() + "/ramp.npy"
    >>> np.save(path, np.arange(12).reshape(3, 4))
    >>> source = mm.open_npy(path)
    >>> source.shape, source.offset, source.nbytes
    ((3, 4), 128, 96)
    >>> source[1:, ::2]
    array([[ 4,  6],
           [ 8, 10]])
    """

    path: str
    layout: Layout
    identity: Identity
    filling: bool = False
    samples: Samples | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.layout.shape

    @property
    def dtype(self) -> DType:
        """Type of one element as it is read; as stored (byte order included) but for samples."""
        return self.layout.dtype if self.samples is None else self.samples.result

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.layout.ndim

    @property
    def order(self) -> Order:
        """``"C"``: the last axis is contiguous; ``"F"``: the first one is."""
        return self.layout.order

    @property
    def offset(self) -> int:
        """First byte of the data, counted from the start of the file."""
        return self.layout.offset

    @property
    def nbytes(self) -> int:
        """Bytes of all elements, as stored."""
        return self.layout.nbytes

    @property
    def trailing_nbytes(self) -> int:
        """Bytes that the file holds after the last element; NumPy ignores them too."""
        return self.identity.nbytes - self.layout.stop

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Open the file for reading, if it still is the one that was opened.

        Yields
        ------
        int
            File descriptor, closed when the block ends.

        Raises
        ------
        StaleFileError
            If the file was truncated, replaced, rewritten or deleted since.
        """
        expected = self.identity.timeless if self.filling else self.identity
        then = "open it again to read it now"
        try:
            fd = open_fd(self.path)
        except (FileNotFoundError, NotADirectoryError):
            require_same(self.path, expected, None, then=then)
            raise
        try:
            require_same(self.path, expected, identify(fd), then=then)
            yield fd
        finally:
            os.close(fd)

    # Any, as in NumPy's own stubs: one element is a scalar.
    def __getitem__(self, index: Index) -> Any:
        region, pick = split_index(index, self.shape)
        subarray = self.layout[region]
        with self.opened() as fd:
            try:
                block = map_region(fd, subarray)
            except OSError as error:
                if error.errno not in REFUSALS:
                    raise
                block = take(subarray.shape, subarray.dtype, subarray.order)
                read_region(
                    fd, subarray, block, direct=False, threads=1, piece_nbytes=_PIECE_NBYTES
                )
        if self.samples is None:
            return block[pick]
        return self.samples.decode(block, np)[pick]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Block:
        return np.array(self[...], dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        dtype = self.dtype if self.samples is None else f"{self.dtype} of {self.samples.name}"
        return (
            f"Source({self.path!r}, shape={self.shape}, dtype={dtype}, "
            f"order={self.order!r}, offset={self.offset})"
        )

    def __dask_tokenize__(self) -> tuple[object, ...]:
        """Identify the file without reading it; ``repr`` spells a dtype out, fields and all."""
        file = self.identity
        identity = (file.inode, file.nbytes, file.mtime_ns, file.born_ns, file.generation)
        geometry = (self.shape, repr(self.layout.dtype), self.order, self.offset)
        return (
            "mmchunks.Source",
            self.path,
            identity,
            geometry,
            self.samples and self.samples.name,
        )


@runtime_checkable
class Fillable(Protocol):
    """What is written: a Target, as those see it that stand below it."""

    source: Source
    """The same file, to read."""

    chunks: Any
    """How it is meant to be cut: `Chunks` of planning, which stands above."""


File: TypeAlias = "str | os.PathLike[str] | Source | Fillable"
"""What names a file, everywhere: a path, a Source or a Target."""


def name_of(file: object) -> str:
    """Name a file by its path, whichever way it was named.

    Raises
    ------
    TypeError
        For anything that names none.
    """
    if isinstance(file, str | os.PathLike):  # first, because protocols are slow to ask for
        return as_name(file)
    if isinstance(file, Source):
        return file.path
    return file.source.path if isinstance(file, Fillable) else as_name(file)


def open_source(file: File, *, max_header_size: int = MAX_HEADER_NBYTES) -> Source:
    """Read the header of a ``.npy`` file that may be incomplete, without a word about that."""
    name = name_of(file)
    with regular_file(name) as fd:
        # Taken before the header is read: a change from here on is found by whoever reads.
        identity = identify(fd)
        try:
            layout = _read_layout(fd, identity.nbytes, max_header_size=max_header_size)
            identity = replace(identity, head_crc=head_crc(fd, layout.offset))
        except HeaderError as error:
            msg = f"{name}: {error}"
            raise HeaderError(msg) from error
        return Source(path=os.path.realpath(name), layout=layout, identity=identity)


def _read_layout(fd: int, file_nbytes: int, *, max_header_size: int) -> Layout:
    head = os.pread(fd, _FIRST_READ_NBYTES, 0)
    if not head or head[:6] != npy.MAGIC[: len(head)]:
        msg = f"is {npy.describe(head)}"
        raise HeaderError(msg)
    nbytes = min(npy.head_nbytes(head, max_header_size=max_header_size), file_nbytes)
    while len(head) < nbytes:
        more = os.pread(fd, nbytes - len(head), len(head))
        if not more:  # truncated in this moment: decode() says what is missing
            break
        head += more
    layout = npy.decode(head, max_header_size=max_header_size)
    if layout.stop > file_nbytes:
        raise HeaderError(_cut_short(layout, file_nbytes - layout.offset))
    return layout


def _cut_short(layout: Layout, held_nbytes: int) -> str:
    """Say what there is of an array whose writer did not end, and how to have that."""
    msg = f"header promises {layout.nbytes:,} bytes of data, file holds {held_nbytes:,}"
    if not layout.ndim or not layout.itemsize:
        return msg
    axis = layout.axes[0]
    length, row_nbytes = layout.shape[axis], layout.nbytes // layout.shape[axis]
    whole = held_nbytes // row_nbytes
    shape = (*layout.shape[:axis], whole, *layout.shape[axis + 1 :])
    dtype = npy.dtype_text(layout.dtype)
    order = "" if layout.order == "C" else ', order="F"'
    return (
        f"{msg}: {whole:,} of {length:,} whole rows along axis {axis}; its writer did not end, or the "
        f"copy did not: to have those, write open_raw(path, {dtype}, {shape}, offset={layout.offset}"
        f"{order})"
    )

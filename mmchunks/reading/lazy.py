"""How does a file become a dask array?

    path -> files.open -> Source -> plan (which chunks) -> Selection (an array-like) -> dask array

A task of the graph holds a path, a layout and slices. Dask asks the `Selection` for the slices of
one chunk, on the worker that runs the task, and only then is the file opened.

What is returned is a dask array whose own indexing reads less of the file (`lazyindexing`). Everything
else, from arithmetic to ``persist``, is dask's and gives plain dask arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmchunks.files.sources import MAX_HEADER_NBYTES
from mmchunks.gpu.devices import chosen_device
from mmchunks.planning import making
from mmchunks.reading import opening, rationing
from mmchunks.reading.lazyindexing import file_array
from mmchunks.reading.selection import select

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dask.array as da

    from mmchunks.files.layout import Order
    from mmchunks.files.sources import File, Source
    from mmchunks.planning.grammar import Chunks

__all__ = ["from_npy", "from_raw"]


def from_npy(
    path: File,
    chunks: Chunks = "auto",
    *,
    device: str = "auto",
    io: str = "auto",
    align: str | int | None = "auto",
    field: str | None = None,
    device_memory: int | str | None = None,
    name: str | None = None,
    max_header_size: int = MAX_HEADER_NBYTES,
) -> da.Array:
    """Make a lazy dask array of one ``.npy`` file.

    Only the header is read. Each task later opens the file by itself, checks that it is still the
    same file, and brings in the bytes of its own chunk.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
        A ``.npy`` file on a mounted file system, or what was opened.
    chunks : int, tuple, dict, str, -1 or None
        As in dask, but a whole ``"auto"`` or ``"64 MiB"`` makes contiguous slabs along the slowest
        axis of the file. ``"auto"`` aims at dask's ``array.chunk-size``.
    device : {"auto", "cpu", "gpu"}
        Where blocks are made: NumPy arrays on the host, or CuPy arrays on the GPU of the worker
        that runs the task. ``"auto"`` follows dask's ``array.backend`` when it was set, else takes
        the GPU when CuPy is installed and a device answers.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        How bytes come into memory. ``"mmap"`` maps them privately and copies nothing;
        ``"pread"`` and ``"direct"`` copy them into buffers (``"direct"`` past the page cache);
        ``"gds"`` is GPUDirect Storage. ``"auto"`` looks at the file system and at the page cache
        before each read.
    align : {"auto", "page"}, int, str or None
        Whether chunk boundaries are moved to multiples of a page (or of that many bytes, or ``"2 MiB"``).
        ``"auto"`` moves only sizes that were not spelled out.
    field : str, optional
        Take one field of a structured dtype. The axes of a sub-array field come last, uncut.
    device_memory : int or str, optional
        Memory of each GPU in bytes, or as ``"8 GiB"``; by default what is free now on the GPU of
        this process. Sizes that ``"auto"`` chooses take half of it at most, for all threads of a
        worker together; chunks that cannot fit are refused. Not looked at on the CPU.
    name : str, optional
        Name of the array in the graph. By default it is derived from the identity of the file
        (path, inode, size, time), never from its content. Dask's newer array engine
        (``array.query-planning``) makes its own names and takes none.
    max_header_size : int
        Longest header that is parsed, in bytes, as in `numpy.load`.

    Returns
    -------
    dask.array.Array
        Its blocks own their memory and can be written to; the file never changes. On a GPU they are
        what `load` brings: in the byte order of the machine, dates as integers, and text, voids and
        structures as bytes (uint8) along one more axis at the end, uncut.

    Raises
    ------
    HeaderError
        If the file is not a ``.npy`` file that can be mapped.
    DeviceError
        If a GPU is asked for and cannot be had, or its memory cannot hold a chunk for each of the
        tasks that run on it at once.
    StaleFileError
        At compute time, if the file was truncated, replaced or rewritten meanwhile.

    Notes
    -----
    A block made by ``io="mmap"`` (and, on a local disk, by ``"auto"``) shows the file itself: if
    another program truncates the file while the block is alive, touching the lost part ends the
    process with SIGBUS. ``io="pread"`` cannot be hurt that way.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, mmchunks as mm
    >>> path = os.path.join(tempfile.mkdtemp(), "ramp.npy")
    >>> np.save(path, np.arange(12.0).reshape(6, 2))
    >>> x = mm.from_npy(path, chunks=(3, 2))
    >>> x.chunks
    ((3, 3), (2,))
    >>> float(x.sum().compute())
    66.0
    """
    return _from_source(
        opening.as_source(path, max_header_size=max_header_size),
        chunks,
        device=device,
        io=io,
        align=align,
        field=field,
        device_memory=device_memory,
        name=name,
        prefix="from-npy",
    )


def from_raw(
    path: File,
    dtype: Any,
    shape: int | Sequence[int] | None = None,
    chunks: Chunks = "auto",
    *,
    offset: int = 0,
    order: Order = "C",
    device: str = "auto",
    io: str = "auto",
    align: str | int | None = "auto",
    field: str | None = None,
    device_memory: int | str | None = None,
    name: str | None = None,
) -> da.Array:
    """Make a lazy dask array of a file that holds nothing but numbers.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
        A file on a mounted file system.
    dtype : dtype or str
        Type of one element as stored; or the SigMF name of a radio recording's samples, such as
        ``"ci16_le"``, which become complex64 (cf64 complex128), neither scaled nor shifted.
    shape : int or sequence of int, optional
        By default one axis that reaches to the end of the file.
    chunks : int, tuple, dict, str, -1 or None
        As in `from_npy`; sizes in bytes are of what is stored.
    offset : int
        First byte of the data.
    order : {"C", "F"}
        Which axis is contiguous: the last one or the first.
    device : {"auto", "cpu", "gpu"}
        As in `from_npy`.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        As in `from_npy`.
    align : {"auto", "page"}, int, str or None
        As in `from_npy`.
    field : str, optional
        As in `from_npy`.
    device_memory : int or str, optional
        As in `from_npy`.
    name : str, optional
        As in `from_npy`.

    Returns
    -------
    dask.array.Array
        As from `from_npy`.

    Raises
    ------
    LayoutError
        If the file is shorter than the shape, or its length is no multiple of the element's.
    DeviceError
        As from `from_npy`.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np, mmchunks as mm
    >>> path = os.path.join(tempfile.mkdtemp(), "counts.bin")
    >>> np.arange(10, dtype="<u2").tofile(path)
    >>> mm.from_raw(path, "<u2", chunks=4)[3:6].compute()
    array([3, 4, 5], dtype=uint16)
    """
    source = opening.open_raw(path, dtype, shape, offset=offset, order=order)
    return _from_source(
        source,
        chunks,
        device=device,
        io=io,
        align=align,
        field=field,
        device_memory=device_memory,
        name=name,
        prefix="from-raw",
    )


def _from_source(
    source: Source,
    chunks: Chunks,
    *,
    device: str,
    io: str,
    align: str | int | None,
    field: str | None,
    device_memory: int | str | None,
    name: str | None,
    prefix: str,
) -> da.Array:
    from dask.base import tokenize

    selection = select(source, field=field, io=io, device=chosen_device(device))
    if selection.device == "cpu":
        plan = making.plan(source, chunks, align=align)
    else:
        plan = rationing.fitting_plan(selection, chunks, align=align, device_memory=device_memory)
    # The plan's JSON is a line long where dask's tuples of chunk sizes may hold millions.
    name = name or f"{prefix}-{tokenize(selection, plan.to_json())}"
    inner = tuple((length,) for length in selection.shape[source.ndim :])
    return file_array(selection, plan.chunks + inner, name)

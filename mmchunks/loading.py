"""How does one region become one block? Look, choose, act.

A block that is mapped follows its file: if another process truncates the file while the block
lives, touching the lost part ends this process with SIGBUS, and nothing in here can prevent that.
A block that is read (``io="pread"`` or ``"direct"``) is a copy, and safe from then on.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mmchunks import buffers, routes, transfers, uploading
from mmchunks.errors import LayoutError
from mmchunks.files import open_npy, open_raw
from mmchunks.mapping import map_region
from mmchunks.mounts import mount_of
from mmchunks.pagecache import resident_fraction
from mmchunks.reading import read_region, warm
from mmchunks.samples import sample_type
from mmchunks.workers import chosen_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from mmchunks.files import Source
    from mmchunks.layout import Order, Region

__all__ = ["block", "explain", "load", "load_raw", "route", "to_device"]

# One stream of 4 MiB pieces ran at 0.95 to 1.00 of the fastest read, and two no faster.
_PIECE_NBYTES = 4 << 20
_DIRECT_PIECE_NBYTES = 16 << 20
_THREADS = 1
_MEMORY_NBYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def load(
    path: str | os.PathLike[str],
    region: Any = None,
    *,
    device: str = "auto",
    io: str = "auto",
    out: Any = None,
) -> Any:
    """Read a ``.npy`` file, or a region of it, as one array.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    region : slice or tuple of slice, optional
        What to read, as between the brackets of a NumPy array, without steps; None is everything.
    device : {"auto", "cpu", "gpu"}
        Where the array goes. ``"auto"`` is where `out` lies; without it, what dask's
        ``array.backend`` says where it was set, else the GPU if CuPy is installed and one answers.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        The way the bytes take. ``"auto"`` looks at the file system and the page cache, and on the
        CPU mostly maps: nothing is copied, but truncating the file while the array lives ends the
        process (SIGBUS). ``"pread"`` copies, and cannot be hurt that way. ``"direct"`` copies
        around the page cache (O_DIRECT). ``"gds"`` is GPUDirect Storage, for a GPU only. On a GPU
        a way that cannot be taken leads to ``"pread"``; ``mmchunks plan PATH --device gpu --io gds``
        says why.
    out : numpy.ndarray or cupy.ndarray, optional
        Array to fill, of the region's shape and dtype; on the CPU also of the file's order.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        `out`, if it was given. Else a writable array; the file never changes with it. On a GPU the
        array is ready on the current stream and in the byte order of the machine; dates are the
        integers that they are stored as, and text, voids and structures are bytes (uint8) with one
        more axis at the end.

    Raises
    ------
    HeaderError
        If the file is no ``.npy`` that can be read.
    LayoutError
        If `region` or `out` does not suit the array.
    StaleFileError
        If the file changes while it is being read.
    DeviceError
        If a GPU is asked for and cannot be used.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/ramp.npy"
    >>> np.save(path, np.arange(12).reshape(3, 4))
    >>> load(path, (slice(1, 3), slice(0, 2)))
    array([[4, 5],
           [8, 9]])
    """
    return _load(open_npy(path), region, device=device, io=io, out=out)


def load_raw(
    path: str | os.PathLike[str],
    dtype: DTypeLike,
    shape: int | Sequence[int] | None = None,
    region: Any = None,
    *,
    offset: int = 0,
    order: Order = "C",
    device: str = "auto",
    io: str = "auto",
    out: Any = None,
) -> Any:
    """Read a flat binary file, or a region of it, as one array.

    Parameters
    ----------
    path : str or os.PathLike
        The file.
    dtype : DTypeLike
        Type of one element, byte order included; or the SigMF name of a radio recording's samples,
        such as ``"ci16_le"``, which become complex64; see `open_raw`.
    shape : int or sequence of int, optional
        Lengths of the axes; None is one axis to the end of the file.
    region : slice or tuple of slice, optional
        What to read; see `load`.
    offset : int
        First byte of the data, counted from the start of the file.
    order : {"C", "F"}
        Which axis is contiguous.
    device : {"auto", "cpu", "gpu"}
        Where the array goes; see `load`.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        The way the bytes take; see `load`.
    out : numpy.ndarray or cupy.ndarray, optional
        Array to fill; see `load`.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        `out`, if it was given. Else a writable array, as from `load`.

    Raises
    ------
    LayoutError
        If the file is shorter than `shape`, or `region` or `out` does not suit.
    StaleFileError
        If the file changes while it is being read.
    DeviceError
        If a GPU is asked for and cannot be used.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/samples.bin"
    >>> np.arange(6, dtype="<i2").tofile(path)
    >>> load_raw(path, "<i2", region=slice(-2, None))
    array([4, 5], dtype=int16)
    """
    source = open_raw(path, dtype, shape, offset=offset, order=order)
    return _load(source, region, device=device, io=io, out=out)


def to_device(buffer: Any, dtype: DTypeLike | None = None, *, device: str = "auto") -> Any:
    r"""Show the bytes of a buffer as an array on a device.

    Parameters
    ----------
    buffer : mmap.mmap, memoryview, numpy.memmap or any other buffer without gaps
        On the CPU the array is a view: it keeps the buffer alive, and is as writable. On a GPU,
        and where samples must be decoded, it is a copy.
    dtype : DTypeLike, optional
        Type of one element, or the SigMF name of samples, as in `load_raw`; None means bytes
        (uint8).
    device : {"auto", "cpu", "gpu"}
        Where the array goes; see `load`.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        One axis; on a GPU see `load` for what a device cannot count.

    Raises
    ------
    LayoutError
        If the buffer has gaps, or does not hold a whole number of elements.
    DeviceError
        If a GPU is asked for and cannot be used.

    Examples
    --------
    >>> to_device(b"\x01\x00\x02\x00", "<u2")
    array([1, 2], dtype=uint16)
    """
    memory = _bytes(buffer)
    samples = sample_type(dtype)
    wanted = np.dtype(np.uint8 if dtype is None else dtype) if samples is None else samples.stored
    if not wanted.itemsize or len(memory) % wanted.itemsize:
        msg = f"{len(memory):,} bytes are no whole number of {wanted} ({wanted.itemsize} bytes)"
        raise LayoutError(msg)
    if _resolved(device, None) == "gpu":
        return uploading.gpu_bytes(memory, wanted, samples)
    stored = memory.view(wanted)
    return stored if samples is None else samples.decode(stored, np)


def block(source: Source, region: Region, *, io: str, device: str) -> Any:
    """Bring one region into memory, by the way that was asked for or the best one.

    Parameters
    ----------
    source : Source
        The file; its identity is checked before the region is touched, and again after a read.
    region : tuple of slice
        As ``source.layout.region`` makes it.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        The way the bytes take; see `load`.
    device : {"cpu", "gpu"}
        Where the block goes.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        The block, writable, samples decoded; it owns its memory, or its map.

    Raises
    ------
    StaleFileError
        If the file is not the one that was opened, or changes while it is being read.
    DeviceError
        If the device has not enough memory.
    """
    if device == "gpu":
        return uploading.gpu_block(source, region, io=io, out=None)
    stored = _stored(source, region, io)
    return stored if source.samples is None else source.samples.decode(stored, np)


def _stored(source: Source, region: Region, io: str) -> np.ndarray[Any, Any]:
    """Bring the stored elements of a region into the memory of this host."""
    layout = source.layout
    with source.opened() as fd:
        way = route(source, fd, region, io=io)
        if way.io == "mmap":
            if way.warm:
                warm(fd, layout, region)
            try:
                return map_region(fd, layout, region)
            except OSError as error:
                # A process may hold some 65,000 maps (vm.max_map_count), but any number of blocks.
                if io != "auto" or error.errno != errno.ENOMEM:
                    raise
        try:
            out = buffers.take(layout.block_shape(region), layout.dtype, layout.order)
        except (OSError, MemoryError) as error:
            msg = (
                f"{source.path}: no memory for a block of {layout.region_nbytes(region):,} bytes; "
                "make chunks smaller, or raise the limit of this process ('ulimit -v')"
            )
            raise MemoryError(msg) from error
        _read(source, fd, region, out, direct=way.io == "direct")
    return out


def route(source: Source, fd: int, region: Region, *, io: str) -> routes.Route:
    """Find the way of a region into the memory of this host.

    Parameters
    ----------
    source : Source
        The file.
    fd : int
        The same file, open for reading.
    region : tuple of slice
        As ``source.layout.region`` makes it.
    io : {"auto", "mmap", "pread", "direct"}
        ``"auto"`` looks before it chooses.

    Returns
    -------
    Route
        The way, and the reason.
    """
    way = routes.asked(io, "cpu")
    if way is not None:
        return way
    layout, mount = source.layout, mount_of(source.path)
    span = layout.span(region)
    return routes.choose(
        routes.Facts(
            kind=mount.kind,
            local=mount.local,
            readahead_nbytes=mount.readahead_nbytes,
            resident=resident_fraction(fd, span) if mount.local else None,
            span_nbytes=span.nbytes,
            nbytes=layout.region_nbytes(region),
            memory_nbytes=_MEMORY_NBYTES,
        )
    )


def explain(source: Source, region: Any = None, *, device: str = "auto", io: str = "auto") -> str:
    """Say by which way a region would come into memory now, and why.

    Parameters
    ----------
    source : Source
        The file.
    region : slice or tuple of slice, optional
        What would be read; None is everything.
    device : {"auto", "cpu", "gpu"}
        Where it would go; see `load`.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        The way that would be asked for; see `load`.

    Returns
    -------
    str
        The way and the reason. With ``io="auto"`` on a GPU, a region that is large enough for it is
        measured, if no such region was before.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/ramp.npy"
    >>> np.save(path, np.arange(12))
    >>> explain(open_npy(path), device="cpu", io="pread")
    'pread: io="pread" was asked for'
    """
    part = source.layout.region(region)
    find = uploading.gpu_way if _resolved(device, None) == "gpu" else route
    with source.opened() as fd:
        way = find(source, fd, part, io=io)
    return f"{way.io}: {way.reason}"


def _load(source: Source, index: Any, *, device: str, io: str, out: Any) -> Any:
    region = source.layout.region(index)
    if _resolved(device, out) == "gpu":
        return uploading.gpu_block(source, region, io=io, out=out)
    if out is None:
        return block(source, region, io=io, device="cpu")
    _check_out(source, region, out)
    way = routes.asked(io, "cpu")
    if source.samples is not None or (way is not None and way.io == "mmap"):
        out[...] = block(source, region, io=io, device="cpu")
        return out
    # Who brings memory wants it filled, and reading fills it faster than copying from a map.
    with source.opened() as fd:
        _read(source, fd, region, out, direct=way is not None and way.io == "direct")
    return out


def _read(
    source: Source, fd: int, region: Region, out: np.ndarray[Any, Any], *, direct: bool
) -> None:
    read_region(
        fd,
        source.layout,
        region,
        out,
        direct=direct,
        threads=_THREADS,
        piece_nbytes=_DIRECT_PIECE_NBYTES if direct else _PIECE_NBYTES,
    )
    # Opened once more: what changed in the meantime may have left old and new bytes in the block.
    with source.opened():
        pass


def _check_out(source: Source, region: Region, out: Any) -> None:
    if not isinstance(out, np.ndarray):
        msg = f'{source.path}: out is a {type(out).__name__}; device="cpu" fills a numpy.ndarray'
        raise LayoutError(msg)
    layout = source.layout
    element = np.empty((), source.dtype)
    shape = layout.block_shape(region) + element.shape
    if (out.shape, out.dtype) != (shape, element.dtype):
        msg = (
            f"{source.path}: the region is {element.dtype} of shape {shape}, out is {out.dtype} of "
            f'shape {out.shape}; write np.empty({shape}, "{element.dtype}", order="{layout.order}")'
        )
        raise LayoutError(msg)
    axes = (*layout.axes, *range(layout.ndim, out.ndim))
    if not (out.transpose(axes).flags.c_contiguous and out.flags.writeable):
        msg = (
            f"{source.path}: out must be writable and without gaps in the file's order; write "
            f'np.empty({shape}, "{element.dtype}", order="{layout.order}")'
        )
        raise LayoutError(msg)


def _bytes(buffer: Any) -> np.ndarray[Any, Any]:
    # Arrays are viewed, not exported: dates have no buffer format, and Fortran order is no gap.
    if isinstance(buffer, np.ndarray) and buffer.flags.forc:
        return np.asarray(buffer).ravel("K").view(np.uint8)
    try:
        return np.frombuffer(buffer, np.uint8)
    except (BufferError, ValueError) as error:
        msg = f"a {type(buffer).__name__} cannot be shown as bytes, {error}; copy it first"
        raise LayoutError(msg) from error


def _resolved(device: str, out: Any) -> Literal["cpu", "gpu"]:
    """Choose the device; an array that is to be filled has one."""
    if device == "auto" and out is not None:
        return "gpu" if transfers.on_device(out) else "cpu"
    return chosen_device(device)

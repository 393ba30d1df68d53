"""How does a file become one array, now? `load`, `load_raw`, and `to_device` for bytes in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mmchunks.errors import LayoutError
from mmchunks.files.raw import sample_type
from mmchunks.gpu import transfers
from mmchunks.gpu.devices import chosen_device
from mmchunks.reading import uploading
from mmchunks.reading.opening import as_source, open_raw
from mmchunks.reading.regions import block, fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike
    from typing_extensions import Buffer

    from mmchunks.files.layout import Array, Block, Index, Order, Region
    from mmchunks.files.sources import File, Source

__all__ = ["load", "load_raw", "to_device"]


def load(
    path: File,
    region: Index = None,
    *,
    device: str = "auto",
    io: str = "auto",
    out: Array | None = None,
) -> Any:
    """Read a ``.npy`` file, or a region of it, as one array.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
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
    return _load(as_source(path), region, device=device, io=io, out=out)


def load_raw(
    path: File,
    dtype: DTypeLike,
    shape: int | Sequence[int] | None = None,
    region: Index = None,
    *,
    offset: int = 0,
    order: Order = "C",
    device: str = "auto",
    io: str = "auto",
    out: Array | None = None,
) -> Any:
    """Read a flat binary file, or a region of it, as one array.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
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


def to_device(buffer: Buffer, dtype: DTypeLike | None = None, *, device: str = "auto") -> Any:
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
    if chosen_device(device) == "gpu":
        return uploading.gpu_bytes(memory, wanted, samples)
    stored = memory.view(wanted)
    return stored if samples is None else samples.decode(stored, np)


def _load(source: Source, index: Index, *, device: str, io: str, out: Any) -> Any:
    region = source.layout.region(index)
    if _device(device, out) == "gpu":
        return uploading.gpu_block(source, region, io=io, out=out)
    if out is None:
        return block(source, region, io=io, device="cpu")
    _check_out(source, region, out)
    fill(source, region, out, io=io)
    return out


def _check_out(source: Source, region: Region, out: object) -> None:
    if not isinstance(out, np.ndarray):
        msg = f'{source.path}: out is a {type(out).__name__}; device="cpu" fills a numpy.ndarray'
        raise LayoutError(msg)
    layout = source.layout
    element: Block = np.ndarray((), source.dtype)
    shape = layout[region].shape + element.shape
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


def _bytes(buffer: Buffer) -> Block:
    # Arrays are viewed, not exported: dates have no buffer format, and Fortran order is no gap.
    if isinstance(buffer, np.ndarray) and buffer.flags.forc:
        return np.asarray(buffer).ravel("K").view(np.uint8)
    try:
        return np.frombuffer(memoryview(buffer), np.uint8)
    except (BufferError, ValueError) as error:
        msg = f"a {type(buffer).__name__} cannot be shown as bytes, {error}; copy it first"
        raise LayoutError(msg) from error


def _device(device: str, out: object) -> Literal["cpu", "gpu"]:
    """Choose the device; an array that is to be filled has one."""
    if device == "auto" and out is not None:
        return "gpu" if transfers.on_device(out) else "cpu"
    return chosen_device(device)

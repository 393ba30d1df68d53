"""How do arrays come onto the GPU of this process, and back? Through the ring of its lane.

upload      dense byte stream of a region --ring--> bytes --swap--> bytes --view--> array
download    array --dense, stored byte order--> bytes --ring--> dense byte stream
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar, overload

import numpy as np

from mmchunks.errors import DeviceError
from mmchunks.gpu.devices import cupy_module, memory, place
from mmchunks.gpu.forms import device_form, flat, swap, unpack
from mmchunks.gpu.lanes import Lane
from mmchunks.gpu.ring import RING, RingSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeGuard

    from mmchunks.files.layout import Array, Block, DType, Order
    from mmchunks.gpu.cupytypes import CuArray
    from mmchunks.gpu.gds import DirectRead

__all__ = ["check_out", "download", "empty", "on_device", "on_host", "own", "upload"]

_T = TypeVar("_T")

_making = threading.Lock()
_lanes: dict[tuple[int, RingSpec], Lane] = {}


def _lane(spec: RingSpec) -> Lane:
    """Keep one lane a device and kind of ring, for as long as the process lives."""
    gpu = place()
    with _making:
        if (gpu, spec) not in _lanes:
            _lanes[gpu, spec] = Lane(cupy_module(), gpu, spec)
        return _lanes[gpu, spec]


def upload(
    nbytes: int,
    fill: Callable[[int, memoryview], None],
    shape: tuple[int, ...],
    dtype: DType,
    order: Order,
    *,
    out: CuArray | None = None,
    readers: int = 1,
    direct: DirectRead | None = None,
    ring: RingSpec = RING,
) -> CuArray:
    """Bring a dense byte stream onto the GPU of this process, as an array.

    Parameters
    ----------
    nbytes : int
        Length of the stream.
    fill : callable
        ``fill(start, memory)`` reads the bytes of the stream from `start` on until `memory`, a
        slot of the ring, is full. With several `readers` it is called by as many threads at once.
    shape : tuple of int
        Axes of the array, in NumPy's order.
    dtype : dtype
        Type of the elements as stored, byte order included.
    order : {"C", "F"}
        Order of the elements in the stream, and of the array on the device.
    out : cupy.ndarray, optional
        Filled, and returned, instead of a new array from CuPy's current pool.
    readers : int
        Threads that read; one already overlaps reading and copying.
    direct : DirectRead, optional
        The part of the stream that GPUDirect Storage reads; the ring brings the rest.
    ring : RingSpec
        Slots to copy through; a process keeps them for the next time.

    Returns
    -------
    cupy.ndarray
        Ready on the current stream. What a device cannot count arrives as bytes, see `forms`.

    Raises
    ------
    DeviceError
        If the device has not enough memory, or `out` is not an array for these elements.
    """
    lane = _lane(ring)
    form = device_form(np.dtype(dtype))
    inside = None
    if out is not None:
        check_out(out, shape + form.tail, form.dtype, lane.gpu)
        inside = flat(out, len(shape), order)
    data = _empty(nbytes) if inside is None else inside
    if nbytes:
        lane.fill(data, fill, readers, direct)
        swap(data, form.word, ring.slot_nbytes)
    block = unpack(data, shape, form, order)
    if out is None:
        return block
    if inside is None:
        out[...] = block
    return out


def download(
    block: CuArray,
    dtype: DType,
    order: Order,
    write: Callable[[int, memoryview], None],
    *,
    ring: RingSpec = RING,
) -> None:
    """Bring an array from the GPU, as the dense byte stream of a file.

    Parameters
    ----------
    block : cupy.ndarray
        Numbers; left as they are.
    dtype : dtype
        Type of the elements in the file, byte order included.
    order : {"C", "F"}
        Order of the elements in the file.
    write : callable
        ``write(start, memory)`` stores the bytes of the stream from `start` on, in order; the
        memory is a slot of the ring, and may not be kept.
    ring : RingSpec
        Slots to copy through.

    Raises
    ------
    DeviceError
        If a device has no numbers of type `dtype`.
    """
    lane = _lane(ring)
    form = device_form(np.dtype(dtype))
    if form.tail:
        msg = f"a device has no numbers of type {dtype}; bring the block to the CPU first"
        raise DeviceError(msg)
    turned = block.astype(form.dtype, order=order, copy=form.word > 1)  # a swap is in place
    data = flat(turned, turned.ndim, order)
    assert data is not None
    swap(data, form.word, ring.slot_nbytes)
    lane.drain(data, write)


# An array of ours that lies on a GPU is CuPy's; those of other libraries become so by `own`.
@overload
def on_device(array: Array) -> TypeGuard[CuArray]: ...
@overload
def on_device(array: object) -> bool: ...
def on_device(array: object) -> bool:
    """Tell whether an array, of whatever library, lies on a GPU.

    Examples
    --------
    >>> on_device(np.zeros(3))
    False
    """
    return hasattr(array, "__cuda_array_interface__")


def on_host(array: _T) -> _T | Block:
    """Bring an array that lies on a GPU, of whatever library, to the host; leave anything else.

    Examples
    --------
    >>> on_host([1, 2])
    [1, 2]
    """
    return own(array).get() if on_device(array) else array


def own(array: object) -> CuArray:
    """See an array that lies on a GPU, of whatever library, as CuPy's; nothing is copied.

    Raises
    ------
    DeviceError
        If CuPy is not installed.
    """
    return cupy_module().asarray(array)


def empty(device: str, shape: tuple[int, ...], dtype: DType) -> Array:
    """Make an array of what `upload` would bring, not filled.

    Examples
    --------
    >>> empty("cpu", (0, 3), np.dtype(">f4")).dtype
    dtype('>f4')
    """
    if device == "cpu":
        block: Block = np.ndarray(shape, dtype)  # not np.empty, which makes U1 of U0
        return block
    form = device_form(np.dtype(dtype))
    place()
    return cupy_module().empty(shape + form.tail, form.dtype)


def _empty(nbytes: int) -> CuArray:
    """Take bytes from CuPy's current pool."""
    cupy = cupy_module()
    try:
        return cupy.empty(nbytes, np.uint8)
    except cupy.cuda.memory.OutOfMemoryError as error:
        there = memory()
        msg = (
            f"a block takes {nbytes:,} bytes, and the GPU has {there.free:,} free of "
            f"{there.total:,}; pass smaller chunks=, or device_memory= to have them chosen"
        )
        raise DeviceError(msg) from error


def check_out(out: object, shape: tuple[int, ...], dtype: DType, gpu: int) -> None:
    """Refuse an array that the elements do not fit into.

    Raises
    ------
    DeviceError
        If `out` is no array of this shape and dtype on this GPU; it says what would be.
    """
    if not isinstance(out, cupy_module().ndarray):
        msg = f'out is a {type(out).__name__}; device="gpu" fills a cupy.ndarray'
        raise DeviceError(msg)
    if out.shape != shape or out.dtype != dtype:
        msg = f"out is {out.dtype} of shape {out.shape}; make it {dtype} of shape {shape}"
        raise DeviceError(msg)
    if out.device.id != gpu:
        msg = f"out lies on GPU {out.device.id}, this process computes on GPU {gpu}"
        raise DeviceError(msg)

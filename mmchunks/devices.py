"""Which GPU is this process's, and how do arrays come onto it and back? The one door to CuPy.

upload      dense byte stream of a region --ring--> bytes --swap--> bytes --view--> array
download    array --dense, stored byte order--> bytes --ring--> dense byte stream
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mmchunks import hostmemory
from mmchunks.errors import DeviceError
from mmchunks.lanes import Lane, RingSpec
from mmchunks.placement import choose_device, choose_gpu, local_rank, no_cupy
from mmchunks.unpacking import device_form, flat, swap, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mmchunks.gds import DirectRead
    from mmchunks.layout import Order

__all__ = [
    "RING",
    "DeviceMemory",
    "RingSpec",
    "addressable",
    "check_out",
    "count",
    "cupy_module",
    "download",
    "empty",
    "memory",
    "place",
    "registered",
    "resolve",
    "seconds",
    "upload",
]


RING = RingSpec(slots=4, slot_nbytes=2**23, memory="pinned")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of one device."""

    free: int
    """Bytes that new arrays could have: not in use, or kept by CuPy's pool for reuse; no more than
    what is left of the pool's limit, where it has one."""

    total: int
    """Bytes of the device."""


def cupy_module() -> Any:
    """Import CuPy.

    Raises
    ------
    DeviceError
        If it is not installed; the sentence names the extra.
    """
    try:
        import cupy
    except ImportError as error:
        raise DeviceError(no_cupy('device="gpu"')) from error
    return cupy


@functools.cache
def count() -> int:
    """Count the GPUs that answer in this process; 0 without CuPy or without a driver."""
    try:
        runtime = cupy_module().cuda.runtime
    except DeviceError:
        return 0
    _first_pid()
    try:
        return int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError:
        return 0


def resolve(device: str, backend: str | None) -> Literal["cpu", "gpu"]:
    """Choose between the CPU and a GPU.

    Parameters
    ----------
    device : str
        ``"cpu"``, ``"gpu"`` or ``"auto"``.
    backend : str or None
        Dask's ``array.backend``, if the user set it.

    Raises
    ------
    DeviceError
        If a GPU was asked for and cannot be had.

    Examples
    --------
    >>> resolve("cpu", None)
    'cpu'
    """
    if device == "cpu" or (device == "auto" and backend == "numpy"):
        return "cpu"  # without importing CuPy, which takes a second
    return choose_device(device, backend=backend, installed=_installed(), count=count())


def _installed() -> bool:
    try:
        cupy_module()
    except DeviceError:
        return False
    return True


def place() -> int:
    """Make this process's own GPU the current one of this thread, and return its index.

    Raises
    ------
    DeviceError
        If the host runs more workers than it has GPUs, or the process was forked from one that
        had used a GPU.
    """
    cupy = cupy_module()
    choose_device("gpu", backend=None, installed=True, count=count())
    if _first_pid() != os.getpid():
        msg = (
            "this process was forked from one that had used a GPU, which CUDA cannot survive; "
            'start workers with "spawn", as local_client() and dask do'
        )
        raise DeviceError(msg)
    rank = local_rank(os.environ, _worker_name())
    gpu = choose_gpu(count(), rank=rank, rotated="dask_cuda.initialize" in sys.modules)
    if gpu is not None:
        cupy.cuda.Device(gpu).use()
    return int(cupy.cuda.runtime.getDevice())


def _worker_name() -> Any:
    """Name of the dask worker that runs this, if any; dask itself is not imported to ask."""
    module = sys.modules.get("distributed.worker")
    if module is None:
        return None
    try:
        return module.get_worker().name
    except ValueError:
        return None


@functools.cache
def _first_pid() -> int:
    """Tell which process asked CUDA first; a forked child inherits the answer, and the trouble."""
    return os.getpid()


def memory() -> DeviceMemory:
    """Tell how much memory the GPU of this process has.

    Raises
    ------
    DeviceError
        If there is no GPU.
    """
    place()
    cupy = cupy_module()
    free, total = cupy.cuda.runtime.memGetInfo()
    pool = cupy.get_default_memory_pool()
    free += pool.free_bytes()
    if pool.get_limit():  # 0: none
        free = min(free, pool.get_limit() - pool.used_bytes())
    return DeviceMemory(free=int(free), total=int(total))


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
    dtype: np.dtype[Any],
    order: Order,
    *,
    out: Any = None,
    readers: int = 1,
    direct: DirectRead | None = None,
    ring: RingSpec = RING,
) -> Any:
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
        Ready on the current stream. What a device cannot count arrives as bytes, see `unpacking`.

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
    block: Any,
    dtype: np.dtype[Any],
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


def empty(device: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Make an array of what `upload` would bring, not filled.

    Examples
    --------
    >>> empty("cpu", (0, 3), np.dtype(">f4")).dtype
    dtype('>f4')
    """
    if device == "cpu":
        return np.empty(shape, dtype)
    form = device_form(np.dtype(dtype))
    place()
    return cupy_module().empty(shape + form.tail, form.dtype)


def _empty(nbytes: int) -> Any:
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


def check_out(out: Any, shape: tuple[int, ...], dtype: np.dtype[Any], gpu: int) -> None:
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


def registered(memory: Any) -> AbstractContextManager[None]:
    """Page-lock a map for the GPU of this process; see `hostmemory.registered`."""
    return hostmemory.registered(memory, cupy_module().cuda.runtime, place())


def addressable(array: np.ndarray[Any, Any]) -> Any:
    """Give the GPU of this process a map itself; see `hostmemory.addressable`."""
    return hostmemory.addressable(array, cupy_module(), place())


def seconds(action: Callable[[], Any]) -> float:
    """Tell how long an action takes, until the current stream has done its part.

    Raises
    ------
    DeviceError
        If there is no GPU.
    """
    place()
    stream = cupy_module().cuda.get_current_stream()
    stream.synchronize()
    start = time.perf_counter()
    action()
    stream.synchronize()
    return time.perf_counter() - start

"""Which GPU is this process's, and what can it do? The one door to CuPy."""

from __future__ import annotations

import functools
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from mmchunks.errors import DeviceError
from mmchunks.gpu import hostmemory
from mmchunks.gpu.placement import choose_device, choose_gpu, local_rank, no_cupy

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmchunks.files.layout import Block
    from mmchunks.gpu.cupytypes import CuArray, CuPy

__all__ = [
    "DeviceMemory",
    "addressable",
    "chosen_backend",
    "chosen_device",
    "count",
    "cupy_module",
    "memory",
    "place",
    "seconds",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """Memory of one device."""

    free: int
    """Bytes that new arrays could have: not in use, or kept by CuPy's pool for reuse; no more than
    what is left of the pool's limit, where it has one."""

    total: int
    """Bytes of the device."""


def cupy_module() -> CuPy:
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
    module: CuPy = cupy
    return module


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


def _worker_name() -> str | int | None:
    """Name of the dask worker that runs this, if any; dask itself is not imported to ask."""
    module = sys.modules.get("distributed.worker")
    if module is None:
        return None
    try:
        name: str | int | None = module.get_worker().name
    except ValueError:
        return None
    return name


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


def addressable(array: Block) -> CuArray:
    """Give the GPU of this process a map itself; see `hostmemory.addressable`."""
    return hostmemory.addressable(array, cupy_module(), place())


def seconds(action: Callable[[], object]) -> float:
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


def chosen_device(device: str) -> Literal["cpu", "gpu"]:
    """Choose between the CPU and a GPU; dask's settings are asked only for ``"auto"``.

    Raises
    ------
    DeviceError
        If a GPU was asked for and cannot be had.
    """
    backend = chosen_backend() if device == "auto" else None
    if device == "cpu" or backend == "numpy":
        return "cpu"  # without importing CuPy, which takes a second
    return choose_device(device, backend=backend, installed=_installed(), count=count())


def chosen_backend() -> str | None:
    """Read dask's ``array.backend``; None where the user left it at dask's default.

    Notes
    -----
    ``"numpy"`` is the default, and counts as chosen only in a configuration file or in the
    environment: ``dask.config.set`` leaves no trace of it. Write ``device="cpu"`` there.
    """
    import dask.config

    backend: str = dask.config.get("array.backend", "numpy")
    if backend != "numpy":
        return backend
    written: str | None = dask.config.get("array.backend", None, config=dask.config.collect())
    return written

"""Which host memory can a device reach, and on what terms? Each is granted, or refused in a sentence.

huge pages     fewer and larger pages for the slots of a ring; needs transparent huge pages
locked         never swapped out; needs RLIMIT_MEMLOCK
registered     a map's pages, page-locked for CUDA: copied from without a slot on the way
addressable    a map's pages, as the device itself sees them (HMM, Grace): not copied at all
"""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import DeviceError
from mmchunks.gpu.forms import device_form

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["address", "addressable", "huge_pages", "lock", "register", "registered"]

_HUGE = 2**21
_MADV_HUGEPAGE = 14

# cudaDeviceAttr and cudaHostRegister flags; CuPy names only some of them.
_PAGEABLE_ACCESS = 88
_REGISTER_SUPPORTED = 99
_REGISTER_READONLY_SUPPORTED = 113
_PORTABLE = 1
_READONLY = 8

_libc = ctypes.CDLL(None, use_errno=True)


def address(memory: Any) -> int:
    """Tell where the first byte of a buffer lies."""
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


def huge_pages(nbytes: int) -> memoryview:
    """Make a buffer that starts on a huge page and asks for more of them.

    Raises
    ------
    DeviceError
        If the kernel gives none.

    Examples
    --------
    >>> slot = huge_pages(2**22)  # doctest: +SKIP
    """
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[never]" in setting.read_text():
        msg = f"{setting}: huge pages are off; write madvise to it, or do without them"
        raise DeviceError(msg)
    spare = np.empty(nbytes + _HUGE, np.uint8)
    skip = -spare.ctypes.data % _HUGE
    memory = spare[skip : skip + nbytes]
    _call("madvise", memory.data, _MADV_HUGEPAGE, refused="huge pages were refused")
    return memory.data


def lock(memory: memoryview) -> memoryview:
    """Lock the pages of a buffer in memory, and return it.

    Raises
    ------
    DeviceError
        If the process may not lock as much.
    """
    refused = f"{memory.nbytes:,} bytes were not locked; raise `ulimit -l`, or do without locking"
    _call("mlock", memory, refused=refused)
    return memory


def _call(name: str, memory: memoryview, *arguments: int, refused: str) -> None:
    """Call a function of libc that takes a range of memory."""
    where, nbytes = ctypes.c_void_p(address(memory)), ctypes.c_size_t(memory.nbytes)
    if getattr(_libc, name)(where, nbytes, *arguments):
        msg = f"{refused} ({name}: {os.strerror(ctypes.get_errno())})"
        raise DeviceError(msg)


def register(memory: Any, runtime: Any, gpu: int) -> None:
    """Page-lock somebody's memory for CUDA, until ``runtime.hostUnregister`` or the process's end.

    Parameters
    ----------
    memory : buffer
        For example a NumPy array over a map. Pages of a read-only one are registered read-only.
    runtime : module
        ``cupy.cuda.runtime``.
    gpu : int
        Index of the device, which must be the current one.

    Raises
    ------
    DeviceError
        If the device cannot do it, or the kernel refuses to pin these pages; writable shared maps
        of files on disk are refused since Linux 6.5.

    Notes
    -----
    A *private* writable map would be copied page by page as it is pinned: register a read-only
    one.
    """
    readonly = memoryview(memory).readonly
    attribute = _REGISTER_READONLY_SUPPORTED if readonly else _REGISTER_SUPPORTED
    if not runtime.deviceGetAttribute(attribute, gpu):
        msg = (
            f"GPU {gpu} cannot register {'read-only' if readonly else 'host'} memory; "
            'write io="pread", which copies through page-locked slots'
        )
        raise DeviceError(msg)
    flags = _PORTABLE | (_READONLY if readonly else 0)
    try:
        runtime.hostRegister(address(memory), memoryview(memory).nbytes, flags)
    except runtime.CUDARuntimeError as error:
        msg = f'the map was not registered ({error}); write io="pread" instead'
        raise DeviceError(msg) from error


@contextmanager
def registered(memory: Any, runtime: Any, gpu: int) -> Iterator[None]:
    """Page-lock somebody's memory while a ``with`` block lasts; see `register`.

    The block must not end before the copies from the memory have.
    """
    register(memory, runtime, gpu)
    try:
        yield
    finally:
        runtime.hostUnregister(address(memory))


def addressable(array: np.ndarray[Any, Any], cupy: Any, gpu: int) -> Any:
    """Give the device a map itself: a CuPy array over the memory of a NumPy array.

    Parameters
    ----------
    array : numpy.ndarray
        Of numbers in the byte order of the machine; the result keeps it alive.
    cupy : module
        ``cupy``.
    gpu : int
        Index of the device.

    Raises
    ------
    DeviceError
        If the device does not address pageable memory, or has no such type.
    """
    form = device_form(array.dtype)
    if not cupy.cuda.runtime.deviceGetAttribute(_PAGEABLE_ACCESS, gpu):
        msg = (
            f"GPU {gpu} does not address pageable memory (HMM and Grace do), "
            'so a map cannot be its block; write io="pread"'
        )
        raise DeviceError(msg)
    if form.tail or form.word > 1 or not array.flags.aligned:
        msg = f'a device cannot use {array.dtype} where it lies in the file; write io="pread"'
        raise DeviceError(msg)
    memory = cupy.cuda.UnownedMemory(array.ctypes.data, max(array.nbytes, 1), array, gpu)
    pointer = cupy.cuda.MemoryPointer(memory, 0)
    return cupy.ndarray(array.shape, form.dtype, memptr=pointer, strides=array.strides)

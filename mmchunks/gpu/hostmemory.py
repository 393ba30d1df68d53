"""Which host memory can a device reach by itself? A map's pages, where it addresses them (HMM, Grace).

Page-locking the pages of a map (``cudaHostRegister``), huge pages and locks for the slots of a ring
were doors here that nobody used: a writable map of a file is refused by kernels since 6.5, and
CUDA's own page-locked memory is what copies run from fastest. ``benchmarks/gpu.py`` measures both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mmchunks.errors import DeviceError
from mmchunks.gpu.forms import device_form

if TYPE_CHECKING:
    from mmchunks.files.layout import Block
    from mmchunks.gpu.cupytypes import CuArray, CuPy

__all__ = ["address", "addressable"]

_PAGEABLE_ACCESS = 88  # a cudaDeviceAttr, which CuPy does not name


def address(memory: memoryview) -> int:
    """Tell where the first byte of a buffer lies."""
    return int(np.frombuffer(memory, np.uint8).ctypes.data)


def addressable(array: Block, cupy: CuPy, gpu: int) -> CuArray:
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

"""Placeholder: map one region of a file."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mmchunks.layout import Layout, Region


def map_region(fd: int, layout: Layout, region: Region, **advice: bool) -> np.ndarray[Any, Any]:
    """Map `region`, private and copy-on-write."""
    del advice
    span = layout.span(region)
    shape = layout.block_shape(region)
    if not span.nbytes:
        return np.empty(shape, layout.dtype, order=layout.order)
    pages = span.pages(mmap.ALLOCATIONGRANULARITY)
    memory = mmap.mmap(fd, span.stop - pages.offset, offset=pages.offset, access=mmap.ACCESS_COPY)
    flat = np.frombuffer(memory, np.uint8, offset=span.offset - pages.offset)
    return np.ndarray(shape, layout.dtype, buffer=flat, strides=layout.strides)

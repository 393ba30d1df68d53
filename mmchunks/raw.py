"""Which array lies in a flat binary file of so many bytes? Arithmetic, no file is touched."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import LayoutError
from mmchunks.layout import Layout, as_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from mmchunks.layout import Order

__all__ = ["raw_layout"]


def raw_layout(
    dtype: DTypeLike,
    shape: int | Sequence[int] | None,
    *,
    offset: int,
    order: Order,
    file_nbytes: int,
) -> Layout:
    """Lay an array over a flat binary file.

    Parameters
    ----------
    dtype : DTypeLike
        Type of one element, byte order included.
    shape : int, sequence of int, or None
        Lengths of the axes; one may be -1, as many as the file holds. None means ``-1``.
    offset : int
        First byte of the data, counted from the start of the file.
    order : {"C", "F"}
        Which axis is contiguous.
    file_nbytes : int
        Length of the file in bytes.

    Returns
    -------
    Layout
        Lies within the file.

    Raises
    ------
    LayoutError
        If the file is too short, or does not end with a whole step of the axis that is -1.

    Examples
    --------
    >>> raw_layout("<f4", (-1, 3), offset=8, order="C", file_nbytes=32).shape
    (2, 3)
    """
    element = np.dtype(dtype)
    if element.subdtype:
        base, inner = element.subdtype
        msg = f"dtype {element} is an array of every element; write {base} and add {inner} to shape"
        raise LayoutError(msg)
    if not 0 <= offset <= file_nbytes:
        msg = f"offset {offset:,} lies outside the file, which holds {file_nbytes:,} bytes"
        raise LayoutError(msg)
    held = file_nbytes - offset
    lengths = _to_the_end((-1,) if shape is None else as_shape(shape), element, held)
    layout = Layout(shape=lengths, dtype=element, order=order, offset=offset)
    if layout.nbytes > held:
        msg = (
            f"shape {layout.shape} of {element} takes {layout.nbytes:,} bytes, "
            f"file holds {held:,} after offset {offset:,}"
        )
        raise LayoutError(msg)
    return layout


def _to_the_end(lengths: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> tuple[int, ...]:
    """Replace a -1 by as many as `nbytes` bytes hold."""
    if -1 not in lengths:
        return lengths
    step = math.prod(n for n in lengths if n != -1) * dtype.itemsize
    if lengths.count(-1) > 1 or step <= 0:
        msg = f"shape {lengths} of {dtype} leaves open what -1 stands for; write the number"
        raise LayoutError(msg)
    if nbytes % step:
        msg = (
            f"the file holds {nbytes:,} bytes from offset to its end, which is {nbytes % step:,} "
            f"more than {nbytes // step:,} times {step:,} bytes (shape {lengths} of {dtype}); "
            f"for those write {nbytes // step} instead of -1"
        )
        raise LayoutError(msg)
    return tuple(nbytes // step if n == -1 else n for n in lengths)

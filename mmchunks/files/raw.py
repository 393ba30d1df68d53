"""Which array lies in a flat binary file, by its dtype or by the name of a radio recording's samples?

SigMF names one sample of a recording: ``c`` complex or ``r`` real, the kind and width of one
number, and its byte order (8-bit numbers have none)::

    c i 16 _le        file   |I0 .|Q0 .|I1 .|Q1 .| ...      one complete sample: 4 bytes
    r f 32 _be        file   |. . . .|. . . .| ...          one complete sample: 4 bytes

A complete sample is one element of the stored dtype, so that every arithmetic on layouts holds. It
is decoded when it is read: values as stored, neither scaled nor shifted. No file is touched here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import LayoutError
from mmchunks.files.layout import Layout, as_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike

    from mmchunks.files.layout import Array, ArrayModule, DType, Order

__all__ = ["Samples", "raw_layout", "sample_type"]


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


def _to_the_end(lengths: tuple[int, ...], dtype: DType, nbytes: int) -> tuple[int, ...]:
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


_NAME = re.compile(r"(?P<form>[cr])(?P<kind>[fiu])(?P<bits>\d+)(?P<order>_le|_be)?")
_WIDTHS = {"f": (32, 64), "i": (8, 16, 32), "u": (8, 16, 32)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One kind of sample: how it is stored, and what it becomes."""

    name: str
    """The SigMF name."""

    stored: DType
    """One complete sample in the file; complex integers have the fields ``"i"`` and ``"q"``."""

    result: DType
    """What `decode` makes of it, in the byte order of this machine."""

    def decode(self, block: Any, xp: ArrayModule) -> Array:
        """Turn stored samples into numbers: values as stored, neither scaled nor shifted.

        Parameters
        ----------
        block : array
            Samples of dtype `stored`, of any shape and strides. On a device, where integers have
            no fields, anything whose ``block["i"]`` and ``block["q"]`` are arrays will do.
        xp : module
            ``numpy`` or ``cupy``, whichever made the block.

        Returns
        -------
        array
            A new array of dtype `result` and of the block's shape; the block itself where it
            already is one.

        Examples
        --------
        >>> pairs = np.array([1, -2, 3, 4], dtype="<i2").view(sample_type("ci16_le").stored)
        >>> sample_type("ci16_le").decode(pairs, np)
        array([1.-2.j, 3.+4.j], dtype=complex64)
        """
        if self.stored.names is None:
            numbers: Array = block.astype(self.result, copy=False)
            return numbers
        i, q = block["i"], block["q"]
        # "K" of a strided field follows its strides: a Fortran block stays one.
        numbers = xp.empty_like(i, dtype=self.result)
        numbers.real = i
        numbers.imag = q
        return numbers


def sample_type(name: object) -> Samples | None:
    """Read a SigMF name such as ``"ci16_le"``; None for what only NumPy can judge.

    Raises
    ------
    LayoutError
        For a name of that form that SigMF does not have, or without its byte order.

    Examples
    --------
    >>> sample_type("cu8").stored.itemsize, sample_type("cf64_be").result
    (2, dtype('complex128'))
    >>> sample_type("<i2") is None
    True
    """
    if not isinstance(name, str) or (match := _NAME.fullmatch(name)) is None:
        return None
    form, kind, bits = match["form"], match["kind"], int(match["bits"])
    _check(name, kind, bits, match["order"])
    number = np.dtype(f"{'>' if match['order'] == '_be' else '<'}{kind}{bits // 8}")
    if form == "r":
        return Samples(name=name, stored=number, result=number.newbyteorder("="))
    result = np.dtype("c16" if (kind, bits) == ("f", 64) else "c8")
    pair: DType = np.dtype([("i", number), ("q", number)])
    stored = result.newbyteorder(number.byteorder) if kind == "f" else pair
    return Samples(name=name, stored=stored, result=result)


def _check(name: str, kind: str, bits: int, order: str | None) -> None:
    """Refuse what has the form of a SigMF name and is none."""
    if bits not in _WIDTHS[kind]:
        widths = ", ".join(f"{kind}{width}" for width in _WIDTHS[kind])
        msg = f"{name!r} is no SigMF sample type: {kind!r} numbers are {widths}"
    elif bits == 8 and order:
        msg = f"{name!r} names a byte order, 8-bit numbers have none; write {name[:-3]!r}"
    elif bits > 8 and not order:
        msg = f'{name!r} does not say its byte order; write "{name}_le" or "{name}_be"'
    else:
        return
    raise LayoutError(msg)

"""What does the name of a radio recording's samples say about its bytes? SigMF, read and decoded.

SigMF names one sample of a recording: ``c`` complex or ``r`` real, the kind and width of one
number, and its byte order (8-bit numbers have none)::

    c i 16 _le        file   |I0 .|Q0 .|I1 .|Q1 .| ...      one complete sample: 4 bytes
    r f 32 _be        file   |. . . .|. . . .| ...          one complete sample: 4 bytes

A complete sample is one element of the stored dtype, so that every arithmetic on layouts holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from mmchunks.errors import LayoutError

__all__ = ["Samples", "sample_type"]

_NAME = re.compile(r"(?P<form>[cr])(?P<kind>[fiu])(?P<bits>\d+)(?P<order>_le|_be)?")
_WIDTHS = {"f": (32, 64), "i": (8, 16, 32), "u": (8, 16, 32)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """One kind of sample: how it is stored, and what it becomes."""

    name: str
    """The SigMF name."""

    stored: np.dtype[Any]
    """One complete sample in the file; complex integers have the fields ``"i"`` and ``"q"``."""

    result: np.dtype[Any]
    """What `decode` makes of it, in the byte order of this machine."""

    def decode(self, block: Any, xp: Any) -> Any:
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
            return block.astype(self.result, copy=False)
        i, q = block["i"], block["q"]
        # "K" of a strided field follows its strides: a Fortran block stays one.
        numbers = xp.empty_like(i, dtype=self.result)
        numbers.real = i
        numbers.imag = q
        return numbers


def sample_type(name: Any) -> Samples | None:
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
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        return None
    form, kind, bits = match["form"], match["kind"], int(match["bits"])
    _check(name, kind, bits, match["order"])
    number = np.dtype(f"{'>' if match['order'] == '_be' else '<'}{kind}{bits // 8}")
    if form == "r":
        return Samples(name=name, stored=number, result=number.newbyteorder("="))
    result = np.dtype("c16" if (kind, bits) == ("f", 64) else "c8")
    pair: np.dtype[Any] = np.dtype([("i", number), ("q", number)])
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

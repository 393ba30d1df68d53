"""How do dense bytes become an array? The same on NumPy and on CuPy, and without a copy of them.

A device has no big-endian numbers, no dates, no strings and no fields. Bytes there become:

    numbers            the same numbers, in the byte order of the machine (swapped in place)
    dates, durations   the integers that they are stored as
    all others         uint8, with one more axis at the end: the bytes of each element
                       (`field` picks one field out of them)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from mmchunks.errors import DeviceError

if TYPE_CHECKING:
    from mmchunks.files.layout import Array, ArrayModule, DType, Order

__all__ = ["Fields", "Form", "device_form", "field", "flat", "swap", "unpack"]

_A = TypeVar("_A", bound="Array")

_NUMBERS = "?bhilqBHILQefdFD"  # the characters of the dtypes that CuPy computes with


class Form(NamedTuple):
    """What the elements of a dtype become on a device."""

    dtype: DType
    """Type of one element there."""

    tail: tuple[int, ...]
    """Axes that come after those of the array: ``(itemsize,)`` for bytes, else none."""

    word: int
    """Bytes of each group to turn around; 1 where nothing is swapped."""


def device_form(dtype: DType) -> Form:
    """Say what the elements of `dtype` become on a device.

    Examples
    --------
    >>> device_form(np.dtype(">c8")), device_form(np.dtype("S3"))
    (Form(dtype=dtype('complex64'), tail=(), word=4), Form(dtype=dtype('uint8'), tail=(3,), word=1))
    """
    word = dtype.itemsize if not dtype.isnative else 1
    if dtype.kind in "mM":
        return Form(np.dtype(np.int64), (), word)
    if dtype.char in _NUMBERS:
        return Form(dtype.newbyteorder("="), (), max(word // (1 + (dtype.kind == "c")), 1))
    return Form(np.dtype(np.uint8), (dtype.itemsize,), 1)


def unpack(data: _A, shape: tuple[int, ...], form: Form, order: Order) -> _A:
    """See dense bytes as an array of `shape`, and of the axes of ``form.tail``.

    Parameters
    ----------
    data : array of uint8
        All bytes, one axis, already in the byte order of the machine.
    shape : tuple of int
        Axes in NumPy's order.
    form : Form
        What the elements are.
    order : {"C", "F"}
        Order of the elements in `data`.

    Returns
    -------
    array
        A view of `data`.

    Examples
    --------
    >>> unpack(np.arange(6, dtype="u1"), (2, 3), device_form(np.dtype("u1")), "F").tolist()
    [[0, 2, 4], [1, 3, 5]]
    """
    items = data.view(form.dtype)
    if order == "C":
        return items.reshape(shape + form.tail)
    axes = tuple(reversed(range(len(shape))))
    tail = tuple(len(shape) + i for i in range(len(form.tail)))
    return items.reshape(shape[::-1] + form.tail).transpose(axes + tail)


def flat(array: _A, ndim: int, order: Order) -> _A | None:
    """See an array as the dense bytes that `unpack` made it of; None where it is not dense.

    Parameters
    ----------
    array : array
        Elements, with the axes of ``form.tail`` if they are bytes.
    ndim : int
        Axes of the array, those of ``form.tail`` not counted.
    order : {"C", "F"}
        Order that the bytes are to have.

    Examples
    --------
    >>> flat(np.array([[1, 2, 3]], "u1").T, 2, "F").tolist()
    [1, 2, 3]
    >>> flat(np.ones((2, 2))[:, :1], 2, "C") is None
    True
    """
    axes = range(ndim) if order == "C" else reversed(range(ndim))
    turned = array.transpose(*axes, *range(ndim, array.ndim))
    return turned.reshape(-1).view(np.uint8) if turned.flags.c_contiguous else None


def swap(data: Array, word: int, piece_nbytes: int) -> None:
    """Turn the bytes of every word around, in place.

    Parameters
    ----------
    data : array of uint8
        Whole words, one axis.
    word : int
        Bytes of a word; 1 leaves all as it is.
    piece_nbytes : int
        Bytes to turn around at a time, which is also the memory that it takes.

    Examples
    --------
    >>> data = np.arange(6, dtype="u1")
    >>> swap(data, 2, 4)
    >>> data.tolist()
    [1, 0, 3, 2, 5, 4]
    """
    if word == 1:
        return
    words = data.reshape(-1, word)
    step = max(piece_nbytes // word, 1)
    for start in range(0, len(words), step):
        part = words[start : start + step]
        part[...] = part[:, ::-1].copy()


def field(block: Array, dtype: DType, name: str, xp: ArrayModule) -> Array:
    """Take one field out of the bytes of structured elements.

    Parameters
    ----------
    block : array of uint8
        Bytes of the elements, along the last axis.
    dtype : dtype
        The structured type that was stored.
    name : str
        A field of it.
    xp : module
        ``numpy`` or ``cupy``, whichever made the block.

    Returns
    -------
    array
        A view where the field lies on a boundary of its own size in every element, as a device
        must have it; else a dense copy. Big-endian fields are always copied.

    Raises
    ------
    DeviceError
        If there is no such field.

    Examples
    --------
    >>> pairs = np.array([(1, 2), (3, 4)], dtype=[("a", "u1"), ("b", "<u2")])
    >>> field(pairs.view("u1").reshape(2, 3), pairs.dtype, "b", np).tolist()
    [2, 4]
    """
    if dtype.names is None or name not in dtype.names:
        msg = f"there is no field {name!r}; dtype {dtype} has the fields {dtype.names or ()}"
        raise DeviceError(msg)
    stored, offset = dtype.fields[name][:2]  # type: ignore[index]
    form = device_form(stored.base)
    size = form.dtype.itemsize
    part = block[..., offset : offset + stored.itemsize]
    if form.word > 1 or offset % size or dtype.itemsize % size:
        part = xp.array(part, order="C", copy=True)
        swap(part.reshape(-1), form.word, max(part.size, 1))
    items = part.view(form.dtype)
    return items.reshape(block.shape[:-1] + stored.shape + form.tail)


class Fields:
    """Bytes of structured elements on a device, whose fields are taken by name.

    Examples
    --------
    >>> pairs = np.array([(1, 2), (3, 4)], dtype=[("i", "u1"), ("q", "i1")])
    >>> Fields(pairs.view("u1").reshape(2, 2), pairs.dtype, np)["q"].tolist()
    [2, 4]
    """

    def __init__(self, block: Array, dtype: DType, xp: ArrayModule) -> None:
        self._block, self._dtype, self._xp = block, dtype, xp

    def __getitem__(self, name: str) -> Array:
        return field(self._block, self._dtype, name, self._xp)

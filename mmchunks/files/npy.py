r"""What do the first bytes of a ``.npy`` file say? Bytes to a layout and back, no file is touched.

    version 1.0       |\x93NUMPY|1|0|length, 2 bytes|{'descr': ..., 'shape': ..., }   \n|data
    versions 2.0, 3.0 |\x93NUMPY|2|0|length, 4 bytes|{'descr': ..., 'shape': ..., }   \n|data
                      ^0             ^8             ^10 or 12                           ^offset

The text is a Python literal; 1.0 and 2.0 hold Latin-1, 3.0 holds UTF-8. It comes from whoever
wrote the file, so nothing in it is trusted: it is bounded before it is parsed, never evaluated,
and whatever is wrong with it is a ``HeaderError``. What is read and what is refused is what
``np.load(allow_pickle=False)`` reads and refuses; four differences are meant:

- headers that Python 2 wrote, ``(3L, 4L)``, are read without a warning;
- spaces after the last newline, which ``np.load`` reads in versions 1.0 and 2.0 on Python 3.11 and
  refuses on later ones, are read on all;
- arrays of zero elements whose other lengths exceed what a file could hold are refused;
- a descr that is a sub-array of one element is read as that element, as ``np.load`` does, and
  ``np.load(mmap_mode=...)`` does not.
"""

from __future__ import annotations

import ast
import functools
import math
import re
import threading
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import HeaderError, LayoutError
from mmchunks.files.layout import Layout, as_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import DTypeLike

    from mmchunks.files.layout import DType, Order

__all__ = [
    "ALIGN",
    "FILTERS",
    "MAGIC",
    "decode",
    "describe",
    "dtype_of",
    "dtype_text",
    "encode",
    "head_nbytes",
]

_SHORT_NBYTES = 4096  # headers that are remembered

MAGIC = b"\x93NUMPY"
ALIGN = 64  # the data of what numpy.save writes start at a multiple of this
# Version: how many bytes tell the length of the text, and how the text is encoded.
_FRAMES = {b"\1\0": (2, "latin-1"), b"\2\0": (4, "latin-1"), b"\3\0": (4, "utf-8")}
# A comment or a string, closed or not, to be kept as it is; or a number, and its L.
_LONGS = re.compile(
    r"""(\#.*|'(?:\\[\s\S]|[^'\\\n])*+'?|"(?:\\[\s\S]|[^"\\\n])*+"?)|\b(\d\w*?)(?:[ \t]*L\b)+""",
    re.ASCII,
)
_KEYS = {"descr", "fortran_order", "shape"}
_NUMPY_MAX_HEADER_SIZE = 10_000  # np.load refuses a longer text unless told otherwise

# Warning filters belong to the whole process, and leaving catch_warnings() in another order than
# it was entered leaves the wrong ones behind. Threads that open files at once take turns.
FILTERS = threading.RLock()
"""Held while warning filters are changed; whoever forks the process must hold it as well."""


def head_nbytes(prefix: bytes, *, max_header_size: int) -> int:
    r"""Tell how long a header is, magic and padding included, from its first bytes.

    Parameters
    ----------
    prefix : bytes
        At least the first 12 bytes of the file, or all of a shorter one.
    max_header_size : int
        Upper bound of the text, in characters.

    Returns
    -------
    int
        Length in bytes, which is where the data start.

    Raises
    ------
    HeaderError
        For another magic or version, a text that is too long, or fewer bytes than it takes.

    Examples
    --------
    >>> head_nbytes(b"\x93NUMPY\x01\x00\x76\x00{'", max_header_size=10_000)
    128
    """
    start, nbytes, encoding = _frame(prefix)
    # A character takes up to four bytes of UTF-8; decode() counts them exactly.
    _refuse_longer(nbytes // (4 if encoding == "utf-8" else 1), max_header_size)
    return start + nbytes


def decode(head: bytes, *, max_header_size: int) -> Layout:
    r"""Read a header.

    Parameters
    ----------
    head : bytes
        The file from its first byte to the end of the header, or beyond.
    max_header_size : int
        Upper bound of the text, in characters.

    Returns
    -------
    Layout
        What the header promises; its ``offset`` is the length of the header.

    Raises
    ------
    HeaderError
        Where ``np.load(allow_pickle=False)`` refuses as well. The sentence names no path.

    Examples
    --------
    >>> head = encode((3, 4), "<f4", "C", align=64)
    >>> decode(head, max_header_size=10_000)
    Layout(shape=(3, 4), dtype=dtype('float32'), order='C', offset=128)
    """
    stop = head_nbytes(head, max_header_size=max_header_size)
    if len(head) < stop:
        msg = f"the header is cut short: it promises {stop:,} bytes, the file holds {len(head):,}"
        raise HeaderError(msg)
    if stop <= _SHORT_NBYTES:
        return _decoded_before(head[:stop], max_header_size)
    return _decoded(head[:stop], max_header_size)


def _decoded(head: bytes, max_header_size: int) -> Layout:
    """Read a header that is all there."""
    start, nbytes, encoding = _frame(head)
    stop = start + nbytes
    try:
        text = head[start:stop].decode(encoding)
    except UnicodeDecodeError as error:
        msg = f"the header is not {encoding} text: {error.reason} at byte {start + error.start:,}"
        raise HeaderError(msg) from error
    _refuse_longer(len(text), max_header_size)
    with _silence():
        return _layout(_literal(text, mend=encoding == "latin-1"), offset=stop)


# Many files of one kind have one header, and to parse it takes longer than to read a small region.
_decoded_before = functools.lru_cache(maxsize=256)(_decoded)


def encode(
    shape: int | Sequence[int],
    dtype: DTypeLike,
    order: Order,
    *,
    align: int,
) -> bytes:
    """Write the header of a new file, in the oldest version that can say it.

    Parameters
    ----------
    shape : int or sequence of int
        Lengths of the axes.
    dtype : DTypeLike
        Type of one element, byte order included.
    order : {"C", "F"}
        Which axis is contiguous.
    align : int
        The data start at a multiple of so many bytes.

    Returns
    -------
    bytes
        Magic, length, text, spaces and a newline; the data follow at once.

    Raises
    ------
    LayoutError
        If no file can hold the array, or `align` takes a longer header than ``np.load`` accepts.
    HeaderError
        If a header cannot express `dtype`, for example one whose fields overlap.

    Examples
    --------
    >>> head = encode(5, ">i2", "C", align=4096)
    >>> len(head), head[10:69]
    (4096, b"{'descr': '>i2', 'fortran_order': False, 'shape': (5,), }  ")
    """
    if align < 1:
        msg = f"align must be >= 1 byte, got {align}"
        raise LayoutError(msg)
    layout = Layout(shape=as_shape(shape), dtype=np.dtype(dtype), order=order)
    text = (
        f"{{'descr': {_descr(layout.dtype)!r}, 'fortran_order': {order == 'F'}, "
        f"'shape': {layout.shape!r}, }}"
    )
    for version in (b"\1\0", b"\2\0"):
        with suppress(UnicodeEncodeError, OverflowError):
            return _framed(text, version, align)
    return _framed(text, b"\3\0", align)


def dtype_text(dtype: DType) -> str:
    """Write a dtype as the header of a ``.npy`` file does.

    Examples
    --------
    >>> dtype_text(np.dtype([("a", "<f4")]))
    "[('a', '<f4')]"
    """
    return repr(np.lib.format.dtype_to_descr(dtype))


def dtype_of(text: str) -> DType:
    """Read what `dtype_text` wrote.

    Raises
    ------
    ValueError
        If it did not write that.

    Examples
    --------
    >>> dtype_of("[('a', '<f4')]").names
    ('a',)
    """
    try:
        dtype: DType = np.lib.format.descr_to_dtype(ast.literal_eval(text))
    except Exception as error:
        msg = f"is not the text of a dtype ({type(error).__name__}): {_excerpt(text)}"
        raise ValueError(msg) from error
    return dtype


def _framed(text: str, version: bytes, align: int) -> bytes:
    """Put magic, version and length before `text`, and spaces and a newline behind it."""
    width, encoding = _FRAMES[version]
    packed = text.encode(encoding)
    start = len(MAGIC) + len(version) + width
    stop = -(-(start + len(packed) + 1) // align) * align
    if stop - start > _NUMPY_MAX_HEADER_SIZE >= len(packed):
        msg = (
            f"align={align:,} would start the data at byte {stop:,}, and np.load refuses a "
            f"header of more than {_NUMPY_MAX_HEADER_SIZE:,} bytes; pass align=4096"
        )
        raise LayoutError(msg)
    length = (stop - start).to_bytes(width, "little")
    return MAGIC + version + length + packed.ljust(stop - start - 1) + b"\n"


def _frame(prefix: bytes) -> tuple[int, int, str]:
    """Where the text starts, how many bytes it takes, and how they are encoded."""
    if prefix[:6] != MAGIC[: len(prefix)]:
        msg = f"not a .npy file: it begins with {prefix[:8]!r} instead of {MAGIC!r}"
        raise HeaderError(msg)
    frame = _FRAMES.get(prefix[6:8])
    if frame is None and len(prefix) >= 8:
        msg = f".npy version {prefix[6]}.{prefix[7]} is unknown; there are 1.0, 2.0 and 3.0"
        raise HeaderError(msg)
    if frame is None or len(prefix) < 8 + frame[0]:
        msg = f"the header is cut short: the file holds {len(prefix)} bytes"
        raise HeaderError(msg)
    width, encoding = frame
    return 8 + width, int.from_bytes(prefix[8 : 8 + width], "little"), encoding


def _refuse_longer(size: int, max_header_size: int) -> None:
    if size > max_header_size:
        msg = (
            f"the header takes {size:,} characters, more than max_header_size="
            f"{max_header_size:,}; if you trust the file, pass max_header_size={size} to open_npy, and "
            "what that gives to any other function"
        )
        raise HeaderError(msg)


def _literal(text: str, *, mend: bool) -> object:
    try:
        try:
            return ast.literal_eval(text)
        except SyntaxError:
            if not mend:
                raise
            return ast.literal_eval(_mended(text))
    except Exception as error:
        # Hostile text reaches MemoryError and RecursionError in the parser, and more elsewhere.
        msg = f"the header is not a Python literal ({type(error).__name__}): {_excerpt(text)}"
        raise HeaderError(msg) from error


def _mended(text: str) -> str:
    """Undo what old writers did: ``(3L, 4L)`` of Python 2, and spaces after the last newline."""
    # NumPy uses Python's tokenizer for it, which takes 70 MB for 10 kB in some releases.
    return _LONGS.sub(r"\1\2", text).rstrip(" \t\r\n")


def _layout(entries: object, *, offset: int) -> Layout:
    """Check the three entries of a header, and say what they promise."""
    if not isinstance(entries, dict) or entries.keys() != _KEYS:
        msg = f"the header must be a dict of {sorted(_KEYS)}, found {_excerpt(entries)}"
        raise HeaderError(msg)
    shape, fortran_order = entries["shape"], entries["fortran_order"]
    if not isinstance(shape, tuple) or any(type(n) is not int or n >> 63 for n in shape):
        msg = f"shape must be a tuple of integers from 0 to 2**63 - 1, found {_excerpt(shape)}"
        raise HeaderError(msg)
    if not isinstance(fortran_order, bool):
        msg = f"fortran_order must be True or False, found {_excerpt(fortran_order)}"
        raise HeaderError(msg)
    dtype, inner = _dtype(entries["descr"])
    try:
        layout = Layout(
            shape=shape, dtype=dtype, order="F" if fortran_order else "C", offset=offset
        )
    except LayoutError as error:
        raise HeaderError(str(error)) from error
    if layout.size * math.prod(inner) != layout.size:
        msg = (
            f"descr makes an array of {inner} of every element, which np.load refuses as well; "
            "such axes belong into the shape"
        )
        raise HeaderError(msg)
    return layout


def _dtype(descr: Any) -> tuple[DType, tuple[int, ...]]:
    """Read a descr; the second value is the shape of each element where it is a sub-array."""
    try:
        dtype = np.lib.format.descr_to_dtype(descr)
    except Exception as error:
        # Whatever NumPy raises about a descr by an unknown hand is a refusal.
        msg = f"descr is not a dtype ({type(error).__name__}): {_excerpt(descr)}"
        raise HeaderError(msg) from error
    if dtype.hasobject:
        msg = (
            f"dtype {_excerpt(descr)} holds Python objects, which are a pickle in the file and "
            "never read here; store numbers, or fixed-length strings"
        )
        raise HeaderError(msg)
    return dtype.subdtype or (dtype, ())


def _descr(dtype: DType) -> object:
    """Write a dtype as NumPy does, and make sure that it can be read back."""
    try:
        descr = np.lib.format.dtype_to_descr(dtype)
        same = np.lib.format.descr_to_dtype(descr) == dtype
    except ValueError:
        same = False
    if not same:
        msg = f"a .npy header cannot express dtype {dtype}; use fields in order, none overlapping"
        raise HeaderError(msg)
    return descr


@contextmanager
def _silence() -> Iterator[None]:
    """Let old spellings of literals and dtypes pass without a warning."""
    with FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _excerpt(value: object) -> str:
    """Show the beginning of whatever was found, however large it is."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of more than 4,300 digits
        return f"a {type(value).__name__} that is too large to print"
    return text if len(text) <= 100 else f"{text[:100]}..."


_REWRITE = "nothing is unpickled here; write the array with np.save"
_UNPACKED = "unpack it first: the bytes of a compressed file cannot be mapped"

# First bytes, what they mean, what to do. The first that fits is taken.
_FORMATS = (
    (b"PK\x03\x04", "a zip archive such as .npz", "unzip it, and open the .npy files within"),
    (b"PK\x05\x06", "an empty zip archive", "nothing is in it"),
    (b"\x1f\x8b", "gzip", _UNPACKED),
    (b"BZh", "bzip2", _UNPACKED),
    (b"\xfd7zXZ\x00", "xz", _UNPACKED),
    (b"\x28\xb5\x2f\xfd", "zstd", _UNPACKED),
    (b"\x04\x22\x4d\x18", "lz4", _UNPACKED),
    (b"\x89HDF\r\n\x1a\n", "HDF5 or NetCDF-4", "open it with h5py or xarray"),
    (b"CDF\x01", "NetCDF", "open it with xarray or scipy.io.netcdf_file"),
    (b"CDF\x02", "NetCDF", "open it with xarray or scipy.io.netcdf_file"),
    (b"CDF\x05", "NetCDF", "open it with xarray"),
    (b"MATLAB 7.3", "a MATLAB file of version 7.3, which is HDF5", "open it with h5py"),
    (b"MATLAB", "a MATLAB file", "open it with scipy.io.loadmat"),
    (b"PAR1", "Parquet", "open it with dask.dataframe.read_parquet"),
    (b"ARROW1", "Arrow", "open it with pyarrow"),
    (b"SIMPLE  =", "FITS", "open it with astropy.io.fits"),
    (b"II*\x00", "TIFF", "open it with tifffile"),
    (b"MM\x00*", "TIFF", "open it with tifffile"),
    (b"GRIB", "GRIB", "open it with xarray and cfgrib"),
    (b"version https://git-lfs", "a Git LFS pointer, not the data", "run git lfs pull"),
    (b"/annex/objects/", "a git-annex pointer, not the data", "run git annex get"),
    (b"<!DOCTYPE", "a web page, not the data", "download the file again"),
    (b"<html", "a web page, not the data", "download the file again"),
    *((bytes([0x80, protocol]), "a pickle", _REWRITE) for protocol in (2, 3, 4, 5)),
)


def describe(head: bytes) -> str:
    r"""Say what a file is that is not a ``.npy``.

    Parameters
    ----------
    head : bytes
        The first 64 bytes or more, or all of a shorter file.

    Returns
    -------
    str
        The rest of a sentence that begins with the path.

    Examples
    --------
    >>> print("run.npy is", describe(b"\x1f\x8b\x08\x00"))
    run.npy is gzip, not .npy; unpack it first: the bytes of a compressed file cannot be mapped
    >>> print("run.npy is", describe(b"1.0,2.0"))
    run.npy is not .npy: it begins with b'1.0,2.0'; if it is raw data, use open_raw
    """
    if not head:
        return "empty"
    for magic, name, remedy in _FORMATS:
        if head.startswith(magic):
            return f"{name}, not .npy; {remedy}"
    return f"not .npy: it begins with {head[:8]!r}; if it is raw data, use open_raw"

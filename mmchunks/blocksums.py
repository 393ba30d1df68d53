"""How are long sums made of a few short ones? By blocks, whatever the window's length.

    elements   ....|---- block of 256 ----|---- block ----|---- block ----|....
    window               [ tail of a block |  whole blocks | head of a block ][rest]

The elements of a block lie in 16 rows of 16, and an entry is the sum of the 16 elements from a
position on, made by doubling. Going up a block along rows gives the *heads*, going down the
*tails*; whole blocks are merged by doubling, which costs next to nothing, being few. So a sum
takes about ten additions whatever the window; none subtracts, none drifts (no more than 16 follow
one another, as in NumPy's own pairwise sum), and a NaN stays where it is.

Blocks begin at multiples of 256 of the *whole* array (`origin` says where this piece of it
begins), so a sum does not depend on where the array was cut. This is the arithmetic that
`compiled` repeats addition by addition: both give the same bits.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.folds import SUM, namespace, slide

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["BLOCK", "LANES", "SHORTEST", "block_sums", "compiles", "window_sums"]

LANES = 16  # elements in a row: what one or two vector registers hold
BLOCK = LANES * LANES  # elements; 16 additions in a row are as many as NumPy makes
SHORTEST = BLOCK + LANES  # a window of fewer elements may begin and end in one block

_WORTHWHILE = 2**20  # elements; what numba gains with fewer does not repay its import


def compiles(x: Any) -> bool:
    """Whether `window_sums` of `x` would run compiled: x is large, and numba installed."""
    return _serves(x) and x.size >= _WORTHWHILE and _compiled() is not None


def _serves(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype in (np.float32, np.float64)


@functools.cache
def _compiled() -> ModuleType | None:
    try:
        from mmchunks import compiled
    except ImportError:  # without the extra "fast" numpy does it, slower
        return None
    return compiled


def window_sums(x: Any, length: int, origin: int) -> Any:
    """Sum every window of `length` rows of `x`, in the fastest way that gives the same bits.

    Parameters
    ----------
    x : numpy.ndarray or cupy.ndarray (outer, rows, inner)
        Elements, in the type in which they are added.
    length : int
        Rows of a window.
    origin : int
        Index of the first row in the whole array.

    Returns
    -------
    numpy.ndarray or cupy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    if compiles(x) and (compiled := _compiled()):
        return compiled.window_sums(x, length, origin)
    if length >= SHORTEST and _serves(x):
        return block_sums(x, length, origin)
    # GPUs add powers of two at the speed of their memory, and other types are rare: doubling
    return slide((x,), length, SUM, 1)[0]


def block_sums(x: Any, length: int, origin: int) -> Any:
    """Sum every window of `length` rows, along the middle axis.

    Parameters
    ----------
    x : numpy.ndarray (outer, rows, inner)
        Elements, in the type in which they are added.
    length : int
        Rows of a window, `SHORTEST` or more.
    origin : int
        Index of the first row in the whole array.

    Returns
    -------
    numpy.ndarray (outer, rows - length + 1, inner)
        A new array.
    """
    whole, rest = divmod(length, LANES)
    skip = origin % BLOCK
    starts = slice(skip, skip + x.shape[1] - length + 1)
    ends = slice(starts.start + whole * LANES, starts.stop + whole * LANES)
    padded = _pad(x, skip)
    entries = _by_row(slide((padded,), LANES, SUM, 1)[0])
    tails = _scan(entries[::-1])[::-1]
    heads = _scan(entries)
    between = _between(heads[-1], whole)
    # what a window takes of its last block ends before the row of `ends`
    heads[1:] = heads[:-1]
    heads[0] = 0
    head = _flat(heads)[:, ends]
    if rest:
        head += slide((padded[:, ends.start : ends.stop + rest - 1],), rest, SUM, 1)[0]
    # the small ones first: what they lose to rounding is small
    sums = _flat(tails)[:, starts] + head
    sums += _flat(between)[:, starts]
    return sums


def _pad(x: Any, skip: int) -> Any:
    """Add zeros: down to the block in which the rows begin, and up to one beyond their last."""
    blocks = (skip + x.shape[1]) // BLOCK + 2
    padded = namespace(x).zeros((x.shape[0], blocks * BLOCK + LANES - 1, x.shape[2]), x.dtype)
    padded[:, skip : skip + x.shape[1]] = x
    return padded


def _by_row(entries: Any) -> Any:
    """Copy (outer, rows, inner) to (16 rows of each block, outer, blocks, 16 lanes, inner)."""
    outer, _, inner = entries.shape
    blocks = entries.reshape(outer, -1, LANES, LANES, inner)
    return namespace(entries).ascontiguousarray(blocks.transpose(2, 0, 1, 3, 4))


def _flat(by_row: Any) -> Any:
    """Copy what `_by_row` made back to (outer, rows, inner)."""
    blocks = by_row.transpose(1, 2, 0, 3, 4)
    return (
        namespace(by_row).ascontiguousarray(blocks).reshape(blocks.shape[0], -1, blocks.shape[-1])
    )


def _scan(entries: Any) -> Any:
    """Add up the rows of each block, from the first row on."""
    sums = namespace(entries).empty_like(entries)
    sums[0] = entries[0]
    for row in range(1, LANES):
        namespace(entries).add(sums[row - 1], entries[row], out=sums[row])
    return sums


def _between(totals: Any, whole: int) -> Any:
    """Sum the blocks between the one in which a window begins and the one in which it ends.

    Windows that begin in the first rows of a block end `whole // 16` blocks later; those that
    begin in its last ``whole % 16`` rows end one block further on.
    """
    least, later = whole // LANES - 1, whole % LANES
    outer, blocks, lanes, inner = totals.shape
    few = namespace(totals).zeros_like(totals)
    if least:
        flat = totals.reshape(outer, blocks, lanes * inner)
        sums = slide((flat,), least, SUM, BLOCK)[0]
        few[:, : sums.shape[1]] = sums.reshape(outer, -1, lanes, inner)
    many = totals.copy()
    many[:, :-1] += few[:, 1:]
    between = namespace(totals).zeros((LANES, outer, blocks, lanes, inner), totals.dtype)
    between[: LANES - later, :, :-1] = few[:, 1:]
    between[LANES - later :, :, :-1] = many[:, 1:]
    return between

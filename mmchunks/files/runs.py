"""Which contiguous pieces make up a region, or a stretch of its dense stream? Runs, and boxes of them.

    runs      |aa|bb|cc|        stream   |aa|bb|cc|dd|ee|ff|gg|hh|ii|
              |dd|ee|ff|        stretch     |b|cc|dd|ee|ff|gg|h|
              |gg|hh|ii|        boxes       |b| cc | dd ee ff | gg | h|

The runs of a box are described as those of a region are: by a first offset, lengths and strides.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Runs", "boxes", "joined", "offsets", "overlaps"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The contiguous pieces of a region, without listing them.

    Every run has `nbytes` bytes. Run number ``i``, unravelled in C order over `counts`, starts at
    ``offset + sum(index * stride)``; in that order the offsets only grow.
    """

    offset: int
    """First byte of the first run, counted from the start of the file."""

    nbytes: int
    """Length of every run in bytes; 0 when the region is empty."""

    counts: tuple[int, ...]
    """How many runs there are along each axis that cuts them, slowest axis first."""

    strides: tuple[int, ...]
    """Bytes from one run to the next along each of those axes."""

    def __len__(self) -> int:
        return math.prod(self.counts) if self.nbytes else 0


def boxes(runs: Runs, start: int, stop: int) -> Iterator[Runs]:
    """Cut the stretch ``start <= byte < stop`` of the dense stream of `runs` into boxes.

    Parameters
    ----------
    runs : Runs
        The runs of a region, or of a box.
    start, stop : int
        Bytes, counted in the dense stream.

    Yields
    ------
    Runs
        Boxes in the order of the stream; never empty.

    Examples
    --------
    >>> runs = Runs(offset=0, nbytes=2, counts=(3,), strides=(10,))
    >>> [(box.offset, box.nbytes, box.counts) for box in boxes(runs, 1, 6)]
    [(1, 1, ()), (10, 2, (2,))]
    """
    if start >= stop:
        return
    if not runs.counts:
        yield Runs(offset=runs.offset + start, nbytes=stop - start, counts=(), strides=())
        return
    row_nbytes = math.prod(runs.counts[1:]) * runs.nbytes
    (row, skip), (last, rest) = divmod(start, row_nbytes), divmod(stop, row_nbytes)
    if skip:
        yield from boxes(_row(runs, row), skip, min(row_nbytes, stop - row * row_nbytes))
        row += 1
    if row < last:
        yield Runs(
            offset=runs.offset + row * runs.strides[0],
            nbytes=runs.nbytes,
            counts=(last - row, *runs.counts[1:]),
            strides=runs.strides,
        )
    if row <= last:
        yield from boxes(_row(runs, last), 0, rest)


def joined(box: Runs, *, gap_nbytes: int, reach_nbytes: int) -> tuple[Runs, Runs]:
    """Part the axes of a box into those to walk one by one, and those to read as one range.

    Parameters
    ----------
    box : Runs
        What is to be read.
    gap_nbytes : int
        Gaps of at most so many bytes are read, rather than skipped.
    reach_nbytes : int
        One row of the slowest axis that is read as one range reaches no farther than this.

    Returns
    -------
    outer : Runs
        Where the groups begin; its ``nbytes`` reach from a group's first byte to its last.
    group : Runs
        The runs of the first group.

    Examples
    --------
    >>> box = Runs(offset=0, nbytes=4, counts=(10, 3), strides=(1000, 8))
    >>> outer, group = joined(box, gap_nbytes=100, reach_nbytes=4096)
    >>> outer
    Runs(offset=0, nbytes=20, counts=(10,), strides=(1000,))
    >>> group
    Runs(offset=0, nbytes=4, counts=(3,), strides=(8,))
    """
    reach = box.nbytes
    outer = len(box.counts)
    while outer and reach <= reach_nbytes and box.strides[outer - 1] - reach <= gap_nbytes:
        outer -= 1
        reach += (box.counts[outer] - 1) * box.strides[outer]
    return (
        Runs(
            offset=box.offset, nbytes=reach, counts=box.counts[:outer], strides=box.strides[:outer]
        ),
        Runs(
            offset=box.offset,
            nbytes=box.nbytes,
            counts=box.counts[outer:],
            strides=box.strides[outer:],
        ),
    )


def offsets(runs: Runs) -> Iterator[int]:
    """Where in the file each run begins.

    Parameters
    ----------
    runs : Runs
        The runs of a region, or of a box; not empty.

    Yields
    ------
    int
        Offsets in bytes, growing.
    """
    steps = (
        range(0, count * stride, stride)
        for count, stride in zip(runs.counts, runs.strides, strict=True)
    )
    return (runs.offset + sum(index) for index in itertools.product(*steps))


def overlaps(runs: Runs, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
    """Find which bytes of a dense stream lie in the range ``start <= offset < stop`` of the file.

    Parameters
    ----------
    runs : Runs
        The runs of a region, or of a box.
    start, stop : int
        Offsets in the file.

    Yields
    ------
    at, offset, nbytes : int
        Where a piece begins in the stream, and in the file, and how long it is.

    Examples
    --------
    >>> list(overlaps(Runs(offset=0, nbytes=2, counts=(3,), strides=(10,)), 1, 21))
    [(1, 1, 1), (2, 10, 2), (4, 20, 1)]
    """
    if not len(runs):
        return
    if not runs.counts:
        first, last = max(start, runs.offset), min(stop, runs.offset + runs.nbytes)
        if first < last:
            yield first - runs.offset, first, last - first
        return
    # Of the rows of the slowest axis only those can matter that begin early enough and reach so far.
    row, stride = _row(runs, 0), runs.strides[0]
    reach = row.nbytes + sum(
        (count - 1) * step for count, step in zip(row.counts, row.strides, strict=True)
    )
    first = max(0, -(-(start - runs.offset - reach + 1) // stride))
    last = min(runs.counts[0], -(-(stop - runs.offset) // stride))
    nbytes = len(row) * row.nbytes
    for index in range(first, last):
        for at, offset, length in overlaps(_row(runs, index), start, stop):
            yield index * nbytes + at, offset, length


def _row(runs: Runs, index: int) -> Runs:
    return Runs(
        offset=runs.offset + index * runs.strides[0],
        nbytes=runs.nbytes,
        counts=runs.counts[1:],
        strides=runs.strides[1:],
    )

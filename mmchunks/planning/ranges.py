"""Which rows are left when some are done? Arithmetic of half-open ranges, nothing else.

rows   |0....|....10...|....20...|....30...|....40
done         |#####|        |##|
missing|.....|     |........|  |...................|
cut    |.....|     |...|....|  |..|.........|......|      at the multiples of 10
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Rows", "count", "cut", "missing"]

Rows: TypeAlias = tuple[int, int]  # half-open


def missing(rows: Rows, done: Iterable[Rows]) -> list[Rows]:
    """Take the ranges `done` away from the range `rows`.

    Examples
    --------
    >>> missing((0, 10), [(2, 4), (3, 5), (9, 12)])
    [(0, 2), (5, 9)]
    """
    at, stop = rows
    left = []
    for first, last in sorted(done):
        if at < min(first, stop):
            left.append((at, min(first, stop)))
        at = max(at, last)
    if at < stop:
        left.append((at, stop))
    return left


def count(ranges: Iterable[Rows]) -> int:
    """Count the rows of ranges that do not overlap.

    Examples
    --------
    >>> count([(0, 2), (5, 9)])
    6
    """
    return sum(stop - start for start, stop in ranges)


def cut(ranges: Iterable[Rows], unit_rows: int) -> Iterator[Rows]:
    """Cut ranges at the multiples of `unit_rows`, so that whoever cuts finds the same units.

    Examples
    --------
    >>> list(cut([(0, 2), (5, 25)], 10))
    [(0, 2), (5, 10), (10, 20), (20, 25)]
    """
    for start, stop in ranges:
        at = start
        while at < stop:
            end = min(stop, (at // unit_rows + 1) * unit_rows)
            yield at, end
            at = end

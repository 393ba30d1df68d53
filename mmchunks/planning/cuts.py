"""How is one axis cut into pieces? A few numbers, however many the pieces are.

    axis      |0.....................................length|
    EvenCuts  |first|step.....|step.....|step.....|what is left|
    ListedCuts|..|.......|...|what the user wrote..............|

Pieces are numbered from 0, cover the axis and do not overlap. A cut of 10^9 equal pieces takes
three integers.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from mmchunks.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Boundaries", "Cuts", "EvenCuts", "ListedCuts", "even", "listed", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundaries:
    """Equally spaced places where one piece ends and the next begins."""

    start: int
    """Index of the first of them along the axis."""

    spacing: int
    """Distance from one to the next."""

    count: int
    """How many there are."""

    before: int
    """Length of the piece that ends at each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvenCuts:
    """Pieces of equal length, but for the first and the last one.

    Examples
    --------
    >>> cuts = EvenCuts(length=10, first=2, step=3)
    >>> len(cuts), cuts.piece(1), cuts.sizes()
    (4, slice(2, 5, None), (2, 3, 3, 2))
    """

    length: int
    """Length of the axis."""

    first: int
    """Length of the first piece; 0 only where the axis is empty."""

    step: int
    """Length of the others; the last one takes what is left."""

    def __post_init__(self) -> None:
        if self.step < 1 or not 0 <= self.first <= self.length or (self.length and not self.first):
            msg = f"an axis of length {self.length} has no pieces of {self.first}, {self.step}, ..."
            raise PlanError(msg)

    def __len__(self) -> int:
        return 1 - (self.first - self.length) // self.step

    @property
    def is_cut(self) -> bool:
        """Whether there are two pieces that hold something."""
        return self.first < self.length

    @property
    def largest(self) -> int:
        """Length of the longest piece."""
        return max(self.first, min(self.step, self.length - self.first))

    @property
    def last(self) -> int:
        """Length of the last piece that is not empty."""
        return self.length - (self.first + (len(self) - 2) * self.step if len(self) > 1 else 0)

    def piece(self, number: int) -> slice:
        """Give the indices of piece `number`."""
        stop = self.first + number * self.step
        return slice(stop - self.step if number else 0, min(stop, self.length))

    def find(self, index: int) -> int:
        """Give the number of the piece that holds `index`."""
        return max(0, 1 + (index - self.first) // self.step)

    def sizes(self) -> tuple[int, ...]:
        """List the lengths of all pieces, as dask does."""
        if len(self) == 1:
            return (self.first,)
        return (self.first, *(self.step,) * (len(self) - 2), self.last)

    def boundaries(self) -> Iterator[Boundaries]:
        """Describe the places between pieces, in growing order."""
        inner = len(self) - 1
        one = Boundaries(start=self.first, spacing=self.step, count=1, before=self.first)
        more = Boundaries(
            start=self.first + self.step, spacing=self.step, count=inner - 1, before=self.step
        )
        return iter((one, more)[: min(inner, 2)])


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCuts:
    """Pieces of any length, as the user listed them; a piece may be empty.

    Examples
    --------
    >>> cuts = ListedCuts(stops=(2, 2, 7))
    >>> len(cuts), cuts.piece(2), cuts.sizes()
    (3, slice(2, 7, None), (2, 0, 5))
    """

    stops: tuple[int, ...]
    """Where each piece ends; the last one is the length of the axis."""

    def __len__(self) -> int:
        return len(self.stops)

    @property
    def length(self) -> int:
        """Length of the axis."""
        return self.stops[-1]

    @property
    def is_cut(self) -> bool:
        """Whether there are two pieces that hold something."""
        return any(0 < stop < self.length for stop in self.stops)

    @property
    def largest(self) -> int:
        """Length of the longest piece."""
        return max(self.sizes())

    @property
    def last(self) -> int:
        """Length of the last piece that is not empty."""
        return next((size for size in reversed(self.sizes()) if size), 0)

    def piece(self, number: int) -> slice:
        """Give the indices of piece `number`."""
        return slice(self.stops[number - 1] if number else 0, self.stops[number])

    def find(self, index: int) -> int:
        """Give the number of the piece that holds `index`."""
        return bisect.bisect_right(self.stops, index)

    def sizes(self) -> tuple[int, ...]:
        """List the lengths of all pieces, as dask does."""
        return tuple(stop - start for start, stop in itertools.pairwise((0, *self.stops)))

    def boundaries(self) -> Iterator[Boundaries]:
        """Describe the places between pieces that are not empty, in growing order."""
        previous = 0
        for place in self.stops:
            if previous < place < self.length:
                yield Boundaries(start=place, spacing=1, count=1, before=place - previous)
                previous = place


Cuts: TypeAlias = EvenCuts | ListedCuts


def whole(length: int) -> EvenCuts:
    """Leave an axis in one piece."""
    return EvenCuts(length=length, first=length, step=max(length, 1))


def even(length: int, step: int) -> EvenCuts:
    """Cut an axis into pieces of `step`, the last one shorter."""
    return EvenCuts(length=length, first=min(step, length), step=min(step, max(length, 1)))


def listed(sizes: Sequence[int]) -> Cuts:
    """Cut an axis into pieces of the given lengths, remembered in three numbers if they are even.

    Examples
    --------
    >>> listed((2, 3, 3, 1))
    EvenCuts(length=9, first=2, step=3)
    >>> listed((3, 1, 2))
    ListedCuts(stops=(3, 4, 6))
    """
    length = sum(sizes)
    if len(sizes) == 1:
        return whole(length)
    step = max(sizes) if len(sizes) == 2 else sizes[1]
    equal = all(size == step for size in sizes[1:-1])
    if equal and sizes[0] > 0 and 0 < sizes[-1] <= step:
        return EvenCuts(length=length, first=sizes[0], step=step)
    return ListedCuts(stops=tuple(itertools.accumulate(sizes)))

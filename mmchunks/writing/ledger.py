"""What do the lines of all writers of a journal add up to? What is done, failed, waiting and left.

    done       |#####|        |##|        |#####|      chunks whose lines count
    waiting          ~        ~                        of those: ends in shared pages, not in the file
    forgotten                             |#####|      damaged: not done until a later line says so

Lines come in any order, from writers whose clocks need not agree.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from mmchunks.planning.ranges import count, missing
from mmchunks.writing.journallines import Began, Done, Ended, Entry, Failed, Forgotten, Settled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mmchunks.planning.ranges import Rows
    from mmchunks.writing.journallines import Box, Line, Settings

__all__ = ["Ledger", "Outlook", "forgetting", "outstanding"]


class Chunk(NamedTuple):
    """A chunk that is done, and by whom."""

    line: Done
    """What was written."""

    host: str
    """Name of the machine that wrote it."""

    time: float
    """When that was written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What the entries of all writers add up to.

    Examples
    --------
    >>> def done(start, stop):
    ...     return Done(box=((start, stop),), nbytes=8, checksum="xxh3_64:00")
    >>> lines = (Failed(2, "KeyError", ""), done(0, 2), done(2, 3), Failed(5, "KeyError", ""))
    >>> ledger = Ledger.read([Entry("node7", 1, 1.5, lines)])
    >>> ledger.rows, list(ledger.failed)
    ([(0, 2), (2, 3)], [5])
    """

    chunks: tuple[Chunk, ...]
    """The chunks that are on stable storage; one may be there several times."""

    failed: dict[int, Failed]
    """By row, the last failure of those that failed and were not done since."""

    began: tuple[tuple[Entry, Began], ...]
    """The beginnings of runs."""

    ended: tuple[tuple[Entry, Ended], ...]
    """The ends of runs that were not killed."""

    settled: frozenset[Box]
    """The chunks whose fragments of shared pages were written by the pages' owner."""

    @classmethod
    def read(cls, entries: Iterable[Entry]) -> Ledger:
        """Add up the entries of a journal, in any order."""
        chunks: list[Chunk] = []
        failed: dict[int, Failed] = {}
        began: list[tuple[Entry, Began]] = []
        ended: list[tuple[Entry, Ended]] = []
        settled: list[tuple[Box, float]] = []
        void: set[tuple[Box, float]] = set()
        for entry in entries:
            for line in entry.lines:
                match line:
                    case Done():
                        chunks.append(Chunk(line, entry.host, entry.time))
                    case Failed():
                        failed[line.row] = line
                    case Began():
                        began.append((entry, line))
                    case Ended():
                        ended.append((entry, line))
                    case Settled():
                        settled += [(box, entry.time) for box in line.boxes]
                    case Forgotten():
                        void |= {(box, time) for box, times in line.lines for time in times}
        if void:
            chunks = [chunk for chunk in chunks if (chunk.line.box, chunk.time) not in void]
        return cls(
            chunks=tuple(chunks),
            failed=_still_failed(failed, chunks),
            began=tuple(began),
            ended=tuple(ended),
            settled=frozenset(box for box, time in settled if (box, time) not in void),
        )

    @property
    def done(self) -> list[Done]:
        """What was written of the chunks that are done."""
        return [chunk.line for chunk in self.chunks]

    @property
    def rows(self) -> list[Rows]:
        """The ranges of rows that are done, where chunks are ranges of rows."""
        return [chunk.line.box[0] for chunk in self.chunks]

    @property
    def boxes(self) -> set[Box]:
        """The chunks that are done, as start and stop along each axis."""
        return {chunk.line.box for chunk in self.chunks}

    @property
    def unsettled(self) -> list[Done]:
        """The chunks that left fragments of shared pages to somebody else."""
        return [line for line in self.done if line.fragments and line.box not in self.settled]

    @property
    def whole(self) -> list[Done]:
        """The chunks all of whose bytes are in the file, so that no fragment of them waits."""
        left = {line.box for line in self.unsettled}
        return [line._replace(fragments=()) for line in self.done if line.box not in left]

    @property
    def left_alone_since(self) -> int | None:
        """The file's time of change when its last run ended; None while one runs or was killed."""
        since = max((entry.time for entry, line in self.began if line.alone), default=0)
        began = [entry for entry, _ in self.began if entry.time >= since]
        ended = [line.mtime_ns for entry, line in self.ended if entry.time >= since]
        return max(ended) if ended and len(ended) == len(began) else None


def _still_failed(failed: dict[int, Failed], chunks: list[Chunk]) -> dict[int, Failed]:
    """Leave out the failures of rows that were done since."""
    if not failed:
        return failed
    # Gaps between what is done, and not a set of rows: one failure may be at row 10**9.
    gaps = missing((0, max(failed) + 1), (chunk.line.box[0] for chunk in chunks))
    starts = [start for start, _ in gaps]

    def open_(row: int) -> bool:
        at = bisect_right(starts, row) - 1
        return at >= 0 and row < gaps[at][1]

    return {row: line for row, line in failed.items() if open_(row)}


def forgetting(entries: Iterable[Entry], boxes: Iterable[Box]) -> Forgotten:
    """Make the line after which chunks are not done any more, until a later line says they are.

    Examples
    --------
    >>> def done(start, stop):
    ...     return Done(box=((start, stop),), nbytes=8, checksum="xxh3_64:00")
    >>> entries = [Entry("a", 1, 1.5, (done(0, 2),)), Entry("a", 1, 2.5, (done(2, 4),))]
    >>> forget = Entry("b", 2, 0.5, (forgetting(entries, [((0, 2),)]),))
    >>> Ledger.read([forget, *entries]).rows
    [(2, 4)]
    >>> Ledger.read([forget, *entries, Entry("a", 1, 3.5, (done(0, 2),))]).rows
    [(2, 4), (0, 2)]
    """
    times: dict[Box, list[float]] = {box: [] for box in boxes}
    for entry in entries:
        for line in entry.lines:
            for box in _named(line):
                if box in times:
                    times[box].append(entry.time)
    return Forgotten(tuple((box, tuple(found)) for box, found in times.items()))


def _named(line: Line) -> tuple[Box, ...]:
    """List the chunks that a line says something of."""
    if isinstance(line, Done):
        return (line.box,)
    return line.boxes if isinstance(line, Settled) else ()


class Outlook(NamedTuple):
    """How much of a file there is still to do."""

    unit: str
    """What is counted: ``"rows"`` or ``"blocks"``."""

    total: int
    """How many there are."""

    left: list[Rows]
    """The ranges that are not written."""

    waiting: list[Rows]
    """The ranges that are written, but for their ends in pages that they share."""

    @property
    def done(self) -> int:
        """How many a reader of the file has."""
        return self.total - count(self.left) - count(self.waiting)


def outstanding(settings: Settings, ledger: Ledger) -> Outlook:
    """Say what a journal counts, how many of them there are, and which are not done.

    Examples
    --------
    >>> done = Done(box=((0, 4),), nbytes=8, checksum="xxh3_64:00")
    >>> ledger = Ledger.read([Entry("a", 1, 1.5, (done,))])
    >>> outstanding({"kind": "sweep", "shape": [9, 2]}, ledger)
    Outlook(unit='rows', total=9, left=[(4, 9)], waiting=[])
    """
    if settings["kind"] == "sweep":
        total = settings["shape"][0]
        left = missing((0, total), ledger.rows)
        whole = [line.box[0] for line in ledger.whole]
        # What waits is what is written, less what is whole: it may have been written twice.
        return Outlook("rows", total, left, missing((0, total), left + whole))
    total = math.prod(len(sizes) for sizes in settings["chunks"])
    done = len(ledger.boxes)
    waiting = len({line.box for line in ledger.unsettled})
    return Outlook(
        "blocks", total, missing((0, total), [(0, done)]), missing((0, done), [(0, done - waiting)])
    )

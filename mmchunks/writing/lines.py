"""What do the lines of a journal say is done? The forms of the lines, and what they add up to.

    {"began": {"device": 8, "inode": 77, "nbytes": 4576},   a run begins to write this file
     "alone": true}                                         and all earlier ones are over
    {"done": [[0, 64]], "nbytes": ..., "checksum": ...}     these rows are on stable storage
    {"done": [[0, 64], [8, 16]], ...}                       or this block, of several axes
    {"failed": 7, "error": ..., "traceback": ...}           this row was tried in vain
    {"settled": [[[0, 64]], ...]}                           the pages these chunks share are written
    {"forgotten": [{"chunk": [[0, 64]], "lines": [...]}]}   lines of these times, of whatever writer,
                                                            count no more where they name this chunk
    {"ended": 1760000000000000000}                          a run has ended; the file's mtime_ns then

Every line says host, pid and time besides; the journal adds them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from mmchunks.writing.ranges import missing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mmchunks.writing.ranges import Rows

__all__ = ["Box", "Ledger", "Record", "as_box", "box_text", "forgetting", "outstanding"]

Record: TypeAlias = dict[str, Any]
Box: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What the records of all writers add up to.

    Examples
    --------
    >>> lines = [{"failed": 2}, {"done": [[0, 2]]}, {"done": [[2, 3]]}, {"failed": 5}]
    >>> ledger = Ledger.read(lines)
    >>> ledger.rows, list(ledger.failed)
    ([(0, 2), (2, 3)], [5])
    """

    done: tuple[Record, ...]
    """The records of chunks that are on stable storage; a chunk may have several."""

    failed: dict[int, Record]
    """By row, the last record of those that failed and were not done since."""

    began: tuple[Record, ...]
    """The records with which runs began."""

    ended: tuple[Record, ...]
    """The records of the file's time of change in ns, as the runs that were not killed left it."""

    settled: frozenset[Box]
    """The chunks whose fragments of shared pages were written by the pages' owner."""

    @classmethod
    def read(cls, records: Iterable[Record]) -> Ledger:
        """Add up the records of a journal, in any order."""
        by_kind: dict[str, list[Record]] = {}
        for record in records:
            for kind in ("done", "failed", "began", "ended", "settled", "forgotten"):
                if kind in record:
                    by_kind.setdefault(kind, []).append(record)
        void = {
            (as_box(entry["chunk"]), time)
            for record in by_kind.get("forgotten", ())
            for entry in record["forgotten"]
            for time in entry["lines"]
        }
        done = tuple(
            record
            for record in by_kind.get("done", ())
            if not void or (as_box(record["done"]), record.get("time")) not in void
        )
        failed = {record["failed"]: record for record in by_kind.get("failed", ())}
        if failed:
            rows = (record["done"][0] for record in done)
            left = missing((0, max(failed) + 1), ((start, stop) for start, stop in rows))
            stays = {row for start, stop in left for row in range(start, stop)}
            failed = {row: record for row, record in failed.items() if row in stays}
        return cls(
            done=done,
            failed=failed,
            began=tuple(by_kind.get("began", ())),
            ended=tuple(by_kind.get("ended", ())),
            settled=frozenset(
                box
                for record in by_kind.get("settled", ())
                for box in map(as_box, record["settled"])
                if (box, record.get("time")) not in void
            ),
        )

    @property
    def rows(self) -> list[tuple[int, int]]:
        """The ranges of rows that are done, where chunks are ranges of rows."""
        return [(start, stop) for (start, stop), *_ in (record["done"] for record in self.done)]

    @property
    def boxes(self) -> set[Box]:
        """The chunks that are done, as start and stop along each axis."""
        return {as_box(record["done"]) for record in self.done}

    @property
    def unsettled(self) -> list[Record]:
        """The records of chunks that left fragments of shared pages to somebody else."""
        return [
            r for r in self.done if r.get("fragments") and as_box(r["done"]) not in self.settled
        ]

    @property
    def whole(self) -> list[Record]:
        """The records of chunks all of whose bytes are in the file."""
        left = {as_box(record["done"]) for record in self.unsettled}
        return [record for record in self.done if as_box(record["done"]) not in left]

    @property
    def left_alone_since(self) -> int | None:
        """The file's time of change when its last run ended; None while one runs or was killed."""
        since = max((r["time"] for r in self.began if r.get("alone")), default=0)
        began, ended = (
            [r for r in records if r["time"] >= since] for records in (self.began, self.ended)
        )
        return max(r["ended"] for r in ended) if ended and len(ended) == len(began) else None


def as_box(bounds: Iterable[Iterable[int]]) -> Box:
    """Take the box of a record, as JSON holds it, as something to compare."""
    return tuple((start, stop) for start, stop in bounds)


def box_text(box: Iterable[Iterable[int]]) -> str:
    """Name a chunk for people.

    Examples
    --------
    >>> box_text([[0, 20]]), box_text([[7, 14], [8, 16]])
    ('rows 0 to 20', 'block [7:14, 8:16]')
    """
    bounds = as_box(box)
    if len(bounds) == 1:
        return f"rows {bounds[0][0]:,} to {bounds[0][1]:,}"
    return f"block [{', '.join(f'{start}:{stop}' for start, stop in bounds)}]"


def forgetting(records: Iterable[Record], boxes: Iterable[Box]) -> Record:
    """Make the record after which chunks are not done any more, until a later line says they are.

    It names the lines that count no more by their times, so that clocks need not agree, and the
    order of the writers does not matter.

    Examples
    --------
    >>> lines = [{"done": [[0, 2]], "time": 1.5}, {"done": [[2, 4]], "time": 2.5}]
    >>> forget = forgetting(lines, [((0, 2),)])
    >>> Ledger.read([forget, *lines]).rows
    [(2, 4)]
    >>> Ledger.read([forget, *lines, {"done": [[0, 2]], "time": 3.5}]).rows
    [(2, 4), (0, 2)]
    """
    lines: dict[Box, list[float]] = {box: [] for box in boxes}
    for record in records:
        named = [record["done"]] if "done" in record else record.get("settled", ())
        for box in map(as_box, named):
            if box in lines:
                lines[box].append(record["time"])
    return {"forgotten": [{"chunk": box, "lines": times} for box, times in lines.items()]}


def outstanding(settings: Record, ledger: Ledger) -> tuple[str, int, list[Rows]]:
    """Say what a journal counts, how many of them there are, and which are not done.

    When all are done, but the pages that they share are not written yet, those that share them.

    Examples
    --------
    >>> outstanding({"kind": "sweep", "shape": [9, 2]}, Ledger.read([{"done": [[0, 4]]}]))
    ('rows', 9, [(4, 9)])
    """
    if settings["kind"] == "sweep":
        total = settings["shape"][0]
        waiting = [(start, stop) for (start, stop), *_ in (r["done"] for r in ledger.unsettled)]
        left = missing((0, total), ledger.rows) or missing((0, total), missing((0, total), waiting))
        return "rows", total, left
    total = math.prod(len(sizes) for sizes in settings["chunks"])
    done = len(ledger.boxes)
    if done == total:
        done -= len({as_box(record["done"]) for record in ledger.unsettled})
    return "blocks", total, missing((0, total), [(0, done)])

"""How much of a file is done, and is it still what was written?

Looks only, unless it is told to forget what is damaged: then the journal says so, never the file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmchunks.files.sources import MAX_HEADER_NBYTES, open_source
from mmchunks.filling.resuming import damaged, require_layout, require_same_file
from mmchunks.filling.scenarios import Scenarios
from mmchunks.writing.journal import Journal
from mmchunks.writing.lines import Ledger, as_box, box_text, forgetting, outstanding
from mmchunks.writing.ranges import count

if TYPE_CHECKING:
    from mmchunks.filling.scenarios import Call
    from mmchunks.writing.lines import Box, Record
    from mmchunks.writing.ranges import Rows

__all__ = ["Status", "VerifyReport", "status", "verify"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How much of a file is done, as its journal says."""

    path: str
    """The file."""

    unit: str
    """What is counted: ``"rows"`` of a sweep, ``"blocks"`` of an array."""

    total: int
    """How many there are."""

    done: int
    """How many are on stable storage."""

    failed: int
    """How many were tried in vain, and not done since."""

    hosts: tuple[str, ...]
    """Which machines did them, sorted."""

    rate: float | None
    """How many a second were done since the last run began; None before the first of them."""

    left: tuple[Rows, ...]
    """The ranges that are not done, failed ones included."""

    failures: dict[int, str]
    """The errors of those that failed."""

    scenarios: Scenarios | None
    """What the rows of a sweep are the results of, as JSON can say it; None for an array."""

    @property
    def missing(self) -> int:
        """How many were neither done nor tried in vain."""
        return self.total - self.done - self.failed

    @property
    def fraction(self) -> float:
        """Which part is done, from 0 to 1."""
        return self.done / self.total if self.total else 1.0

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.done:,} of {self.total:,} {self.unit} done ({self.fraction:.1%}), "
            f"{self.failed:,} failed, {self.missing:,} missing"
        )

    def scenario(self, row: int) -> Call:
        """Tell which scenario a row is the result of.

        Raises
        ------
        IndexError
            If there is no such row.
        """
        return () if self.scenarios is None else self.scenarios[row]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """Whether the chunks that are done still hold what was written."""

    path: str
    """The file."""

    checked: int
    """How many chunks were read."""

    bad: tuple[Box, ...]
    """Those that hold other bytes: start and stop along each axis (rows alone for a sweep)."""

    forgotten: bool
    """Whether the bad ones count as not done now, and the next run computes them again."""

    @property
    def ok(self) -> bool:
        """Whether all hold what was written."""
        return not self.bad

    def __str__(self) -> str:
        if self.ok:
            return f"{self.path}: all of {self.checked:,} chunks hold what was written"
        more = f" and {len(self.bad) - 5:,} more" if len(self.bad) > 5 else ""
        return (
            f"{self.path}: {len(self.bad):,} of {self.checked:,} chunks were changed since they were "
            f"written, and hold other bytes: {', '.join(map(box_text, self.bad[:5]))}{more}"
        )


def status(path: str | os.PathLike[str]) -> Status:
    """Tell how much of a file is done.

    Parameters
    ----------
    path : str or os.PathLike
        A file that `sweep` or `to_npy` fills.

    Returns
    -------
    Status
        As the journal says now; others may be at work.

    Raises
    ------
    FileNotFoundError
        If the file has no journal.
    JournalError
        If the journal is damaged.
    StaleFileError
        If the file is not the one that the journal is about.

    Examples
    --------
    >>> import tempfile
    >>> from mmchunks.filling.sweeping import sweep
    >>> path = tempfile.mkdtemp() + "/out.npy"
    >>> _ = sweep(divmod, [(7, 2), (8, 3), (1, 0)], path, on_error="record")
    >>> found = status(path)
    >>> found.done, found.failed, found.missing, found.scenario(2)
    (2, 1, 0, (1, 0))
    """
    journal = Journal.open(os.path.realpath(path))
    settings, records = journal.settings, journal.records()
    ledger = Ledger.read(records)
    require_same_file(journal.path, ledger)
    unit, total, left = outstanding(settings, ledger)
    failed = {row: record["error"] for row, record in sorted(ledger.failed.items())}
    return Status(
        path=journal.path,
        unit=unit,
        total=total,
        done=total - count(left),
        failed=len(failed),
        hosts=tuple(sorted({record["host"] for record in ledger.done})),
        rate=_rate(ledger, unit),
        left=tuple(left),
        failures=failed,
        scenarios=Scenarios.from_json(settings["scenarios"]) if unit == "rows" else None,
    )


def verify(
    path: str | os.PathLike[str], *, executor: Any = None, forget: bool = False
) -> VerifyReport:
    """Read back every chunk that is done, and compare its checksum with the journal's.

    A chunk is bad if it was changed since it was written: by a disk that fails, by another
    program, or by yourself through `open_target` or ``to_npy(region=...)``, of which the journal
    does not know.

    Parameters
    ----------
    path : str or os.PathLike
        A file that `sweep` or `to_npy` fills.
    executor : optional
        Where to read: anything with ``submit``. Without it, right here.
    forget : bool
        Write down that bad chunks are not done: the same `sweep`, or ``to_npy(resume=True)``,
        computes just those again.

    Returns
    -------
    VerifyReport
        Chunks whose ends still wait in the journal to be written are not read.

    Raises
    ------
    FileNotFoundError
        If the file has no journal.
    JournalError
        If bad chunks are to be forgotten while a driver is at work.
    StaleFileError, HeaderError
        If the file is not of the length that was written, or its header says something else.

    Examples
    --------
    >>> import tempfile
    >>> from mmchunks.filling.sweeping import sweep
    >>> path = tempfile.mkdtemp() + "/out.npy"
    >>> _ = sweep(pow, [(2, 3), (3, 2)], path, chunks=1)
    >>> report = verify(path)
    >>> report.ok, report.checked
    (True, 2)
    """
    journal = Journal.open(os.path.realpath(path))
    layout = open_source(journal.path, max_header_size=MAX_HEADER_NBYTES).layout
    require_layout(journal.path, layout, journal.settings)
    records = journal.records()
    chunks = {as_box(r["done"]): r for r in Ledger.read(records).whole}
    found = damaged(journal.path, list(chunks.values()), executor)
    bad = tuple(sorted(as_box(record["done"]) for record in found))
    if bad and forget:
        with journal.lock(force=False), journal.writer() as writer:
            writer.append(forgetting(records, bad))
    return VerifyReport(path=journal.path, checked=len(chunks), bad=bad, forgotten=forget)


def _rate(ledger: Ledger, unit: str) -> float | None:
    """Tell how many a second were done since the last run began."""
    since = max((record["time"] for record in ledger.began), default=0.0)
    recent = [record for record in ledger.done if record["time"] > since]
    if not recent:
        return None
    seconds = max(record["time"] for record in recent) - since
    return sum(_size(record, unit) for record in recent) / seconds if seconds > 0 else None


def _size(record: Record, unit: str) -> int:
    """Count what a record is about."""
    start, stop = record["done"][0] if unit == "rows" else (0, 1)
    return int(stop - start)

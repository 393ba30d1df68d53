"""How much of a file is done, and is it still what was written?

Looks only, unless it is told to forget what is damaged: then the journal says so, never the file.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mmchunks.errors import StaleFileError
from mmchunks.files.identity import Identity, require_same
from mmchunks.files.npy import dtype_text
from mmchunks.files.sources import name_of, open_source
from mmchunks.filling.executors import Calls
from mmchunks.filling.scenarios import Scenarios
from mmchunks.planning.ranges import count
from mmchunks.writing.journal import Journal
from mmchunks.writing.journallines import box_text
from mmchunks.writing.ledger import Ledger, forgetting, outstanding
from mmchunks.writing.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mmchunks.files.layout import Layout
    from mmchunks.files.sources import File
    from mmchunks.filling.executors import Executor
    from mmchunks.filling.scenarios import Call
    from mmchunks.planning.ranges import Rows
    from mmchunks.writing.journallines import Box, Done, Settings

__all__ = [
    "Status",
    "VerifyReport",
    "damaged",
    "look_at",
    "require_layout",
    "require_same_file",
    "status",
    "verify",
]

# What one call reads: long beside the cost of a call.
_BATCH_NBYTES = 1 << 28
_BATCH_CHUNKS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How much of a file is done, as its journal says.

    Attributes
    ----------
    path : str
        The file.
    unit : str
        What is counted: ``"rows"`` of a sweep, ``"blocks"`` of an array.
    total : int
        How many there are.
    done : int
        How many are on stable storage, where every reader of the file has them.
    waiting : int
        How many are on stable storage, but for their ends in pages that they share with others on a
        network mount: those wait in the journal, from where mmchunks reads them, and every run
        writes them as it goes and when it ends.
    failed : int
        How many were tried in vain, and not done since.
    hosts : tuple[str, ...]
        Which machines did them, sorted.
    rate : float | None
        How many a second were done since the last run began; None before the first of them.
    left : tuple[Rows, ...]
        The ranges that are not written, failed ones included.
    failures : dict[int, str]
        The errors of those that failed.
    scenarios : Scenarios | None
        What the rows of a sweep are the results of, as JSON can say it; None for an array.
    """

    path: str
    unit: str
    total: int
    done: int
    waiting: int
    failed: int
    hosts: tuple[str, ...]
    rate: float | None
    left: tuple[Rows, ...]
    failures: dict[int, str]
    scenarios: Scenarios | None

    @property
    def missing(self) -> int:
        """How many were neither written nor tried in vain."""
        return self.total - self.done - self.waiting - self.failed

    @property
    def fraction(self) -> float:
        """Which part is done, from 0 to 1."""
        return self.done / self.total if self.total else 1.0

    def __str__(self) -> str:
        waiting = f"{self.waiting:,} written, edges waiting, " if self.waiting else ""
        return (
            f"{self.path}: {self.done:,} of {self.total:,} {self.unit} done ({self.fraction:.1%}), "
            f"{waiting}{self.failed:,} failed, {self.missing:,} missing"
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
    """Whether the chunks that are done still hold what was written.

    Attributes
    ----------
    path : str
        The file.
    checked : int
        How many chunks were read.
    bad : tuple[Box, ...]
        Those that hold other bytes: start and stop along each axis (rows alone for a sweep).
    forgotten : bool
        Whether the bad ones count as not done now, and the next run computes them again.
    """

    path: str
    checked: int
    bad: tuple[Box, ...]
    forgotten: bool

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


def status(path: File) -> Status:
    """Tell how much of a file is done.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
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
    journal = Journal.open(os.path.realpath(name_of(path)))
    ledger = journal.ledger(durable=True)
    require_same_file(journal.path, ledger)
    found = outstanding(journal.settings, ledger)
    failed = {row: failure.error for row, failure in sorted(ledger.failed.items())}
    return Status(
        path=journal.path,
        unit=found.unit,
        total=found.total,
        done=found.done,
        waiting=count(found.waiting),
        failed=len(failed),
        hosts=tuple(sorted({chunk.host for chunk in ledger.chunks})),
        rate=_rate(ledger, found.unit),
        left=tuple(found.left),
        failures=failed,
        scenarios=Scenarios.from_json(journal.scenarios) if found.unit == "rows" else None,
    )


def verify(
    path: File, *, executor: Executor | None = None, forget: bool = False, force: bool = False
) -> VerifyReport:
    """Read back every chunk that is done, and compare its checksum with the journal's.

    A chunk is bad if it was changed since it was written: by a disk that fails, by another
    program, or by yourself through `open_target` or ``to_npy(region=...)``, of which the journal
    does not know.

    Parameters
    ----------
    path : str, os.PathLike, Source or Target
        A file that `sweep` or `to_npy` fills.
    executor : optional
        Where to read: anything with ``submit``. Without it, right here.
    forget : bool
        Write down that bad chunks are not done: the same `sweep`, or ``to_npy(resume=True)``,
        computes just those again.
    force : bool
        With `forget`, take the place of a driver on another host, of which only you know that it
        has ended.

    Returns
    -------
    VerifyReport
        Of chunks whose ends still wait in the journal, those are taken from there.

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
    journal = Journal.open(os.path.realpath(name_of(path)))
    layout = open_source(journal.path).layout
    require_layout(journal.path, layout, journal.settings)
    entries = journal.entries(durable=True)
    ledger = Ledger.read(entries)
    chunks = {done.box: done for done in (*ledger.whole, *ledger.unsettled)}
    bad = tuple(sorted(done.box for done in damaged(journal.path, chunks.values(), executor)))
    if bad and forget:
        with journal.lock(force=force) as driver, journal.writer(owner=driver.token) as writer:
            journal.note_complete(False)
            writer.append(forgetting(entries, bad))
    return VerifyReport(path=journal.path, checked=len(chunks), bad=bad, forgotten=forget)


def _rate(ledger: Ledger, unit: str) -> float | None:
    """Tell how many a second were done since the last run began."""
    since = max((entry.time for entry, _ in ledger.began), default=0.0)
    recent = [chunk for chunk in ledger.chunks if chunk.time > since]
    if not recent:
        return None
    seconds = max(chunk.time for chunk in recent) - since
    done = count(chunk.line.box[0] for chunk in recent) if unit == "rows" else len(recent)
    return done / seconds if seconds > 0 else None


def require_layout(path: str, layout: Layout, settings: Settings) -> None:
    """Refuse a file whose header says something else than the settings of its journal.

    Raises
    ------
    StaleFileError
        It names what differs.
    """
    found = {"shape": [*layout.shape], "dtype": dtype_text(layout.dtype), "order": layout.order}
    for name, value in found.items():
        if settings[name] != value:
            msg = (
                f"{path}: is not the file that was begun: {name} was {settings[name]!r}, now it is "
                f"{value!r}; bring that one back"
            )
            raise StaleFileError(msg)


def require_same_file(path: str, ledger: Ledger) -> None:
    """Refuse a file that is not the one that earlier runs wrote.

    Raises
    ------
    StaleFileError
        It says which of its identity differs.
    """
    found, host = look_at(path), os.uname().nodename
    then = "it is not the file that was begun: bring that one back, or remove it and its journal"
    for entry, began in ledger.began:
        # Another host, or another mount of the same folder, may number the same file otherwise.
        here = entry.host == host and began.device == found.device
        wanted = Identity(
            device=began.device,
            inode=began.inode if here else None,
            nbytes=began.nbytes,
            mtime_ns=None,
            born_ns=began.born_ns if here else None,
            generation=began.generation if here else None,
            head_crc=began.head_crc,
        )
        require_same(path, wanted, found, then=then)


def look_at(path: str) -> Identity:
    """Say which file `path` is now, header and all; any time of change."""
    return open_source(path).identity.timeless


def damaged(path: str, chunks: Iterable[Done], executor: Executor | None) -> list[Done]:
    """Find the chunks whose bytes are not those that the journal speaks of: read, compare checksums.

    Parameters
    ----------
    path : str
        The file.
    chunks : iterable of Done
        What was written.
    executor : None or anything with ``submit``
        Where to read; None reads here.

    Returns
    -------
    list of Done
        The chunks that are not kept.
    """
    found = Calls(executor, functools.partial(_damaged, path), list(_batches(chunks)))
    return [done for batch in found for done in batch]


def _batches(chunks: Iterable[Done]) -> Iterator[list[Done]]:
    """Group chunks so that each group is worth a call."""
    batch: list[Done] = []
    for done in sorted(chunks, key=lambda done: done.box):
        batch.append(done)
        if sum(d.nbytes for d in batch) >= _BATCH_NBYTES or len(batch) >= _BATCH_CHUNKS:
            yield batch
            batch = []
    if batch:
        yield batch


def _damaged(path: str, chunks: list[Done]) -> list[Done]:
    """Read chunks again, and give those that differ."""
    # Not `open_target`: whoever may only read the file may verify it.
    target = Target(replace(open_source(path), filling=True), "auto")
    return [
        done
        for done in chunks
        if target.checksum(
            tuple(slice(*bounds) for bounds in done.box), done.checksum, fragments=done.fragments
        )
        != done.checksum
    ]

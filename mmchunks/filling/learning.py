"""What shape, dtype and unit does a sweep have, when only its function knows? Look at its first results.

    calls   0      1    2    3                       ...
            |first||as many as half a second takes|
            shape  seconds a row  ->  rows a unit     then the file is made, and these rows are
            dtype                                     written into it: nothing is computed twice

The first call may be slow for reasons of its own (imports, compilation), so it does not count for
the pace if others follow.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmchunks.errors import JournalError
from mmchunks.files.layout import PAGE
from mmchunks.files.npy import dtype_text
from mmchunks.filling.attempts import attempt, raise_failure
from mmchunks.filling.computing import Batch, Receipt, Unit, as_row, call_for
from mmchunks.filling.resuming import begin, running
from mmchunks.filling.units import choose_unit_rows
from mmchunks.planning.ranges import missing

if TYPE_CHECKING:
    from mmchunks.files.layout import Block
    from mmchunks.filling.attempts import Failure
    from mmchunks.filling.computing import Job
    from mmchunks.filling.scenarios import Call
    from mmchunks.planning.ranges import Rows
    from mmchunks.writing.journallines import Settings

__all__ = ["Lesson", "Limits", "learn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How large a unit may be."""

    rows: int | None
    """Exactly so many rows, whatever the rest says; None leaves it to the rest."""

    nbytes: int
    """Most bytes."""

    seconds: tuple[float, float]
    """Least and most seconds."""

    look: float
    """How many seconds to look at results before choosing."""

    def unit_rows(self, rows: int, row_nbytes: int, row_seconds: float) -> int:
        """Choose how many of `rows` rows make a unit."""
        return self.rows or choose_unit_rows(
            rows=rows,
            row_nbytes=row_nbytes,
            row_seconds=row_seconds,
            seconds=self.seconds,
            nbytes=self.nbytes,
            page=PAGE,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What became of the first rows."""

    begun: bool
    """Whether file and journal are there; not if every row failed, from which nothing is learnt."""

    receipt: Receipt
    """The rows that were written, which the journal has already; or those that failed, which nobody
    has written down yet."""


def learn(
    job: Job, settings: Settings, rows: int, limits: Limits, part: Rows | None, unit: Unit
) -> Lesson:
    """Compute the first rows, begin the work as they show it to be, and write them.

    Parameters
    ----------
    job : Job
        Shape and dtype may be unknown.
    settings : dict
        Of the work; what is learnt is added.
    rows : int
        How many scenarios there are.
    limits : Limits
        How large a unit may be.
    part : (int, int) or None
        The share of this run, if other drivers may be at work.
    unit : Unit
        The first scenarios that this process is to compute.

    Returns
    -------
    Lesson
        What was written, if there was a row to learn from.

    Raises
    ------
    SweepError
        If the function fails, and the job does not go on without such rows.
    """
    failures: list[Failure] = []
    first = None
    if job.shape is None or job.dtype is None:
        first = _first(job, unit, failures)
        if first is None:
            return Lesson(begun=False, receipt=Receipt(failures=tuple(failures)))
        unit = Unit(start=unit.start + len(failures), calls=unit.calls[len(failures) :])
        job = dataclasses.replace(
            job,
            shape=first.row.shape if job.shape is None else job.shape,
            dtype=first.row.dtype if job.dtype is None else job.dtype,
        )
    assert job.shape is not None
    assert job.dtype is not None
    row_nbytes = math.prod(job.shape) * job.dtype.itemsize
    block = Batch.of(job, unit, max(1, min(len(unit.calls), limits.nbytes // max(row_nbytes, 1))))
    block.failures = failures
    if first is not None:
        block.take(first.row, first.seconds)
    pace = _look(block, limits.look)
    if block.failures and job.on_error == "raise" and block.filled == len(block.failures):
        # Nothing is known to be right yet: leave nothing behind that a mended call would meet.
        raise_failure(job.path, block.failures[-1])
    settings = settings | {
        "shape": [rows, *job.shape],
        "dtype": dtype_text(job.dtype),
        "unit_rows": limits.unit_rows(rows, row_nbytes, pace),
    }
    journal = begin(job.path, settings)
    mine = (unit.start, unit.start + block.filled)
    receipt = Receipt(interrupted=block.interrupted)
    # Another driver that was faster has these rows, maybe other ones from a function that draws
    # random numbers: they are written and written down as a driver does it, or not at all.
    with suppress(JournalError), running(journal, rows=part, force=False, executor=None) as run:
        if missing(mine, run.done) == [mine]:
            receipt = block.write(run.target)
            run.log.append(*receipt.lines)
    return Lesson(begun=True, receipt=receipt)


@dataclass(frozen=True, slots=True, kw_only=True)
class _First:
    row: Block
    seconds: float


def _first(job: Job, unit: Unit, failures: list[Failure]) -> _First | None:
    """Compute rows until one does not fail; those that do are added to `failures`."""
    found: list[Block] = []

    def compute(call: Call) -> None:
        found.append(as_row(call_for(job, call), job.dtype))

    for row, call in enumerate(unit.calls, start=unit.start):
        began = time.perf_counter()
        failure = attempt(row, functools.partial(compute, call), retries=job.retries)
        if failure is None:
            return _First(row=found[0], seconds=time.perf_counter() - began)
        failures.append(failure)
        if job.on_error == "raise":
            raise_failure(job.path, failure)
    return None


def _look(block: Batch, seconds: float) -> float:
    """Fill rows for some seconds, and tell how many seconds a row takes."""
    if not block.filled:
        block.fill(seconds=0)
    first, filled = block.seconds, block.filled
    if first < seconds:
        block.fill(seconds=seconds - first)
    more = block.filled - filled
    return (block.seconds - first) / more if more else first

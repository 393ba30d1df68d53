"""How does a unit of scenarios become rows on the disk? Call, collect, write once, say what was done.

    calls    0     1     2     3     4            a unit: its rows lie one after another
    block   |r0...|r1...|.....|r3...|r4...|       scenario 2 failed
    written |<- one write ->| |<- another ->|     a record each, and one for the failure

This runs where the executor puts it. Only a receipt comes back: no row travels.
"""

from __future__ import annotations

import functools
import math
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import SweepError
from mmchunks.files.blocks import take
from mmchunks.filling.attempts import Failure, attempt
from mmchunks.gpu.transfers import on_host
from mmchunks.planning.ranges import missing
from mmchunks.writing.casting import castable
from mmchunks.writing.interrupts import interrupts_held
from mmchunks.writing.journal import Journal
from mmchunks.writing.targets import open_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mmchunks.files.layout import Block, DType
    from mmchunks.filling.scenarios import Call
    from mmchunks.planning.ranges import Rows
    from mmchunks.writing.journallines import Done, Line
    from mmchunks.writing.targets import Target

__all__ = ["Batch", "Job", "Receipt", "Unit", "as_row", "call_for", "compute", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What every unit of a sweep has in common; it travels to the workers."""

    func: Callable[..., Any]
    """Gives a row, or fills the one it is handed as ``out``."""

    path: str
    """The file that holds the rows."""

    shape: tuple[int, ...] | None
    """Shape of one row; None until it is learnt."""

    dtype: DType | None
    """Type of the rows; None until it is learnt."""

    into: bool
    """Whether `func` fills ``out``."""

    retries: int
    """How often a scenario that failed is tried again at once."""

    on_error: str
    """``"raise"`` stops at the first failure, ``"record"`` goes on."""

    run: str
    """Differs between runs, so that no scheduler takes a call for one it has made before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Consecutive scenarios, by the row of the first."""

    start: int
    """Row of the first."""

    calls: Sequence[Call]
    """What to call the function with, a row each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a unit."""

    done: tuple[Done, ...] = ()
    """What is on stable storage."""

    failures: tuple[Failure, ...] = ()
    """The scenarios that failed."""

    interrupted: bool = False
    """Whether Ctrl-C ended it early."""

    host: str = field(default_factory=lambda: os.uname().nodename)
    """Where it was computed."""

    pid: int = field(default_factory=os.getpid)
    """By which process."""

    @property
    def rows(self) -> list[Rows]:
        """The ranges of rows that are on stable storage."""
        return [done.box[0] for done in self.done]

    @property
    def failed(self) -> list[Rows]:
        """The rows whose scenarios failed, as ranges."""
        return [(failure.row, failure.row + 1) for failure in self.failures]

    @property
    def lines(self) -> list[Line]:
        """What a journal says of it."""
        return [*self.done, *(failure.line for failure in self.failures)]


@dataclass(kw_only=True)
class Batch:
    """A block that is being filled, row by row, from the scenarios of a unit."""

    job: Job
    """Whose rows they are; its shape and dtype are known."""

    unit: Unit
    """Which rows they are."""

    block: Block
    """Room for them."""

    filled: int = 0
    """How many were tried."""

    failures: list[Failure] = field(default_factory=list)
    """Those that failed."""

    interrupted: bool = False
    """Whether Ctrl-C came."""

    seconds: float = 0.0
    """What they took to compute."""

    @classmethod
    def of(cls, job: Job, unit: Unit, rows: int) -> Batch:
        """Make room for `rows` rows."""
        assert job.shape is not None
        assert job.dtype is not None
        return cls(job=job, unit=unit, block=take((rows, *job.shape), job.dtype, "C"))

    def stopped(self) -> bool:
        """Whether no further row is to be tried."""
        return self.interrupted or bool(self.failures and self.job.on_error == "raise")

    def take(self, row: Block, seconds: float) -> None:
        """Take the first row, which was computed in `seconds` before there was room for it."""
        failure = attempt(self.unit.start, lambda: _put(row, self.block[0, ...]), retries=0)
        self.failures += [] if failure is None else [failure]
        self.filled, self.seconds = 1, seconds

    def fill(self, *, seconds: float) -> None:
        """Compute rows until the block is full, `seconds` are over, or one fails for good."""
        began = time.perf_counter()
        try:
            for call in self.unit.calls[self.filled : len(self.block)]:
                if self.stopped() or (self.filled and time.perf_counter() - began > seconds):
                    break
                row, out = self.unit.start + self.filled, self.block[self.filled, ...]
                failure = attempt(
                    row, functools.partial(_place, self.job, call, out), retries=self.job.retries
                )
                self.filled += 1
                if failure is not None:
                    self.failures.append(failure)
        except KeyboardInterrupt:
            self.interrupted = True
        self.seconds += time.perf_counter() - began

    def write(self, target: Target) -> Receipt:
        """Put the rows that did not fail on stable storage."""
        start = self.unit.start
        failed = [(failure.row, failure.row + 1) for failure in self.failures]
        good = missing((start, start + self.filled), failed)
        with interrupts_held() as came:
            done = tuple(self._write(target, first, last) for first, last in good)
        interrupted = self.interrupted or bool(came)
        return Receipt(done=done, failures=tuple(self.failures), interrupted=interrupted)

    def _write(self, target: Target, first: int, last: int) -> Done:
        """Write a range of rows."""
        start = self.unit.start
        written = target.write_chunk(slice(first, last), self.block[first - start : last - start])
        seconds = self.seconds * (last - first) / self.filled
        return written._replace(box=((first, last),), seconds=seconds)


def compute(job: Job, unit: Unit) -> Receipt:
    """Compute the rows of a unit, and put them on stable storage.

    Parameters
    ----------
    job : Job
        Its shape and dtype are known.
    unit : Unit
        Which rows.

    Returns
    -------
    Receipt
        What is done and what failed; nothing, if the run is stopping. An error of writing is raised.
    """
    if _stop_mark(job).exists():
        return Receipt()
    target = open_target(job.path)
    batch = Batch.of(job, unit, len(unit.calls))
    batch.fill(seconds=math.inf)
    return batch.write(target)


@contextmanager
def stopping(job: Job) -> Iterator[None]:
    """Let units that have not begun do nothing, wherever they wait, while the block runs."""
    with suppress(OSError):  # without the mark they are computed, which takes longer
        _stop_mark(job).touch()
    try:
        yield
    finally:
        with suppress(OSError):
            _stop_mark(job).unlink()


def _stop_mark(job: Job) -> Path:
    """Name the file that says that a run is stopping."""
    return Journal(path=job.path).folder / f"{job.run}.stopping"


def call_for(job: Job, call: Call, **extra: object) -> object:
    """Call the function of a sweep as a scenario says."""
    return job.func(**call, **extra) if isinstance(call, dict) else job.func(*call, **extra)


def as_row(result: object, dtype: DType | None) -> Block:
    """Take what a function returned as an array on the host.

    Raises
    ------
    SweepError
        If it is not made of numbers, or of text of fixed length.
    """
    result = on_host(result)
    # Only with the dtype in hand is a tuple one element of many fields, and not many of one.
    row = np.asarray(result, dtype=dtype if dtype is not None and dtype.names else None)
    if dtype is not None and not hasattr(result, "dtype") and row.dtype.kind in "iu":
        # Python's integers have no width of their own: those that do not fit are refused.
        row = np.asarray(result, dtype) if dtype.kind in "iu" else row
    if row.dtype.hasobject:
        msg = f"the function returned {type(result).__name__}, which has no bytes to store"
        raise SweepError(msg)
    return row


def _place(job: Job, call: Call, out: Block) -> None:
    """Compute one row into its place."""
    if job.into:
        out[...] = np.zeros((), out.dtype)  # whatever an earlier try left there
        call_for(job, call, out=out)
        return
    _put(as_row(call_for(job, call), out.dtype), out)


def _put(row: Block, out: Block) -> None:
    """Put a row into its place, if it is of its kind."""
    if row.shape != out.shape or not castable(row.dtype, out.dtype):
        msg = (
            f"the function returned shape {row.shape} of {row.dtype}, but rows have shape "
            f"{out.shape} of {out.dtype}"
        )
        raise SweepError(msg)
    out[...] = row

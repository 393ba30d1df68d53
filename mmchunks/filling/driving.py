"""What does a driver do with the receipts of its workers? Write them down, count them, stop when it must.

However a run ends, what workers finished is kept: a failed scenario, Ctrl-C or a lost worker stops
the handing out, those units that run already are waited for and journalled, and those that were
handed out but not begun find a mark that tells them not to.
"""

from __future__ import annotations

import reprlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mmchunks.errors import MMChunksError, SweepError
from mmchunks.filling.attempts import raise_failure
from mmchunks.filling.computing import stopping
from mmchunks.planning.ranges import count
from mmchunks.writing.interrupts import interrupts_held
from mmchunks.writing.journallines import box_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmchunks.filling.computing import Job, Receipt, Unit
    from mmchunks.filling.executors import Calls
    from mmchunks.filling.progress import Bar
    from mmchunks.filling.resuming import Log
    from mmchunks.planning.ranges import Rows

__all__ = ["Driver", "losses_named"]


@dataclass(kw_only=True)
class Driver:
    """One run over the units of a sweep."""

    job: Job
    """What is swept."""

    log: Log
    """Where receipts are written down."""

    bar: Bar
    """Who watches."""

    done: list[Rows] = field(default_factory=list)
    """Ranges of rows that this run did."""

    failed: list[Rows] = field(default_factory=list)
    """Those whose scenario failed, one row each."""

    def run(self, calls: Calls[Unit, Receipt]) -> None:
        """Take receipts until all units ended, or until something stops the run.

        Raises
        ------
        SweepError
            If a scenario failed and the job does not go on without it.
        KeyboardInterrupt
            If Ctrl-C came, here or to a worker.
        """
        try:
            for receipt in calls:
                self.take(receipt)
        except BaseException:
            with stopping(self.job):
                for receipt in calls.rest():
                    self.note(receipt)
            raise

    def take(self, receipt: Receipt) -> None:
        """Write a receipt down; raise if it ends the run."""
        self.note(receipt)
        self.heed(receipt)

    def heed(self, receipt: Receipt) -> None:
        """Raise if a receipt ends the run."""
        if receipt.interrupted:
            raise KeyboardInterrupt
        if receipt.failures and self.job.on_error == "raise":
            raise_failure(self.job.path, receipt.failures[0])

    def note(self, receipt: Receipt) -> None:
        """Write a receipt down."""
        with interrupts_held() as came:
            self.log.append(*receipt.lines, host=receipt.host, pid=receipt.pid)
        self.count(receipt)
        if came:
            raise KeyboardInterrupt

    def count(self, receipt: Receipt) -> None:
        """Count a receipt that is written down."""
        self.done += receipt.rows
        self.failed += receipt.failed
        failed = len(receipt.failures)
        self.bar.advance(count(receipt.rows) + failed, failed=failed)


@contextmanager
def losses_named(path: str, calls: Calls[Unit, Any]) -> Iterator[None]:
    """Say what the loss of a worker means, and at which rows, whatever its executor raises then.

    Raises
    ------
    SweepError
        For everything that is neither an error of ours nor of the operating system.
    """
    try:
        yield
    except (MMChunksError, OSError):
        raise
    except Exception as error:
        units = calls.suspects()
        msg = (
            f"{path}: a worker was lost, or could not run the function{_at(units)} "
            f"({type(error).__name__}: {error}); what is done is kept, run again to go on"
        )
        if any(len(unit.calls) > 1 for unit in units):
            msg += "; if that recurs, sweep those scenarios to another path with chunks=1 to find which"
        raise SweepError(msg) from error


def _at(units: list[Unit]) -> str:
    """Name the rows of units for people, and the scenario where it is one."""
    if not units:
        return ""
    named = [
        f"scenario {unit.start:,}, which is {reprlib.repr(unit.calls[0])}"
        if len(unit.calls) == 1
        else box_text([(unit.start, unit.start + len(unit.calls))])
        for unit in units[:4]
    ]
    more = f" and {len(units) - 4:,} more" if len(units) > 4 else ""
    return f" at {' or '.join(named)}{more}"

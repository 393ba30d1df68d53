"""What becomes of a scenario that raises? It is tried again, written down, or ends the sweep."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from mmchunks.errors import SweepError
from mmchunks.writing.journallines import Failed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Failure", "attempt", "raise_failure"]


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A scenario that failed."""

    row: int
    """Which."""

    error: str
    """The exception in one line."""

    trace: str
    """Its traceback."""

    exception: BaseException | None
    """The exception itself; it stays where it was raised, because not all can travel."""

    @property
    def line(self) -> Failed:
        """What a journal says of it."""
        return Failed(self.row, self.error, self.trace)

    def __reduce__(self) -> Any:
        return _failure, (self.row, self.error, self.trace)


def _failure(row: int, error: str, trace: str) -> Failure:
    return Failure(row=row, error=error, trace=trace, exception=None)


def raise_failure(path: str, failure: Failure) -> NoReturn:
    """Raise what a scenario that failed means for the whole sweep.

    Raises
    ------
    SweepError
        Always; its note is the traceback, wherever that happened.
    """
    msg = (
        f"{path}: scenario {failure.row} failed: {failure.error}; mend it and run again, or pass "
        f'on_error="record" to go on without it'
    )
    error = SweepError(msg)
    error.add_note(failure.trace)
    raise error from failure.exception


def attempt(row: int, work: Callable[[], object], *, retries: int) -> Failure | None:
    """Do the work of one row, again if it fails; give its last failure, or None."""
    for _ in range(retries + 1):
        try:
            work()
        # A scenario may raise anything, sys.exit() included; only Ctrl-C is not its own.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            failure = Failure(
                row=row,
                error="".join(traceback.format_exception_only(error)).strip(),
                trace=traceback.format_exc(limit=-20),
                exception=error,
            )
        else:
            return None
    return failure

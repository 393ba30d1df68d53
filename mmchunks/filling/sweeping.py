"""How are the rows of many scenarios filled by many processes? One driver hands out units and keeps the journal.

    scenarios -> units that are missing -> executor -> compute, write, flush -> receipt
                        ^                                                          |
                        `------------------- journal <-----------------------------'

With ``part=(i, n)`` there is no driver: each process is the driver of its own share of the rows,
and keeps a journal file of its own. Whoever finds everything done writes the pages that are shared.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import PlanError, SweepError
from mmchunks.files.layout import as_shape
from mmchunks.files.npy import dtype_text
from mmchunks.files.sources import name_of
from mmchunks.filling.computing import Job, Receipt, Unit, compute
from mmchunks.filling.driving import Driver, losses_named
from mmchunks.filling.executors import Calls
from mmchunks.filling.learning import Limits, learn
from mmchunks.filling.progress import progress_bar
from mmchunks.filling.resuming import begin, begun, running
from mmchunks.filling.scenarios import as_scenarios, describe_function
from mmchunks.filling.units import share
from mmchunks.planning.grammar import parse_rows
from mmchunks.planning.jobarrays import as_part
from mmchunks.planning.ranges import count, cut, missing
from mmchunks.writing.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import DTypeLike

    from mmchunks.files.sources import File
    from mmchunks.filling.attempts import Failure
    from mmchunks.filling.executors import Executor
    from mmchunks.filling.scenarios import Scenarios
    from mmchunks.planning.grammar import Chunks
    from mmchunks.planning.ranges import Rows
    from mmchunks.writing.journallines import Settings

__all__ = ["SweepReport", "sweep"]

_UNIT_NBYTES = 1 << 26  # what a worker holds in memory, and what a disk writes at its full pace
_UNIT_SECONDS = (0.5, 20.0)  # what a worker that dies may lose, below half a minute
_LOOK_SECONDS = 0.5  # how long first results are looked at
_LOOK_ROWS = 4096  # and how many of them at most


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What one run of a sweep did.

    Attributes
    ----------
    path : str
        The file.
    done : int
        Rows that this run put on stable storage.
    skipped : int
        Rows that were done before it.
    failed : int
        Rows whose scenario failed in this run; the next run tries them again.
    seconds : float
        How long it took.
    """

    path: str
    done: int
    skipped: int
    failed: int
    seconds: float

    def __str__(self) -> str:
        failed = f", {self.failed:,} failed" if self.failed else ""
        return (
            f"{self.path}: {self.done:,} rows done in {self.seconds:.1f} s, "
            f"{self.skipped:,} were done before{failed}"
        )


def sweep(
    func: Callable[..., Any],
    scenarios: Any,
    path: File,
    *,
    shape: int | tuple[int, ...] | None = None,
    dtype: DTypeLike | None = None,
    executor: Executor | None = None,
    chunks: Chunks = "auto",
    into: bool = False,
    resume: bool = True,
    retries: int = 0,
    on_error: str = "raise",
    part: tuple[int, int] | str | None = None,
    progress: bool | None = None,
    force: bool = False,
) -> SweepReport:
    """Fill row ``i`` of one ``.npy`` file with what `func` makes of scenario ``i``.

    Stop it, kill it, lose the machine: run it again with the same arguments, and it goes on with
    the rows that are missing.

    Parameters
    ----------
    func : callable
        ``func(**scenario)``, or ``func(*scenario)`` for a tuple, gives the row. It should give the
        same row for the same scenario. Processes must be able to import it. A later run must give
        the same one: it is known by its name (and the arguments of a `functools.partial`), only a
        lambda or a function within a function by its code. Who changes what a named function
        computes gives another path, or rows of both will be in one file.
    scenarios : sequence of dict or tuple, dict of sequences, or pandas.DataFrame
        A dict of sequences means their product, a table one scenario a row.
    path : str, os.PathLike, Source or Target
        The file, of shape ``(len(scenarios), *shape)``. The journal is a folder beside it.
    shape : int or tuple of int, optional
        Shape of one row; without it, that of the first result.
    dtype : data-type, optional
        Type of the rows; without it, that of the first result. Results are cast "same_kind".
    executor : optional
        Where to compute: anything with ``submit`` (a pool of processes or threads, of MPI, a
        `distributed.Client`). Without it, right here.
    chunks : int, str, tuple, dict or None
        In dask's grammar: rows that are computed, written and journalled at once, which is what a process that dies
        loses; or their size, as ``"16 MiB"``. ``"auto"`` looks at the first results and keeps it
        below half a minute and 64 MiB, or one row.
    into : bool
        Whether `func` fills a row that it is handed as ``out`` (zeros at first) instead.
    resume : bool
        False refuses to go on with what is there.
    retries : int
        How often a scenario that fails is tried again at once.
    on_error : {"raise", "record"}
        Whether a scenario that fails ends the sweep, keeping what is done, or is written down and
        its row left as zeros. Failed ones are tried again by the next run.
    part : (int, int) or str, optional
        ``(i, n)``: do the i-th of n shares only, counted from 0; or ``"auto"``: the share of this
        task of a job array. Any number of them may run at once, on any number of hosts.
    progress : bool, optional
        Whether to show how far it is; by default where there is a terminal or a notebook. True
        writes a line a minute where there is none.
    force : bool
        Take the place of a driver on another host, of which only you know that it has ended.

    Returns
    -------
    SweepReport
        What this run did.

    Raises
    ------
    SweepError
        If a scenario fails and `on_error` is "raise", or workers are lost.
    JournalError
        If the file was begun with other settings, or another driver is at work.
    StaleFileError
        If the file is gone, truncated, replaced or changed since.
    FileExistsError
        If there is a file that no sweep made, or any without `resume`.
    OSError
        If the disk is full or fails. What is done is kept.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/out.npy"
    >>> sweep(pow, [(2, 3), (3, 2)], path).done
    2
    >>> np.load(path)
    array([8, 9])
    """
    began = time.perf_counter()
    # Look: what is asked for, and what of it is there?
    path = os.path.realpath(name_of(path))
    calls = as_scenarios(scenarios)
    job = Job(
        func=func,
        path=path,
        shape=None if shape is None else as_shape(shape),
        dtype=None if dtype is None else np.dtype(dtype),
        into=into,
        retries=retries,
        on_error=on_error,
        run=uuid.uuid4().hex,
    )
    _require_sense(job)
    share_of_run = None if part is None else share(len(calls), as_part(part))
    rows = share_of_run or (0, len(calls))
    limits = _limits(chunks, len(calls))
    settings = _settings(job, calls, limits)
    journal = begun(path, settings, resume=resume)
    first = before = Receipt()

    # Choose: shape, dtype and units of work that nobody has begun show in its first rows.
    if journal is None:
        if rows[0] == rows[1] and calls:
            return SweepReport(path=path, done=0, skipped=0, failed=0, seconds=0.0)
        journal, first, before = _begin(
            job, calls, rows, settings, limits, executor, part=share_of_run
        )

    # Act: hand out what is left, and write down what comes back.
    with running(journal, rows=share_of_run, force=force, executor=executor) as run:
        job = dataclasses.replace(job, shape=run.target.shape[1:], dtype=run.target.dtype)
        tried = first.failed + before.failed
        left = missing(rows, run.done + tried)
        skipped = rows[1] - rows[0] - count(left) - count(first.rows + tried)
        with progress_bar(
            rows[1] - rows[0], what="rows", done=skipped, show=progress, console=None
        ) as bar:
            driver = Driver(job=job, log=run.log, bar=bar)
            driver.note(before)
            driver.count(first)
            driver.heed(first)
            units = _units(calls, left, journal.settings["unit_rows"])
            work = Calls(executor, functools.partial(compute, job), units)
            with losses_named(path, work):
                driver.run(work)
    return SweepReport(
        path=path,
        done=count(driver.done),
        skipped=skipped,
        failed=len(driver.failed),
        seconds=time.perf_counter() - began,
    )


def _begin(
    job: Job,
    calls: Scenarios,
    rows: Rows,
    settings: Settings,
    limits: Limits,
    executor: Executor | None,
    *,
    part: Rows | None,
) -> tuple[Journal, Receipt, Receipt]:
    """Make the file and its journal, with the first rows in it; say which failed before those."""
    if not calls:
        if job.shape is None or job.dtype is None:
            msg = f"{job.path}: there is no scenario to learn shape and dtype from; pass both"
            raise PlanError(msg)
        learnt = {"shape": [0, *job.shape], "dtype": dtype_text(job.dtype), "unit_rows": 1}
        return begin(job.path, settings | learnt), Receipt(), Receipt()
    look = functools.partial(learn, job, settings, len(calls), limits, part)
    failures: list[Failure] = []
    for unit in _units(calls, [rows], limits.rows or _LOOK_ROWS):
        first = Calls(executor, look, [unit])
        with losses_named(job.path, first):
            (lesson,) = first
        if lesson.begun:
            before = Receipt(failures=tuple(failures))
            return Journal.open(job.path), lesson.receipt, before
        failures += lesson.receipt.failures
    msg = (
        f"{job.path}: none of {len(failures):,} scenarios gave a row that shape and dtype could be "
        f"learnt from, the last one failed: {failures[-1].error}; mend it, or pass shape= and dtype="
    )
    error = SweepError(msg)
    error.add_note(failures[-1].trace)
    raise error from failures[-1].exception


def _units(calls: Scenarios, left: list[Rows], unit_rows: int) -> Iterator[Unit]:
    """Make the units of the rows that are left, as they are asked for."""
    for start, stop in cut(left, unit_rows):
        yield Unit(start=start, calls=calls[start:stop])


def _limits(chunks: Chunks, rows: int) -> Limits:
    """Read ``chunks=``."""
    unit_rows, nbytes = parse_rows(chunks, rows)
    if (unit_rows, nbytes) == (None, None):
        return Limits(rows=None, nbytes=_UNIT_NBYTES, seconds=_UNIT_SECONDS, look=_LOOK_SECONDS)
    forever = (math.inf, math.inf)
    return Limits(rows=unit_rows, nbytes=nbytes or _UNIT_NBYTES, seconds=forever, look=math.inf)


def _settings(job: Job, calls: Scenarios, limits: Limits) -> Settings:
    """Say what a later run must agree with; None where this one does not care."""
    from dask.tokenize import tokenize

    say = functools.partial(tokenize, ensure_deterministic=True)
    return {
        "kind": "sweep",
        "function": describe_function(job.func, say),
        "scenarios": calls.to_json(say),
        "shape": None if job.shape is None else [len(calls), *job.shape],
        "dtype": None if job.dtype is None else dtype_text(job.dtype),
        "order": "C",
        "unit_rows": limits.rows,
    }


def _require_sense(job: Job) -> None:
    """Refuse arguments that no sweep can have."""
    if job.on_error not in {"raise", "record"}:
        msg = f'on_error is {job.on_error!r}; write "raise" or "record"'
        raise PlanError(msg)
    if job.retries < 0:
        msg = f"retries is {job.retries}; write 0 or more"
        raise PlanError(msg)
    if job.into and (job.shape is None or job.dtype is None):
        msg = "into=True hands out rows to fill, so it needs their shape= and dtype="
        raise PlanError(msg)

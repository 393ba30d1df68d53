"""Is this the work that was begun here? Begin it, or carry on, or refuse in a sentence.

    journal  file
    no       no      begin: the journal first, then the file it promises
    yes      no      of many that begin, one makes the file; gone after work was done: refused
    no       yes     somebody else's file: refused
    yes      yes     the same settings, the same file: carry on; else refused

Nothing that is refused is touched, and nothing is believed that a power cut could still take: names
and lines that an earlier run left behind are made durable first. Where somebody changed the file since its
last run, the chunks that are done are read again, and their checksums compared.

A run is what happens between two lines of the journal, *began* and *ended*: between them the file may
change, and if the second one is missing, it was killed.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import random
import time
import weakref
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from mmchunks.errors import JournalError, MMChunksError, StaleFileError, os_error
from mmchunks.files.layout import PAGE
from mmchunks.files.npy import dtype_of
from mmchunks.filling import scenarios
from mmchunks.filling.checking import damaged, look_at, require_layout, require_same_file
from mmchunks.writing.journal import Journal
from mmchunks.writing.journallines import Began, Done, Ended, Entry, Settled, box_text
from mmchunks.writing.ledger import Ledger, outstanding
from mmchunks.writing.targets import create_npy, open_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mmchunks.filling.executors import Executor
    from mmchunks.planning.ranges import Rows
    from mmchunks.writing.journal import Writer
    from mmchunks.writing.journallines import Line, Settings
    from mmchunks.writing.targets import Target

__all__ = [
    "Log",
    "Run",
    "begin",
    "begun",
    "carry_on",
    "note_begin",
    "note_end",
    "running",
    "settle",
]

_SETTLE_SECONDS = 5.0  # how long a row may wait for the ends of it that lie in shared pages
_LATE_NS = 120 * 10**9  # a unit takes half a minute
_SAMPLE, _SAMPLE_NBYTES = 64, 1 << 28  # chunks to look at after a run that was killed, and bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Work on a file that is under way."""

    target: Target
    """The file."""

    log: Log
    """Where to write down what is done."""

    done: list[Rows]
    """The ranges of rows that were done when the run began."""


def begun(path: str, given: Settings, *, resume: bool) -> Journal | None:
    """Open the journal of `path`, if it is of the work that is given.

    Parameters
    ----------
    path : str
        The file.
    given : dict
        The settings; what is None was left for the earlier run to say.
    resume : bool
        False refuses whatever is there.

    Returns
    -------
    Journal or None
        None where neither a journal nor a file is.

    Raises
    ------
    FileExistsError
        If there is a file without a journal, or anything without `resume`.
    JournalError
        If the journal is of other work: it says which setting differs.
    """
    # Looked at first: another part may be making the journal, and then the file, at this moment.
    there = os.path.lexists(path)
    try:
        journal = Journal.open(path)
    except FileNotFoundError:
        if not there:
            return None
        msg = f"{path}: exists and has no journal, so nobody knows what is done; remove it, or write elsewhere"
        raise os_error(errno.EEXIST, msg) from None
    if not resume:
        msg = f"{path}: was begun before; carry on with resume=True, or remove it and {journal.folder}"
        raise os_error(errno.EEXIST, msg)
    what = _difference(journal, given)
    if what:
        msg = (
            f"{path}: was begun with other settings: {what}; "
            f"give the same, or another path, or remove it and {journal.folder} to begin anew"
        )
        raise JournalError(msg)
    return None if _abandoned(journal) else journal


def _abandoned(journal: Journal) -> bool:
    """Remove the journal of a file that is gone, if no chunk of it was ever done."""
    if os.path.lexists(journal.path) or not journal.ledger().began:
        return False  # not made yet is not gone
    with journal.lock(force=False), journal.turn("making"):
        if os.path.lexists(journal.path) or journal.ledger(durable=True).done:
            return False
        journal.remove()
    return True


def begin(path: str, settings: Settings) -> Journal:
    """Begin work on a file that is not there, or carry on with who did at the same moment.

    Parameters
    ----------
    path : str
        The file to make.
    settings : dict
        All of them. What the other one chose for ``"unit_rows"`` holds.

    Returns
    -------
    Journal
        Of the file, which is there.

    Raises
    ------
    OSError, LayoutError
        If there is no space, or no such file can be: then no journal is left behind either.
    """
    while True:
        try:
            journal = Journal.create(path, settings)
        except JournalError:
            other = begun(path, settings | {"unit_rows": None}, resume=True)
            if other is None:
                continue  # its maker could not make the file, and took it away
            journal = other
        if _make(journal):
            return journal


def _make(journal: Journal) -> bool:
    """Make the file of a journal, if it is not there: of many processes one, while others wait.

    All of them together would each reserve the whole file, and find the disk full. The one that does
    find it full takes the journal away: False says that it did, while we waited.
    """
    path, settings = journal.path, journal.settings
    if os.path.lexists(path):
        return True
    with ExitStack() as stack:
        try:
            stack.enter_context(journal.turn("making"))
        except FileNotFoundError:
            if journal.folder.exists():
                raise
            return False
        if os.path.lexists(path):
            return True
        done = journal.ledger(durable=True).done
        if done:
            msg = (
                f"{path}: is gone, though its journal says that {len(done):,} chunks are done; "
                f"bring it back, or remove {journal.folder} to begin anew"
            )
            raise StaleFileError(msg)
        try:
            dtype = dtype_of(settings["dtype"])
            create_npy(path, settings["shape"], dtype, order=settings["order"])
        except (OSError, MMChunksError):
            if os.path.lexists(path):  # another host was faster, which our turn did not keep out
                return True
            journal.remove()
            raise
    return True


def carry_on(journal: Journal, *, rows: Rows | None = None, executor: Executor | None) -> Target:
    """Open the file of a journal, after making sure that it is the one that was written.

    Parameters
    ----------
    journal : Journal
        Of work that was begun.
    rows : (int, int), optional
        The share of this run, if others are at work, who look at theirs.
    executor : None or anything with ``submit``
        Where chunks are read again, if somebody else may have changed the file since the last run.

    Returns
    -------
    Target
        To write what is missing.

    Raises
    ------
    StaleFileError
        If the file was deleted, truncated or replaced, or holds other bytes than were written.
    """
    path = journal.path
    if not _make(journal):
        msg = f"{path}: its journal {journal.folder} was removed this very moment; run again"
        raise JournalError(msg)
    target = open_target(path)
    # From here on names and lines are believed that others wrote: first they are made durable.
    ledger = journal.ledger(durable=True)
    require_layout(path, target.layout, journal.settings)
    require_same_file(path, ledger)
    bad = damaged(path, _doubtful(journal, ledger, rows), executor)
    if bad:
        more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
        msg = (
            f"{path}: was changed since its last run: {box_text(bad[0].box)}{more} hold "
            f"other bytes than were written; mmchunks verify --forget {path}, or "
            "verify(path, forget=True), has the next run compute them again"
        )
        raise StaleFileError(msg)
    return target


def _doubtful(journal: Journal, ledger: Ledger, rows: Rows | None) -> list[Done]:
    """List the chunks to read again before they are believed.

    All, if somebody changed the file after its last run had ended. A run that was killed did not say
    how it left the file: then some, because most of what may have happened to the file since, such as
    a copy of an older one in its place, shows in any few of them.
    """
    changed_ns, since_ns = os.stat(journal.path).st_mtime_ns, ledger.left_alone_since
    if since_ns is not None:
        return [] if since_ns == changed_ns else ledger.whole
    if rows is None and changed_ns > journal.changed_ns + _LATE_NS:
        return ledger.whole  # long after the last line: no unit of ours takes so long to write
    few = ledger.whole
    if rows is not None:
        few = [done for done in few if rows[0] <= done.box[0][0] < rows[1]]
    most = _SAMPLE if rows is None else _SAMPLE // 8
    few = random.sample(few, min(len(few), most))
    sizes = itertools.accumulate(done.nbytes for done in few)
    kept = sum(nbytes <= _SAMPLE_NBYTES for nbytes in sizes)
    return few[: max(kept, 1)]


@contextmanager
def running(
    journal: Journal, *, rows: Rows | None, force: bool, executor: Executor | None
) -> Iterator[Run]:
    """Work on the file of a journal while the block runs, and leave both in order at its end.

    Parameters
    ----------
    journal : Journal
        Of work that was begun.
    rows : (int, int) or None
        The share of this run, if others may be at work at the same time; None drives it alone.
    force : bool
        Take the place of a driver whose end cannot be seen.
    executor : None or anything with ``submit``
        Where chunks are read again, if somebody else may have changed the file since the last run.

    Yields
    ------
    Run
        The file, and where to write down what is done of it.

    Raises
    ------
    JournalError
        If another driver is at work, or has taken over meanwhile.
    StaleFileError
        As `carry_on`.
    """
    alone = rows is None
    with journal.lock(force=force) if alone else nullcontext() as driver:
        owner = driver.token if driver is not None else None
        target = carry_on(journal, rows=rows, executor=executor)
        log = Log(journal=journal, target=target, owner=owner)
        try:
            with log:
                note_begin(journal, log, alone=alone)
                yield Run(target=target, log=log, done=journal.ledger(durable=True).rows)
        except OSError:
            raise  # of a disk that fails nothing is known, least of all that it was left alone
        except BaseException:
            note_end(journal, target, owner=owner, force=force)
            raise
        note_end(journal, target, owner=owner, force=force)


class Log:
    """Where one process writes down what it has done; it settles shared pages now and then.

    Parameters
    ----------
    journal : Journal
        Of the file.
    target : Target
        The file.
    owner : str or None
        Token of the driver for whom it writes, if there is one.
    """

    def __init__(self, *, journal: Journal, target: Target, owner: str | None) -> None:
        self._journal = journal
        self._target = target
        self._owner = owner
        self._open = ExitStack()
        self._settled = time.monotonic()
        weakref.finalize(self, self._open.close)  # also where nobody leaves it

    def __enter__(self) -> Self:
        self._writer = self._open.enter_context(self._journal.writer(owner=self._owner))
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def append(self, *lines: Line, host: str | None = None, pid: int | None = None) -> None:
        """Write down what was done; see `Writer.append`."""
        self._writer.append(*lines, host=host, pid=pid)
        waiting = any(isinstance(line, Done) and line.fragments for line in lines)
        if waiting and time.monotonic() - self._settled >= _SETTLE_SECONDS:
            with suppress(JournalError):  # another process is at it, and will be long
                settle(self._journal, self._target, owner=self._owner)
            self._settled = time.monotonic()


def note_begin(journal: Journal, log: Log | Writer, *, alone: bool) -> None:
    """Write down which file a run is about to write, and whether all earlier ones are over."""
    journal.note_complete(False)
    file = look_at(journal.path)
    assert file.inode is not None
    log.append(
        Began(
            device=file.device,
            inode=file.inode,
            nbytes=file.nbytes,
            born_ns=file.born_ns,
            generation=file.generation,
            head_crc=file.head_crc,
            alone=alone,
        )
    )


def note_end(
    journal: Journal,
    target: Target,
    *,
    owner: str | None,
    force: bool = False,
    seen: Sequence[Done] = (),
) -> None:
    """Write the pages that chunks share, and down how the file was left.

    Parameters
    ----------
    journal : Journal
        Of the file, to which all lines of this run were written.
    target : Target
        The file.
    owner : str or None
        Token of the driver that ends, if there is one.
    force : bool
        Settle in the place of a process whose end cannot be seen.
    seen : sequence of Done
        Chunks that are in the journal, but may not be visible there yet.
    """
    settle(journal, target, owner=owner, force=force, seen=seen)
    with journal.writer(owner=owner) as writer:
        writer.append(Ended(os.stat(journal.path).st_mtime_ns))
    found = outstanding(journal.settings, journal.ledger())
    journal.note_complete(not found.left and not found.waiting)


def settle(
    journal: Journal,
    target: Target,
    *,
    owner: str | None,
    force: bool = False,
    seen: Sequence[Done] = (),
) -> None:
    """Write the pages that chunks share, of all chunks whose fragments wait in the journal.

    At any instant one process writes such pages, whoever it is, and whatever became of the others:
    the one that has the turn. It reads each page as it is on the disk, and lays all fragments over it
    that anybody has written down, so nothing is lost that another one settled before, or that it does
    not see yet: that one's own turn is still to come.

    Parameters
    ----------
    journal : Journal
        Of the file.
    target : Target
        The file.
    owner : str or None
        Token of the driver that asks, if there is one.
    force : bool
        Take the turn of a process whose end cannot be seen.
    seen : sequence of Done
        Chunks that are in the journal, but may not be visible there yet.

    Raises
    ------
    JournalError
        If another process keeps the turn for too long: the fragments stay in the journal.
    """
    if target.local or not (seen or journal.ledger().unsettled):
        return
    with journal.turn("settling", force=force):
        ledger = Ledger.read([*journal.entries(durable=True), Entry("", 0, math.inf, tuple(seen))])
        waiting = ledger.unsettled
        if not waiting:
            return
        pages = {offset // PAGE for done in waiting for offset, _ in done.fragments}
        target.settle(
            chunk.line._replace(fragments=touching)
            for chunk in sorted(ledger.chunks, key=lambda chunk: chunk.time)
            if (touching := tuple(f for f in chunk.line.fragments if f[0] // PAGE in pages))
        )
        with journal.writer(owner=owner) as writer:
            writer.append(Settled(tuple({done.box for done in waiting})))


def _difference(journal: Journal, given: Settings) -> str | None:
    """Say which setting differs first; None in `given` agrees with everything."""
    for name, new in given.items():
        old = journal.settings.get(name)
        if name == "scenarios" and journal.settings["kind"] == "sweep":
            old = journal.scenarios
        if new is None or scenarios.same(old, new):
            continue
        if name == "scenarios" and old is not None:
            what = scenarios.difference(old, new)
            if what:
                return what
        else:
            return f"{name} was {_short(old)}, now it is {_short(new)}"
    return None


def _short(setting: Any) -> str:
    """Write a setting for people."""
    text = scenarios.function_text(setting) if isinstance(setting, dict) else repr(setting)
    return text if len(text) <= 200 else text[:197] + "..."

"""Is this the work that was begun here? Begin it, or carry on, or refuse in a sentence.

    journal  file
    no       no      begin: the journal first, then the file it promises
    yes      no      of two that begin, one makes the file; gone after work was done: refused
    no       yes     somebody else's file: refused
    yes      yes     the same settings, the same file: carry on; else refused

Nothing that is refused is touched. Where somebody changed the file since its last run, the chunks
that are done are read again, and their checksums compared.

A run is what happens between two lines of the journal, *began* and *ended*: between them the file may
change, and if the second one is missing, it was killed.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mmchunks.errors import JournalError, MMChunksError, StaleFileError, os_error
from mmchunks.files.npy import dtype_of
from mmchunks.filling import scenarios
from mmchunks.filling.checking import damaged, look_at, require_layout, require_same_file
from mmchunks.planning.ranges import missing
from mmchunks.writing.journal import Journal
from mmchunks.writing.ledger import Ledger
from mmchunks.writing.lines import Began, Ended, Entry, Settled, box_text
from mmchunks.writing.targets import create_npy, open_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mmchunks.planning.ranges import Rows
    from mmchunks.writing.journal import Writer
    from mmchunks.writing.lines import Done
    from mmchunks.writing.targets import Target

__all__ = ["Run", "begin", "begun", "carry_on", "note_begin", "note_end", "running"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Work on a file that is under way."""

    target: Target
    """The file."""

    writer: Writer
    """Where to write down what is done."""

    done: list[Rows]
    """The ranges of rows that were done when the run began."""


def begun(path: str, given: dict[str, Any], *, resume: bool) -> Journal | None:
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
    what = _difference(journal.settings, given)
    if what:
        msg = (
            f"{path}: was begun with other settings: {what}; "
            f"give the same, or another path, or remove it and {journal.folder} to begin anew"
        )
        raise JournalError(msg)
    return journal


def begin(path: str, settings: dict[str, Any]) -> Journal:
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
    try:
        journal = Journal.create(path, settings)
    except JournalError:
        other = begun(path, settings | {"unit_rows": None}, resume=True)
        assert other is not None  # whoever won made it just now
        carry_on(other, executor=None)
        return other
    try:
        carry_on(journal, executor=None)
    except (OSError, MMChunksError):
        if not os.path.lexists(path):
            journal.remove()
        raise
    return journal


def carry_on(journal: Journal, *, executor: Any) -> Target:
    """Open the file of a journal, after making sure that it is the one that was written.

    Parameters
    ----------
    journal : Journal
        Of work that was begun.
    executor : None or anything with ``submit``
        Where chunks are read again, if somebody else changed the file since the last run.

    Returns
    -------
    Target
        To write what is missing.

    Raises
    ------
    StaleFileError
        If the file was deleted, truncated or replaced, or holds other bytes than were written.
    """
    path, settings = journal.path, journal.settings
    ledger = journal.ledger()
    if not os.path.lexists(path):
        if ledger.began or ledger.done:
            msg = (
                f"{path}: is gone, though its journal says that {len(ledger.done):,} chunks are done; "
                f"bring it back, or remove {journal.folder} to begin anew"
            )
            raise StaleFileError(msg)
        dtype = dtype_of(settings["dtype"])
        with suppress(FileExistsError):  # another part was faster, with the same settings
            create_npy(path, settings["shape"], dtype, order=settings["order"])
    target = open_target(path)
    require_layout(path, target.layout, settings)
    require_same_file(path, ledger)
    if ledger.left_alone_since not in {None, os.stat(path).st_mtime_ns}:
        bad = damaged(path, ledger.whole, executor)
        if bad:
            more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
            msg = (
                f"{path}: was changed since its last run: {box_text(bad[0].box)}{more} hold "
                f"other bytes than were written; mmchunks verify --forget {path}, or "
                "verify(path, forget=True), has the next run compute them again"
            )
            raise StaleFileError(msg)
    return target


@contextmanager
def running(journal: Journal, *, alone: bool, force: bool, executor: Any) -> Iterator[Run]:
    """Work on the file of a journal while the block runs, and leave both in order at its end.

    Parameters
    ----------
    journal : Journal
        Of work that was begun.
    alone : bool
        Whether nobody else may drive the file meanwhile, and nobody else writes it at the end.
    force : bool
        Take the place of a driver whose end cannot be seen.
    executor : None or anything with ``submit``
        Where chunks are read again, if somebody else changed the file since the last run.

    Yields
    ------
    Run
        The file, and where to write down what is done of it.

    Raises
    ------
    JournalError
        If another driver is at work.
    StaleFileError
        As `carry_on`.
    """
    with journal.lock(force=force) if alone else nullcontext():
        target = carry_on(journal, executor=executor)
        try:
            with journal.writer() as writer:
                note_begin(journal, writer, alone=alone)
                yield Run(target=target, writer=writer, done=journal.ledger().rows)
        except OSError:
            raise  # of a disk that fails nothing is known, least of all that it was left alone
        except BaseException:
            note_end(journal, target, alone=alone)
            raise
        note_end(journal, target, alone=alone)


def note_begin(journal: Journal, writer: Writer, *, alone: bool) -> None:
    """Write down which file a run is about to write, and whether all earlier ones are over."""
    file = look_at(journal.path)
    assert file.inode is not None
    writer.append(
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


def note_end(journal: Journal, target: Target, *, alone: bool, seen: Sequence[Done] = ()) -> None:
    """Write the pages that chunks share, and down how the file was left.

    For a run whose own lines are written and whose writer has ended: of several runs that end at
    once, the last one then sees that everything is done.

    Parameters
    ----------
    journal : Journal
        Of the file.
    target : Target
        The file.
    alone : bool
        Whether nobody else writes the file now. Without that, shared pages wait until everything
        is done.
    seen : sequence of Done
        Chunks that are in the journal, but may not be visible there yet.
    """
    ledger = Ledger.read([*journal.entries(), Entry("", 0, 0.0, tuple(seen))])
    waiting = ledger.unsettled
    with journal.writer() as writer:
        if waiting and (alone or not missing((0, journal.settings["shape"][0]), ledger.rows)):
            target.settle(ledger.done)
            writer.append(Settled(tuple(done.box for done in waiting)))
        writer.append(Ended(os.stat(journal.path).st_mtime_ns))


def _difference(stored: dict[str, Any], given: dict[str, Any]) -> str | None:
    """Say which setting differs first; None in `given` agrees with everything."""
    for name, new in given.items():
        old = stored.get(name)
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

"""Is this the work that was begun here? Begin it, or carry on, or refuse in a sentence.

    journal  file
    no       no      begin: the journal first, then the file it promises
    yes      no      of two that begin, one makes the file; gone after work was done: refused
    no       yes     somebody else's file: refused
    yes      yes     the same settings, the same file: carry on; else refused

Nothing that is refused is touched. Where somebody changed the file since its last run, the chunks
that are done are read again, and their checksums compared.
"""

from __future__ import annotations

import ast
import errno
import functools
import os
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import JournalError, MMChunksError, StaleFileError, os_error
from mmchunks.files.sources import MAX_HEADER_NBYTES, open_source
from mmchunks.filling import scenarios
from mmchunks.filling.executors import Calls
from mmchunks.writing.journal import Journal
from mmchunks.writing.lines import Ledger, box_text
from mmchunks.writing.ranges import missing
from mmchunks.writing.targets import Target, create_npy, open_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mmchunks.files.layout import Layout
    from mmchunks.writing.journal import Writer
    from mmchunks.writing.lines import Record

__all__ = [
    "begin",
    "begun",
    "carry_on",
    "damaged",
    "dtype_text",
    "note_begin",
    "note_end",
    "require_layout",
    "require_same_file",
    "watched",
]


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


def begin(path: str, settings: dict[str, Any]) -> tuple[Journal, Target]:
    """Begin work on a file that is not there, or carry on with who did at the same moment.

    Parameters
    ----------
    path : str
        The file to make.
    settings : dict
        All of them. What the other one chose for ``"unit_rows"`` holds.

    Returns
    -------
    Journal, Target
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
        return other, carry_on(other, executor=None)
    try:
        return journal, carry_on(journal, executor=None)
    except (OSError, MMChunksError):
        if not os.path.lexists(path):
            journal.remove()
        raise


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
    ledger = Ledger.read(journal.records())
    if not os.path.lexists(path):
        if ledger.began or ledger.done:
            msg = (
                f"{path}: is gone, though its journal says that {len(ledger.done):,} chunks are done; "
                f"bring it back, or remove {journal.folder} to begin anew"
            )
            raise StaleFileError(msg)
        dtype = np.lib.format.descr_to_dtype(ast.literal_eval(settings["dtype"]))
        with suppress(FileExistsError):  # another part was faster, with the same settings
            create_npy(path, settings["shape"], dtype, order=settings["order"])
    target = open_target(path)
    require_layout(path, target.layout, settings)
    require_same_file(path, ledger)
    if ledger.left_alone_since not in {None, _modified_ns(path)}:
        bad = damaged(path, ledger.whole, executor)
        if bad:
            more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
            msg = (
                f"{path}: was changed since its last run: {box_text(bad[0]['done'])}{more} hold "
                f"other bytes than were written; mmchunks verify --forget {path}, or "
                "verify(path, forget=True), has the next run compute them again"
            )
            raise StaleFileError(msg)
    return target


def require_layout(path: str, layout: Layout, settings: Record) -> None:
    """Refuse a file whose header says something else than the settings of its journal.

    Raises
    ------
    StaleFileError
        It names what differs.
    """
    found = {"shape": [*layout.shape], "dtype": dtype_text(layout.dtype), "order": layout.order}
    what = _difference({key: settings[key] for key in found}, found)
    if what:
        msg = f"{path}: is not the file that was begun: {what}; bring that one back"
        raise StaleFileError(msg)


def dtype_text(dtype: np.dtype[Any]) -> str:
    """Write a dtype as the header of a ``.npy`` file does.

    Examples
    --------
    >>> dtype_text(np.dtype([("a", "<f4")]))
    "[('a', '<f4')]"
    """
    return repr(np.lib.format.dtype_to_descr(dtype))


@contextmanager
def watched(journal: Journal, target: Target, *, alone: bool) -> Iterator[Writer]:
    """Write down how a run found the file and how it left it; see to shared pages at its end.

    Parameters
    ----------
    journal : Journal
        Of the file that the run writes.
    target : Target
        The file.
    alone : bool
        Whether nobody else writes the file at the end of the run.

    Yields
    ------
    Writer
        For the records of the run.
    """
    try:
        with journal.writer() as writer:
            note_begin(journal, writer, alone=alone)
            yield writer
    except OSError:
        raise  # of a disk that fails nothing is known, least of all that it was left alone
    except BaseException:
        note_end(journal, target, [], alone=alone)
        raise
    note_end(journal, target, [], alone=alone)


def note_begin(journal: Journal, writer: Writer, *, alone: bool) -> None:
    """Write down which file a run is about to write, and whether all earlier ones are over."""
    writer.append({"began": _identity(journal.path), "alone": alone})


def note_end(journal: Journal, target: Target, seen: list[Record], *, alone: bool) -> None:
    """Write the pages that chunks share, and down how the file was left.

    For a run whose own records are written and whose writer has ended: of several runs that end at
    once, the last one then sees that everything is done.

    Parameters
    ----------
    journal : Journal
        Of the file.
    target : Target
        The file.
    seen : list of dict
        Records of chunks that are in the journal, but may not be visible there yet.
    alone : bool
        Whether nobody else writes the file now. Without that, shared pages wait until everything
        is done.
    """
    ledger = Ledger.read([*journal.records(), *seen])
    waiting = ledger.unsettled
    with journal.writer() as writer:
        if waiting and (alone or not missing((0, journal.settings["shape"][0]), ledger.rows)):
            target.settle(ledger.done)
            writer.append({"settled": [record["done"] for record in waiting]})
        writer.append({"ended": _modified_ns(journal.path)})


def require_same_file(path: str, ledger: Ledger) -> None:
    """Refuse a file that is not the one that earlier runs wrote.

    Raises
    ------
    StaleFileError
        It says which of its identity differs.
    """
    found, host = _identity(path), os.uname().nodename
    for record in ledger.began:
        wanted = record["began"]
        # Another host, or another mount of the same folder, may number the same file otherwise.
        here = record["host"] == host and wanted["device"] == found["device"]
        names = ("nbytes", "inode") if here else ("nbytes",)
        for name in names:
            if wanted[name] != found[name]:
                msg = (
                    f"{path}: is not the file that was begun: {name} was {wanted[name]:,}, now it is "
                    f"{found[name]:,}; bring that one back, or remove it and its journal to begin anew"
                )
                raise StaleFileError(msg)


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


def _identity(path: str) -> Record:
    """Describe the file `path` so that another that takes its name is told from it."""
    found = os.stat(path)
    return {"device": found.st_dev, "inode": found.st_ino, "nbytes": found.st_size}


def _modified_ns(path: str) -> int:
    """Tell when the file `path` was changed last, in ns."""
    return os.stat(path).st_mtime_ns


_BATCH_NBYTES = 1 << 28  # what one call reads: long beside the cost of a call


def damaged(path: str, done: Sequence[Record], executor: Any) -> list[Record]:
    """Find the chunks whose bytes are not those that the journal speaks of.

    Parameters
    ----------
    path : str
        The file.
    done : sequence of dict
        Records of chunks, with their box, checksum and number of bytes.
    executor : None or anything with ``submit``
        Where to read; None reads here.

    Returns
    -------
    list of dict
        The records that are not kept.
    """
    found = Calls(executor, functools.partial(_damaged, path), list(_batches(done)))
    return [record for records in found for record in records]


def _batches(done: Iterable[Record]) -> Iterable[list[Record]]:
    """Group records so that each group is worth a call."""
    batch: list[Record] = []
    for record in sorted(done, key=lambda record: record["done"]):
        batch.append(record)
        if sum(r["nbytes"] for r in batch) >= _BATCH_NBYTES or len(batch) >= 1000:
            yield batch
            batch = []
    if batch:
        yield batch


def _damaged(path: str, records: list[Record]) -> list[Record]:
    """Read chunks again, and give the records of those that differ."""
    # Not `open_target`: whoever may only read the file may verify it.
    source = open_source(path, max_header_size=MAX_HEADER_NBYTES)
    target = Target(replace(source, filling=True), "auto")
    return [
        r
        for r in records
        if target.checksum(target.layout.region(_slices(r)), r["checksum"]) != r["checksum"]
    ]


def _slices(record: Record) -> tuple[slice, ...]:
    """Turn the box of a record into slices."""
    return tuple(slice(start, stop) for start, stop in record["done"])

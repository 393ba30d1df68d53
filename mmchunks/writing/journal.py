r"""Which chunks of a file are done? What was written down beside it, and nothing else.

    out.npy
    out.npy.mmchunks/
        plan.json                      the settings, as the first run gave them
        scenarios.json                 and the scenarios, which may be many
        node7-4711-9f2c...e1.jsonl     what one writer did: entries, only ever appended
        node8-1302-03ab...77.ended.jsonl
        driver.json .held .lock        who drives it now (see locks); making.* and settling.* likewise
        complete                       all was done when the last run ended

An entry is one line of JSON that carries the CRC of its own text, so that one which a crash tore is
known: whatever it says, one line or a thousand, counts or does not count as a whole. It is appended
only after the bytes it speaks of were flushed without error, and is itself flushed before the writer
goes on: what the journal says is on stable storage, is.

One file a writer, because independent processes on several hosts cannot append to one file of a
network file system without losing lines. A writer that has ended renames its file: a host that
looked at it before may for a long time believe that it has not grown, but not under a new name.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
import threading
import time
import uuid
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from mmchunks.errors import JournalError, os_error
from mmchunks.writing.durable import claim, litter, making, refusal, sync_folder, write_new
from mmchunks.writing.journallines import Entry, check_settings, read_line, write_line
from mmchunks.writing.ledger import Ledger
from mmchunks.writing.locks import owned, require_owner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmchunks.writing.journallines import Form, Json, Line, Settings
    from mmchunks.writing.locks import Owner

__all__ = ["Journal", "Writer"]

_PLAN_NBYTES = 1 << 26  # settings are short, but for the chunks of an array of a million blocks
_PATIENCE_SECONDS = 60.0  # to reserve a file, or to write a few thousand pages

_CRC = b'{"crc32":"%08x",'


@dataclass(frozen=True, kw_only=True)
class Journal:
    """The folder beside a file that says what of it is done.

    Examples
    --------
    >>> import tempfile
    >>> from mmchunks.writing.journallines import Failed
    >>> path = tempfile.mkdtemp() + "/out.npy"
    >>> journal = Journal.create(path, {"rows": 10})
    >>> with journal.writer() as writer:
    ...     writer.append(Failed(5, "KeyError: 'x'", ""))
    >>> [entry.lines[0].row for entry in Journal.open(path).entries()]
    [5]
    """

    path: str
    """The file that the journal is about."""

    @property
    def folder(self) -> Path:
        """Where the journal is kept."""
        return Path(f"{self.path}.mmchunks")

    @classmethod
    def create(cls, path: str | os.PathLike[str], settings: Settings) -> Journal:
        """Begin a journal; it appears with its settings inside, or not at all.

        Parameters
        ----------
        path : str or os.PathLike
            The file that it is about.
        settings : dict
            What a later run must agree with, in what JSON can say. ``"scenarios"`` may be long, and
            is kept apart.

        Returns
        -------
        Journal
            An empty one.

        Raises
        ------
        JournalError
            If `path` has a journal already.
        OSError
            If none can be made there.
        """
        journal = cls(path=os.fspath(path))
        for left in litter(journal.folder.parent, journal.folder.name, ""):
            shutil.rmtree(left, ignore_errors=True)
        unborn = Path(f"{journal.folder}.{uuid.uuid4().hex}")
        with making(journal.path):
            unborn.mkdir()
        alive = _claimed(unborn)
        try:
            rest = dict(settings)
            if "scenarios" in rest:
                write_new(unborn / "scenarios.json", json.dumps(rest.pop("scenarios")).encode())
            write_new(unborn / "plan.json", json.dumps(rest, indent=1).encode())
            sync_folder(unborn)
            # Renaming a folder onto one that holds something fails: of two creators one wins.
            unborn.rename(journal.folder)
        except OSError:
            shutil.rmtree(unborn, ignore_errors=True)
            if not journal.folder.exists():
                raise
            msg = f"{path}: has a journal of earlier work; carry on with it, or remove {journal.folder}"
            raise JournalError(msg) from None
        finally:
            os.close(alive)
        sync_folder(journal.folder.parent)
        return journal

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Journal:
        """Open the journal of the file `path`.

        Raises
        ------
        FileNotFoundError
            If it has none.
        JournalError
            If its settings are not to be read.
        """
        journal = cls(path=os.fspath(path))
        journal.settings  # noqa: B018  (reads it, so that a damaged journal is refused here)
        return journal

    @cached_property
    def settings(self) -> Settings:
        """What `create` was given, but for the scenarios."""
        settings: Settings = self._json("plan.json", _PLAN_NBYTES)
        try:
            check_settings(settings)
        except (ValueError, KeyError, TypeError) as error:
            msg = f"{self.folder / 'plan.json'}: does not say what was begun ({error})"
            raise JournalError(msg) from error
        return settings

    @cached_property
    def scenarios(self) -> Form:
        """The scenarios that `create` was given."""
        scenarios: Form = self._json("scenarios.json", None)
        return scenarios

    def _json(self, name: str, most_nbytes: int | None) -> Json:
        file = self.folder / name
        try:
            return json.loads(_read(file, most_nbytes))
        except (FileNotFoundError, NotADirectoryError):
            there = self.folder.exists() or os.path.lexists(self.path)
            msg = f"{self.path}: " + (
                f"has no journal; {file} is missing"
                if there
                else "no such file, and no journal of it"
            )
            raise os_error(errno.ENOENT, msg) from None
        except (ValueError, RecursionError) as error:
            msg = f"{file}: is not the JSON that was written there ({error})"
            raise JournalError(msg) from error

    @property
    def complete(self) -> bool:
        """Whether all was done when the last run ended: a hint, which spares readers the rest."""
        return (self.folder / "complete").exists()

    @property
    def changed_ns(self) -> int:
        """When anybody wrote something down last, by the clock of the file system, in ns."""
        times = [0]
        for file in self.folder.glob("*.jsonl"):
            with suppress(FileNotFoundError):
                times.append(file.stat().st_mtime_ns)
        return max(times)

    def note_complete(self, complete: bool) -> None:
        """Leave that hint, or take it away, before something is not done any more."""
        with suppress(OSError):
            if complete:
                (self.folder / "complete").touch()
            else:
                (self.folder / "complete").unlink(missing_ok=True)

    def entries(self, *, durable: bool = False, most_nbytes: int | None = None) -> list[Entry]:
        """Read what all writers have written down, each writer's entries in their order.

        The last entry of a writer may be torn by a crash: it was never durable, so what it speaks
        of is not done, and it is left out.

        Parameters
        ----------
        durable : bool
            For whoever acts on what is done: believe only what is on stable storage, and nothing
            that an earlier run left in memory when it was killed between a write and its flush.
        most_nbytes : int, optional
            Refuse a journal that is longer.

        Returns
        -------
        list of Entry
            As they were appended.

        Raises
        ------
        JournalError
            If an entry that others follow is damaged, or one says what no entry says: it names the
            file and the line. If the journal is too long, or was removed.
        """
        while True:
            files = sorted(self.folder.glob("*.jsonl"))
            if durable:
                self._sync_names()
            # A writer that ends just now takes the name from its file between listing and reading.
            with suppress(FileNotFoundError):
                texts = []
                for file in files:
                    texts.append(_read(file, most_nbytes, durable=durable))
                    if most_nbytes is not None:
                        most_nbytes -= len(texts[-1])
                return [
                    entry
                    for file, text in zip(files, texts, strict=True)
                    for entry in _entries(file, text)
                ]
            self._require_folder()

    def ledger(self, *, durable: bool = False) -> Ledger:
        """Add up what all writers have written down; see `entries`."""
        return Ledger.read(self.entries(durable=durable))

    @contextmanager
    def writer(self, *, owner: str | None = None) -> Iterator[Writer]:
        """Open a file of one's own to append entries to, while the block runs.

        Parameters
        ----------
        owner : str, optional
            Token of the driver on whose behalf it writes: nothing is written when another one has
            taken over.
        """
        host, pid = os.uname().nodename, os.getpid()
        name = self.folder / f"{host}-{pid}-{uuid.uuid4().hex}.jsonl"
        try:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o666)
        except FileNotFoundError:
            self._require_folder()
            raise
        except OSError as error:
            raise refusal(self.folder, "nothing can be written down", error) from error
        try:
            sync_folder(self.folder)
            yield Writer(name, fd, host=host, pid=pid, owner=owner)
        finally:
            os.close(fd)
            with suppress(OSError):  # what was appended is safe under either name
                name.rename(name.with_suffix(".ended.jsonl"))

    def _require_folder(self) -> None:
        if not self.folder.exists():
            msg = (
                f"{self.path}: its journal {self.folder} was removed while it was in use; what is done "
                "is in the file, but nobody knows what that is"
            )
            raise JournalError(msg)

    def _sync_names(self) -> None:
        """Make the names durable that others made: theirs may have been killed before they did."""
        try:
            sync_folder(self.folder)
            sync_folder(self.folder.parent)
        except FileNotFoundError:
            self._require_folder()
            raise

    @contextmanager
    def turn(self, name: str, *, force: bool = False) -> Iterator[None]:
        """Do something to the file that only one process may do at a time; others wait for it.

        Parameters
        ----------
        name : {"making", "settling"}
            What is done: making the file, or writing the pages that chunks share.
        force : bool
            Take it from a process whose end cannot be seen.

        Raises
        ------
        JournalError
            If another process has it for longer than that ever takes, and its end cannot be seen.
        FileNotFoundError
            If the journal is removed meanwhile.
        """
        with owned(self.folder, force=force, name=name, patience=_PATIENCE_SECONDS):
            yield

    @contextmanager
    def lock(self, *, force: bool) -> Iterator[Owner]:
        """Be the only driver of the file while the block runs.

        Parameters
        ----------
        force : bool
            Take it from an owner whose end cannot be seen, because it is on another host.

        Yields
        ------
        Owner
            This process.

        Raises
        ------
        JournalError
            If another driver is at work: it names host, pid and time.
        """
        with owned(self.folder, force=force) as owner:
            yield owner

    def remove(self) -> None:
        """Forget everything: the file has no journal from now on."""
        # The name goes first: a journal that lacks some of its lines must not be found.
        alive = _claimed(self.folder)
        try:
            dying = self.folder.rename(f"{self.folder}.{uuid.uuid4().hex}")
            sync_folder(dying.parent)
            shutil.rmtree(dying)
        finally:
            os.close(alive)


class Writer:
    """Appends entries to a file of its own; made by `Journal.writer`, safe to share by threads."""

    def __init__(
        self, path: Path, fd: int, *, host: str, pid: int, owner: str | None = None
    ) -> None:
        self._path = path
        self._fd = fd
        self._host = host
        self._pid = pid
        self._owner = owner
        self._nbytes = 0
        self._turn = threading.Lock()
        self._failed = False

    def append(self, *lines: Line, host: str | None = None, pid: int | None = None) -> None:
        """Write down what was done; durable, all of it, when this returns.

        Parameters
        ----------
        *lines : Line
            What one entry is to say; without any, nothing is written.
        host, pid : str, int, optional
            Who did it, if not this process.

        Raises
        ------
        OSError
            If it could not be made durable: then it is not done. This writer is of no use any
            more, because what follows a torn entry could not be read.
        """
        if not lines:
            return
        text = _text(Entry(host or self._host, pid or self._pid, time.time(), lines))
        with self._turn:
            if self._failed:
                msg = f"{self._path}: an earlier entry was lost; open another writer"
                raise OSError(msg)
            if self._owner is not None:
                require_owner(self._path.parent, self._owner)
            try:
                # One call, so that nothing of another thread comes between; once, because the
                # kernel reports a lost write to the first flush only.
                written = os.write(self._fd, text)
                if written == len(text):
                    os.fdatasync(self._fd)
            except OSError as error:  # not Ctrl-C, which comes before a write or after it
                self._give_up()
                what = "an entry is lost"
                raise refusal(self._path, what, error, nbytes=len(text)) from error
            if written < len(text):
                self._give_up()
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                what = f"an entry is lost, {written:,} of {len(text):,} bytes were written"
                raise refusal(self._path, what, full, nbytes=len(text))
            self._nbytes += written

    def _give_up(self) -> None:
        """Take an entry back that is not durable: it would be read from memory, and believed."""
        self._failed = True
        with suppress(OSError):
            os.ftruncate(self._fd, self._nbytes)


def _text(entry: Entry) -> bytes:
    """Write one entry as a line of text that carries the CRC of the rest of itself."""
    form = {
        "host": entry.host,
        "pid": entry.pid,
        "time": entry.time,
        "lines": [write_line(line) for line in entry.lines],
    }
    text = json.dumps(form, separators=(",", ":")).encode()[1:]
    return _CRC % zlib.crc32(text) + text + b"\n"


def _entries(file: Path, text: bytes) -> Iterator[Entry]:
    """Read the entries of one writer."""
    lines = text.removesuffix(b"\n").split(b"\n")
    head = len(_CRC % 0)
    for number, line in enumerate(lines, start=1):
        if line[:head] == _CRC % zlib.crc32(line[head:]):
            try:
                yield _entry(json.loads(b"{" + line[head:]))
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
                msg = f"{file}: line {number} of {len(lines)} is no entry of a journal: {error}"
                raise JournalError(msg) from error
        elif number < len(lines):
            msg = f"{file}: line {number} of {len(lines)} is damaged; its chunk may or may not be done"
            raise JournalError(msg)


def _entry(form: Form) -> Entry:
    """Read one entry; what it says in forms of a later version is left out."""
    host, pid, when = form["host"], form["pid"], form["time"]
    if not (isinstance(host, str) and type(pid) is int and type(when) in {int, float}):
        msg = "it does not say by whom and when"
        raise ValueError(msg)
    lines = tuple(line for line in map(read_line, form["lines"]) if line is not None)
    return Entry(host, pid, when, lines)


def _read(file: Path, most_nbytes: int | None, *, durable: bool = False) -> bytes:
    """Read a file of a journal; others may have put anything under its name."""
    # A pipe would block, some devices do things when they are opened.
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(fd, "rb") as opened:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            msg = f"{file}: is no regular file, so it is not of this journal; remove it"
            raise JournalError(msg)
        if most_nbytes is not None and found.st_size > most_nbytes:
            msg = f"{file}: {found.st_size:,} bytes are more than a look at a file should take"
            raise JournalError(msg)
        if durable:
            # What a failed flush left in memory looks as good as any other page. So memory is
            # written out and forgotten first, and what is then read comes from the disk.
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        text = opened.read()
        if durable:
            os.fdatasync(fd)  # of what others appended since
    return text


def _claimed(folder: Path) -> int:
    """Hold a folder that has no lasting name, until the descriptor is closed."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    claim(fd)
    return fd

"""Which process drives this folder now, or is nobody there any more.

The owner is written down (``driver.json``: host, pid, since when), because a lock of the kernel
would say only that somebody has it, and on a network file system perhaps not even that. A process
is known by its pid *and* the moment it started, so that a pid that was given to another process
since is not mistaken for the owner.

Two processes may find the same dead owner at once. Both must first hold ``flock`` on
``driver.lock`` while they look, remove and write, so the second sees the first as the owner. Where
the file system has no ``flock`` between hosts, ``O_EXCL`` still lets only one of them create
``driver.json``.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mmchunks.errors import JournalError
from mmchunks.writing.durable import write_new

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Owner", "owned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process, so described that no other can be taken for it."""

    host: str
    """Name of its machine."""

    boot: str
    """Which start of that machine."""

    namespace: str
    """Which numbering of processes: a container has its own."""

    pid: int
    """Its number in there."""

    started: str
    """When it started, in ticks since the machine did."""

    since: str
    """When it became the owner, as local time with its offset."""

    token: str
    """Tells two ownerships of one process apart."""

    @classmethod
    def here(cls) -> Owner:
        """Describe this process, as an owner from now on."""
        return cls(
            host=os.uname().nodename,
            boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            namespace=str(Path("/proc/self/ns/pid").readlink()),
            pid=os.getpid(),
            started=_started(os.getpid()),
            since=time.strftime("%Y-%m-%d %H:%M:%S%z"),
            token=uuid.uuid4().hex,
        )

    def gone(self, observer: Owner) -> bool:
        """Whether this owner has ended for certain, as far as `observer` can see from its place."""
        if self.host != observer.host:
            return False
        if self.boot != observer.boot:
            return True
        return self.namespace == observer.namespace and _started(self.pid) != self.started


@contextmanager
def owned(folder: Path, *, force: bool) -> Iterator[Owner]:
    """Be the only driver of `folder` while the block runs.

    Parameters
    ----------
    folder : Path
        Where ``driver.json`` and ``driver.lock`` are kept; must exist.
    force : bool
        Take it from whoever has it. For an owner on another host, whose end cannot be seen here.

    Yields
    ------
    Owner
        This process.

    Raises
    ------
    JournalError
        If another driver has it that is alive, or that is on another host.
    """
    me = Owner.here()
    card = folder / "driver.json"
    with _alone(folder):
        other = _read(card)
        if other is not None and not force and not other.gone(me):
            raise JournalError(_refusal(folder, other))
        card.unlink(missing_ok=True)
        try:
            write_new(card, json.dumps(asdict(me)).encode())
        except FileExistsError:
            msg = f"{folder}: another driver took it this very moment; wait for it to end"
            raise JournalError(msg) from None
    try:
        yield me
    finally:
        _release(folder, me)


def _release(folder: Path, me: Owner) -> None:
    """Give `folder` up, unless it was taken by force, or is gone, in the meantime."""
    if not folder.exists():
        return
    with _alone(folder):
        if _read(folder / "driver.json") == me:
            (folder / "driver.json").unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold ``flock`` for a moment. Where there is none, O_EXCL has to do."""
    with (folder / "driver.lock").open("a") as file:
        with suppress(OSError):  # ENOLCK, ENOSYS, EOPNOTSUPP: a network file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read(card: Path) -> Owner | None:
    """Read who owns; nobody if the writer died before it had said its name."""
    try:
        return Owner(**json.loads(card.read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def _started(pid: int) -> str:
    """Read when process `pid` started; a process that has ended, or is unknown here, did "never"."""
    try:
        # The second field is the program's name in brackets, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "never"
    return "never" if fields[0] in "ZX" else fields[19]  # Z: killed, and not yet waited for


def _refusal(folder: Path, other: Owner) -> str:
    return (
        f"{folder}: another driver is at work on host {other.host}, pid {other.pid}, since "
        f"{other.since}; wait for it to end, or pass force=True (--force) if it is certainly gone"
    )

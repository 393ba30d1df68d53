"""Which process drives this folder now, or is nobody there any more.

    driver.json    who owns it: host, pid, since when; for people, and for those who cannot see the lock
    driver.held    locked by the owner's kernel for as long as the owner lives
    driver.lock    held for a moment by whoever looks, removes and writes the two

The lock dies with its owner, however that ends. On a file system of this host alone it tells the whole
truth, whatever container, numbering of processes or host name the owner has. On a network file system it
may hold between hosts or not, so there the card decides, too: a process is known by its pid *and* the
moment it started, so that a pid that was given to another process since is not mistaken for the owner;
and of an owner on another machine only a person can say that it has ended (``force=True``).

Where the file system has no locks at all, ``O_EXCL`` still lets only one process create the card.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import struct
import time
import uuid
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mmchunks.errors import JournalError
from mmchunks.files.mounts import mount_of
from mmchunks.writing.durable import write_new

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Owner", "owned", "require_owner"]

_GRACE_SECONDS = 0.3  # how long a lock may outlive its owner
_POLL_SECONDS = 0.05  # between two looks at an owner who will soon be gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One process, so described that no other can be taken for it."""

    host: str
    """Name of its machine."""

    machine: str
    """Number of that machine, which outlives its name and its starts; empty if it has none."""

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
            machine=_machine(),
            boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            namespace=str(Path("/proc/self/ns/pid").readlink()),
            pid=os.getpid(),
            started=_started(os.getpid()),
            since=time.strftime("%Y-%m-%d %H:%M:%S%z"),
            token=uuid.uuid4().hex,
        )

    def gone(self, observer: Owner) -> bool:
        """Whether this owner has ended for certain, as far as `observer` can see from its place."""
        if (self.host, self.machine) != (observer.host, observer.machine):
            return False
        if self.boot != observer.boot:
            # Started anew since; but machines of one name that have no number may be two.
            return bool(self.machine)
        return self.namespace == observer.namespace and _started(self.pid) != self.started


@contextmanager
def owned(
    folder: Path, *, force: bool, name: str = "driver", patience: float = 0.0
) -> Iterator[Owner]:
    """Be the only one who drives `folder` while the block runs, or takes a turn in it.

    Parameters
    ----------
    folder : Path
        Where the card and the locks are kept; must exist.
    force : bool
        Take it from whoever has it. For an owner on another host, whose end cannot be seen here.
    name : str
        What is owned: one of several rights to the folder.
    patience : float
        How many seconds to wait for an owner to end.

    Yields
    ------
    Owner
        This process.

    Raises
    ------
    JournalError
        If another process has it that is alive, or that is on another host.
    FileNotFoundError
        If there is no such folder, or it is removed meanwhile.
    """
    began = time.monotonic()
    while True:
        try:
            me, held = _take(folder, name, force=force)
            break
        except JournalError:
            other = _read(folder / f"{name}.json")
            # A child that is just being forked has the lock of its parent for a moment.
            lingers = other is None or other.gone(Owner.here())
            if time.monotonic() - began >= max(patience, _GRACE_SECONDS if lingers else 0):
                raise
        time.sleep(_POLL_SECONDS)
    try:
        yield me
    finally:
        with suppress(FileNotFoundError):
            _release(folder, name, me)
        _let_go(held)


def require_owner(folder: Path, token: str, name: str = "driver") -> None:
    """Refuse to go on when another driver has taken the folder by force, or it is gone.

    Raises
    ------
    JournalError
        If `token` is not that of the owner any more.
    """
    other = _read(folder / f"{name}.json")
    if other is not None and other.token == token:
        return
    if not folder.exists():
        msg = (
            f"{folder}: was removed while it was in use; what was not done stays undone, run again"
        )
    elif other is None:
        msg = f"{folder}: this driver's card was removed; run again to go on with what is missing"
    else:
        msg = (
            f"{folder}: another driver has taken over by force, on host {other.host}, pid {other.pid}, "
            f"since {other.since}; this one has stopped"
        )
    raise JournalError(msg)


def _take(folder: Path, name: str, *, force: bool) -> tuple[Owner, int | None]:
    """Become the owner; give the descriptor that holds the lock, if the kernel gave one."""
    me = Owner.here()
    card = folder / f"{name}.json"
    with _alone(folder, name):
        held = _hold(folder / f"{name}.held")
        try:
            other = _read(card)
            if not force:
                _require_free(folder, other, me, held)
            _remove(card, other)
            _put(card, me)
        except BaseException:
            _let_go(held)
            raise
    return me, held


def _require_free(folder: Path, other: Owner | None, me: Owner, held: int | None) -> None:
    """Refuse to take the folder from an owner that may be alive."""
    if held is None:  # its kernel says that it is
        raise JournalError(_refusal(folder, other))
    if other is None or mount_of(folder).local or other.gone(me):
        return
    raise JournalError(_refusal(folder, other))


def _remove(card: Path, other: Owner | None) -> None:
    """Take away the card of an owner that is gone, and no other one's."""
    # Whoever looks on another host, where our lock does not reach, may have done so, and be the owner
    # by now. So the card is moved first, and looked at where nobody else finds it.
    moved = card.with_name(f".{card.name}.{uuid.uuid4().hex}")
    try:
        card.rename(moved)
    except FileNotFoundError:
        return
    try:
        if _read(moved) != other:
            with suppress(OSError):
                os.link(moved, card)
            raise JournalError(_just_taken(card))
    finally:
        moved.unlink(missing_ok=True)


def _put(card: Path, me: Owner) -> None:
    """Put down the card of a new owner: all of it at once, and only if there is none."""
    text = json.dumps(asdict(me)).encode()
    whole = card.with_name(f".{card.name}.{me.token}")
    write_new(whole, text)
    try:
        try:
            os.link(whole, card)
        except FileExistsError:
            raise
        except OSError:  # no hard links here: for a moment it is there and empty
            write_new(card, text)
    except FileExistsError:
        raise JournalError(_just_taken(card)) from None
    finally:
        whole.unlink(missing_ok=True)


def _just_taken(card: Path) -> str:
    return f"{card.parent}: another process took it this very moment; wait for it to end"


def _release(folder: Path, name: str, me: Owner) -> None:
    """Give `folder` up, unless it was taken by force in the meantime."""
    with _alone(folder, name):
        if _read(folder / f"{name}.json") == me:
            (folder / f"{name}.json").unlink()


@contextmanager
def _alone(folder: Path, name: str) -> Iterator[None]:
    """Hold a lock for a moment. Where there is none, O_EXCL has to do."""
    with (folder / f"{name}.lock").open("a") as file:
        with suppress(OSError):  # ENOLCK, ENOSYS, EOPNOTSUPP: a network file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


_held: set[int] = set()  # descriptors of locks; a forked child lets go of them


def _hold(path: Path) -> int | None:
    """Lock a file until the descriptor is closed, or this process ends; None if somebody has it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    # Of the open file, not of the process: another one in here is refused, too, and a descriptor of
    # the same file that somebody closes does not take the lock along.
    whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, whole)
    except OSError as error:
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            os.close(fd)
            return None
        # ENOLCK, ENOSYS, EINVAL: there are no locks here, and the card has to do
    _held.add(fd)
    return fd


def _let_go(held: int | None) -> None:
    if held is not None and held in _held:
        _held.discard(held)
        os.close(held)


def _let_go_in_child() -> None:
    # A worker that outlives its driver would keep the lock, and nobody could go on.
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_let_go_in_child)


def _read(card: Path) -> Owner | None:
    """Read who owns; nobody if the writer died before it had said its name."""
    try:
        said = json.loads(card.read_bytes())
        owner = Owner(**said)
    except (FileNotFoundError, ValueError, TypeError, RecursionError):
        return None
    types = {name: int if name == "pid" else str for name in said}
    return owner if all(type(said[name]) is types[name] for name in said) else None


def _machine() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Read when process `pid` started; a process that has ended, or is unknown here, did "never"."""
    try:
        # The second field is the program's name in brackets, which may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "never"
    return "never" if fields[0] in "ZX" else fields[19]  # Z: killed, and not yet waited for


def _refusal(folder: Path, other: Owner | None) -> str:
    who = "" if other is None else f" on host {other.host}, pid {other.pid}, since {other.since}"
    return (
        f"{folder}: another driver is at work{who}; wait for it to end, or pass force=True (--force) if "
        "it is certainly gone"
    )

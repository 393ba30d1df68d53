"""When may a buffer between a file and a device be used again? A ring of slots, guarded by events.

    slot 0    |read 0|copy 0|......|read 2|copy 2|
    slot 1           |read 1|copy 1|......|read 3|copy 3|        time -->
                                   ^ waits here, until the event of copy 0 has come

Copies are asynchronous: a slot whose copy has been *asked for* is not free before the copy's event
*came*. Whoever takes a slot waits for that event, so that reading overlaps copying already with a
single thread, and any number of threads may share a ring. A piece knows its place in the dense
byte stream, therefore pieces may arrive in any order.
"""

from __future__ import annotations

import queue
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from mmchunks.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from concurrent.futures import Executor, Future

__all__ = ["RING", "Event", "Piece", "Ring", "RingSpec", "Slot", "drain", "feed", "pieces"]


class Event(Protocol):
    """A moment on a device's stream."""

    def synchronize(self) -> None:
        """Wait until all work before the moment is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some bytes ``start <= byte < stop`` of a dense byte stream."""

    start: int
    """First byte."""

    stop: int
    """The byte after the last one."""

    @property
    def nbytes(self) -> int:
        """Length in bytes."""
        return self.stop - self.start


def pieces(start: int, stop: int, nbytes: int) -> Iterator[Piece]:
    """Cut the bytes ``start <= byte < stop`` into pieces of at most `nbytes` bytes.

    Examples
    --------
    >>> [(piece.start, piece.stop) for piece in pieces(2, 10, 4)]
    [(2, 6), (6, 10)]
    """
    for first in range(start, stop, nbytes):
        yield Piece(start=first, stop=min(first + nbytes, stop))


@dataclass(slots=True, eq=False)
class Slot:
    """A buffer that is either free, or in use by one thread or one copy."""

    memory: memoryview
    """The bytes of the slot."""

    busy: Event | None = None
    """Comes when the last copy from or to the slot is done."""

    def settle(self) -> None:
        """Wait until no copy uses the slot."""
        if self.busy is not None:
            self.busy.synchronize()
            self.busy = None


class Ring:
    """Slots of equal size, handed out in the order in which they came back.

    Parameters
    ----------
    memories : sequence of memoryview
        Writable buffers, two at least: one is read into while the other is copied from.

    Notes
    -----
    Safe to share among threads: `taken` blocks until a slot is there.
    """

    def __init__(self, memories: Sequence[memoryview]) -> None:
        if len(memories) < 2:
            msg = f"a ring has at least 2 slots, or nothing overlaps; got {len(memories)}"
            raise DeviceError(msg)
        self.slot_nbytes = min(memory.nbytes for memory in memories)
        self.slots = len(memories)
        # First in, first out: the longer a slot has been back, the likelier its copy is done.
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for memory in memories:
            self._free.put(Slot(memory))

    @property
    def nbytes(self) -> int:
        """Bytes of all slots."""
        return self.slots * self.slot_nbytes

    def take(self, *, wait: bool = True) -> Slot | None:
        """Take the slot that has been free the longest; None if there is none and `wait` is off."""
        try:
            slot = self._free.get(block=wait)
        except queue.Empty:
            return None
        try:
            slot.settle()
        except BaseException:
            # A slot that is lost would let the next ones wait for ever. Its event is kept, so that
            # whoever takes it is told of the error, too.
            self._free.put(slot)
            raise
        return slot

    def give(self, slot: Slot) -> None:
        """Give a slot back; its last copy may still be under way."""
        self._free.put(slot)

    @contextmanager
    def taken(self) -> Iterator[Slot]:
        """Take a slot for the length of a ``with`` block."""
        slot = self.take()
        assert slot is not None
        try:
            yield slot
        finally:
            self.give(slot)


def feed(
    ring: Ring,
    todo: Iterable[Piece],
    fill: Callable[[int, memoryview], None],
    copy: Callable[[memoryview, Piece], Event],
    executor: Executor | None,
) -> None:
    """Carry pieces from a file to a device.

    Parameters
    ----------
    ring : Ring
        Slots on the way.
    todo : iterable of Piece
        None longer than a slot.
    fill : callable
        ``fill(start, memory)`` reads the bytes of the stream from `start` on until `memory` is
        full. Called by several threads at once if there is an executor.
    copy : callable
        ``copy(memory, piece)`` *asks* for a copy to the device; the event comes when it is done.
    executor : Executor or None
        Runs the pieces; without one they run right here, where reading overlaps copying too.

    Notes
    -----
    On return every copy was asked for, and none need be done. After an error no piece is being
    read any more, and every copy that was asked for still has its event in its slot.
    """

    def carry(piece: Piece) -> None:
        with ring.taken() as slot:
            memory = slot.memory[: piece.nbytes]
            fill(piece.start, memory)
            slot.busy = copy(memory, piece)

    if executor is None:
        for piece in todo:
            carry(piece)
        return
    futures: list[Future[None]] = [executor.submit(carry, piece) for piece in todo]
    try:
        for future in futures:
            future.result()
    finally:  # nobody may write to a slot's piece after an error was reported
        for future in futures:
            if not future.cancel():
                future.exception()  # waits, and raises nothing: the first error is on its way


def drain(
    ring: Ring,
    todo: Iterable[Piece],
    copy: Callable[[memoryview, Piece], Event],
    write: Callable[[int, memoryview], None],
) -> None:
    """Carry pieces from a device to a file: the same ring the other way round.

    Parameters
    ----------
    ring : Ring
        Slots on the way.
    todo : iterable of Piece
        None longer than a slot.
    copy : callable
        ``copy(memory, piece)`` *asks* for a copy from the device; the event comes when it is done.
    write : callable
        ``write(start, memory)`` stores the bytes of the stream from `start` on; called in order.
    """
    coming: deque[tuple[Slot, Piece]] = deque()

    def store() -> None:
        slot, piece = coming.popleft()
        try:
            slot.settle()
            write(piece.start, slot.memory[: piece.nbytes])
        finally:
            ring.give(slot)

    try:
        for piece in todo:
            # Who holds a slot never waits for another one: two such threads would wait forever.
            while (slot := ring.take(wait=not coming)) is None:
                store()
            # Before the copy is asked for: should that fail, the slot is given back below.
            coming.append((slot, piece))
            slot.busy = copy(slot.memory[: piece.nbytes], piece)
        while coming:
            store()
    finally:  # after an error copies may be under way: whoever takes a slot waits for its own
        for slot, _ in coming:
            ring.give(slot)


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSpec:
    """The slots that a process keeps for one device."""

    slots: int
    """How many there are; two at least."""

    slot_nbytes: int
    """Bytes of each."""


# Reads of 4 to 64 MiB run at the speed of a disk (see `files.preading`).
RING = RingSpec(slots=4, slot_nbytes=2**23)

"""A slot is never reused early: judged by a device that copies as late as it may."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import DeviceError
from mmchunks.gpu.ring import Ring, drain, feed, pieces


class LateDevice:
    """A device that copies only when somebody waits for it, or when `catch_up` is called.

    Until then it keeps an eye on the slot: whoever writes to it, or looks at it, has poisoned it.
    """

    def __init__(self, nbytes: int) -> None:
        self.memory = bytearray(nbytes)
        self.order = threading.RLock()
        self.pending = []
        self.flying = set()
        self.overlaps = []

    def touch(self, memory):
        with self.order:
            assert id(memory.obj) not in self.flying, "a slot was used before its copy was done"
            self.overlaps.append(len(self.flying))

    def upload(self, memory, piece):
        return self._later(memory, lambda: self._put(memory, piece))

    def download(self, memory, piece):
        return self._later(memory, lambda: self._get(memory, piece))

    def _put(self, memory, piece):
        self.memory[piece.start : piece.stop] = memory

    def _get(self, memory, piece):
        memory[:] = self.memory[piece.start : piece.stop]

    def _later(self, memory, copy):
        with self.order:
            self.flying.add(id(memory.obj))
            self.pending.append((memory, copy))
            return LateEvent(self, len(self.pending))

    def catch_up(self, count=None):
        with self.order:
            for at, (memory, copy) in enumerate(self.pending[:count]):
                if copy is not None:
                    copy()
                    self.flying.discard(id(memory.obj))
                    self.pending[at] = (memory, None)


class LateEvent:
    def __init__(self, device, count):
        self.device, self.count = device, count

    def synchronize(self):
        self.device.catch_up(self.count)


def ring_of(slots, nbytes):
    return Ring([memoryview(bytearray(b"\xee" * nbytes)) for _ in range(slots)])


@pytest.fixture(params=["serial", "threads"])
def executor(request):
    if request.param == "serial":
        yield None
        return
    with ThreadPoolExecutor(3) as pool:
        yield pool


@given(start=st.integers(0, 50), nbytes=st.integers(0, 200), piece=st.integers(1, 60))
def test_pieces_hold_every_byte_once_and_none_is_longer_than_asked(start, nbytes, piece):
    cut = list(pieces(start, start + nbytes, piece))
    assert [b for p in cut for b in range(p.start, p.stop)] == list(range(start, start + nbytes))
    assert all(0 < p.nbytes <= piece for p in cut)


@given(
    data=st.binary(max_size=300), slots=st.integers(2, 5), nbytes=st.integers(1, 40), many=st.booleans()
)  # fmt: skip
def test_no_slot_is_filled_before_its_copy_is_done(data, slots, nbytes, many):
    device = LateDevice(len(data))

    def fill(start, memory):
        device.touch(memory)
        memory[:] = data[start : start + len(memory)]

    ring = ring_of(slots, nbytes)
    with ThreadPoolExecutor(3) as pool:
        feed(ring, pieces(0, len(data), nbytes), fill, device.upload, pool if many else None)
    device.catch_up()
    assert bytes(device.memory) == data


@given(data=st.binary(max_size=300), slots=st.integers(2, 5), nbytes=st.integers(1, 40))
def test_no_slot_is_written_out_before_its_copy_is_done(data, slots, nbytes):
    device = LateDevice(len(data))
    device.memory[:] = data
    written = []

    def write(start, memory):
        device.touch(memory)
        assert start == sum(map(len, written))
        written.append(bytes(memory))

    drain(ring_of(slots, nbytes), pieces(0, len(data), nbytes), device.download, write)
    assert b"".join(written) == data


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_one_thread_reads_while_all_other_slots_are_being_copied(slots):
    device = LateDevice(100)
    feed(
        ring_of(slots, 10),
        pieces(0, 100, 10),
        lambda _, memory: device.touch(memory),
        device.upload,
        None,
    )
    assert device.overlaps == [min(done, slots - 1) for done in range(10)]


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_writing_out_overlaps_the_copies_of_the_pieces_to_come(slots):
    device = LateDevice(100)
    drain(
        ring_of(slots, 10),
        pieces(0, 100, 10),
        device.download,
        lambda _, memory: device.touch(memory),
    )
    assert device.overlaps == [min(left, slots - 1) for left in reversed(range(10))]


def test_several_threads_read_at_the_same_time():
    together = threading.Barrier(3, timeout=30)
    device = LateDevice(30)
    with ThreadPoolExecutor(3) as pool:
        feed(
            ring_of(3, 10),
            pieces(0, 30, 10),
            lambda *_: together.wait(),
            device.upload,
            pool,
        )


def test_threads_that_share_a_ring_wait_for_each_other_and_never_for_ever():
    ring = ring_of(2, 8)
    expected = [bytes([i]) * 400 for i in range(4)]

    def both_ways(data):
        device = LateDevice(len(data))

        def fill(start, memory):
            device.touch(memory)
            memory[:] = data[start : start + len(memory)]

        feed(ring, pieces(0, 400, 8), fill, device.upload, None)
        out = bytearray(400)

        def write(start, memory):
            time.sleep(1e-5)
            out[start : start + len(memory)] = memory

        drain(ring, pieces(0, 400, 8), device.download, write)
        return bytes(out)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(both_ways, expected)) == expected


def test_an_error_while_reading_leaves_nothing_running_and_gives_every_slot_back(executor):
    device = LateDevice(100)
    ring = ring_of(2, 10)

    def fill(start, memory):
        device.touch(memory)
        if start == 30:
            msg = "the disk is gone"
            raise OSError(msg)

    with pytest.raises(OSError, match="the disk is gone"):
        feed(ring, pieces(0, 100, 10), fill, device.upload, executor)
    seen = len(device.overlaps)
    assert {ring.take() is None for _ in range(2)} == {False}
    assert ring.take(wait=False) is None
    assert not device.flying  # taking them waited for the copies
    assert len(device.overlaps) == seen


def test_an_error_while_writing_gives_every_slot_back():
    device = LateDevice(100)
    ring = ring_of(3, 10)

    def write(start, memory):
        msg = "the disk is full"
        raise OSError(msg)

    with pytest.raises(OSError, match="the disk is full"):
        drain(ring, pieces(0, 100, 10), device.download, write)
    assert {ring.take() is None for _ in range(3)} == {False}
    assert not device.flying


def test_an_event_that_reports_an_error_does_not_lose_the_slot():
    class Broken:
        def synchronize(self):
            msg = "an illegal memory access was encountered"
            raise RuntimeError(msg)

    ring = ring_of(2, 10)
    with pytest.raises(RuntimeError, match="illegal"):
        feed(ring, pieces(0, 100, 10), lambda *_: None, lambda *_: Broken(), None)
    with pytest.raises(RuntimeError, match="illegal"):
        ring.take()


def test_one_slot_is_no_ring():
    with pytest.raises(DeviceError, match="at least 2 slots"):
        ring_of(1, 10)

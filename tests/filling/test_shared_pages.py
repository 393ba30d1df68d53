"""On a network mount a page has one writer at any instant, and a row is done when a reader has it."""

import multiprocessing
import os
import threading
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

import mmchunks as mm
from mmchunks.errors import SweepError
from mmchunks.files import mounts
from mmchunks.filling import resuming
from mmchunks.filling.resuming import settle
from mmchunks.writing.journal import Journal

pytestmark = pytest.mark.filterwarnings("ignore:.*are done .*mmchunks.status tells which")

FORK = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def network(monkeypatch):
    """Let every mount be one that other hosts may have, too."""
    monkeypatch.setattr(mounts, "_LOCAL_KINDS", frozenset())


@pytest.fixture
def out(tmp_path):
    return str(tmp_path / "out.npy")


def bytes_of(x, nbytes):
    return np.random.default_rng(x).integers(1, 256, nbytes, dtype="u1")


def row(x, nbytes=100):
    return bytes_of(x, nbytes)


def row_but_three(x, nbytes=100):
    if x == 3:
        msg = "no row for 3"
        raise ValueError(msg)
    return bytes_of(x, nbytes)


def expected(rows, nbytes=100, without=()):
    whole = np.zeros((rows, nbytes), "u1")
    for x in set(range(rows)) - set(without):
        whole[x] = bytes_of(x, nbytes)
    return whole


ROWS = {"x": range(24)}


def test_parts_of_which_one_has_a_failed_scenario_leave_no_row_waiting(out):
    for part in ((0, 2), (1, 2)):
        mm.sweep(row_but_three, ROWS, out, chunks=2, on_error="record", part=part)
    np.testing.assert_array_equal(np.load(out), expected(24, without=[3]))
    found = mm.status(out)
    assert (found.done, found.waiting, found.failed) == (23, 0, 1)
    assert mm.verify(out).ok
    mm.sweep(row_but_three, ROWS, out, on_error="record")
    np.testing.assert_array_equal(np.load(out), expected(24, without=[3]))


def test_a_sweep_that_stops_at_a_failure_leaves_no_row_waiting(out):
    with pytest.raises(SweepError):
        mm.sweep(row_but_three, ROWS, out, chunks=2, shape=100, dtype="u1")
    found = mm.status(out)
    assert (found.done, found.waiting) == (3, 0)
    np.testing.assert_array_equal(np.load(out)[:3], expected(3))


def test_an_array_that_stops_at_a_failure_leaves_no_block_waiting(out):
    def block(block, block_id=None):
        if block_id == (3, 0):
            msg = "no"
            raise ValueError(msg)
        return block

    values = expected(24)
    array = da.from_array(values, chunks=(2, 100)).map_blocks(block, dtype="u1", name="blocks")
    with pytest.raises(ValueError, match="no"):
        mm.to_npy(array, out)
    found = mm.status(out)
    assert found.waiting == 0
    assert found.done >= 1
    written = [slice(*done.box[0]) for done in Journal.open(out).ledger().done]
    for rows in written:
        np.testing.assert_array_equal(np.load(out)[rows], values[rows])


@pytest.fixture
def waiting(out, monkeypatch):
    """A sweep that was killed before anybody settled: rows of 100 bytes, two a chunk."""
    with monkeypatch.context() as patch:
        patch.setattr(resuming, "settle", lambda *_, **__: None)
        mm.sweep(row, ROWS, out, chunks=2)
    assert not np.array_equal(np.load(out), expected(24))
    return out


def test_rows_whose_ends_wait_are_not_called_done(waiting):
    found = mm.status(waiting)
    assert found.waiting > 0
    assert found.done + found.waiting == 24
    assert (found.missing, found.left) == (0, ())
    assert f"{found.waiting} written, edges waiting" in str(found)
    whole = np.load(waiting)
    good = [x for x in range(24) if np.array_equal(whole[x], bytes_of(x, 100))]
    assert found.done <= len(good)


@pytest.mark.parametrize("io", ["auto", "mmap", "pread", "direct"])
def test_readers_of_ours_have_what_waits(waiting, io):
    with pytest.warns(UserWarning, match="only wait for their ends"):
        np.testing.assert_array_equal(mm.load(waiting, io=io, device="cpu"), expected(24))
    out = np.empty((5, 30), "u1")
    mm.load(waiting, (slice(3, 8), slice(60, 90)), io=io, device="cpu", out=out)
    np.testing.assert_array_equal(out, expected(24)[3:8, 60:90])
    x = mm.from_npy(waiting, chunks=(7, 40), io=io, device="cpu")
    np.testing.assert_array_equal(x[::-3, 5:].compute(scheduler="sync"), expected(24)[::-3, 5:])
    target = mm.from_npy(mm.open_target(waiting), io=io, device="cpu")
    np.testing.assert_array_equal(target.compute(scheduler="sync"), expected(24))


def test_a_gpu_has_what_waits(waiting, cupy):
    for io in ("auto", "mmap", "pread", "direct"):
        block = mm.load(waiting, (slice(3, 8), slice(60, 90)), io=io, device="gpu")
        np.testing.assert_array_equal(cupy.asnumpy(block), expected(24)[3:8, 60:90])


def test_what_waits_is_verified(waiting):
    report = mm.verify(waiting)
    assert (report.ok, report.checked) == (True, 12)


def test_a_body_that_was_changed_beside_ends_that_wait_is_found(out, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(resuming, "settle", lambda *_, **__: None)
        mm.sweep(row, {"x": range(6), "nbytes": [9001]}, out, chunks=1)
    assert mm.verify(out).ok
    with open(out, "r+b") as file:
        file.seek(4096 + 2 * 9001 + 4500)
        file.write(b"\0\0\0")
    assert mm.verify(out).bad == (((2, 3),),)


def test_the_next_run_settles_and_computes_nothing(waiting):
    def never(**_):
        raise AssertionError

    never.__module__, never.__qualname__ = row.__module__, row.__qualname__
    report = mm.sweep(never, ROWS, waiting)
    assert (report.done, report.skipped) == (0, 24)
    np.testing.assert_array_equal(np.load(waiting), expected(24))
    assert mm.status(waiting).waiting == 0


def test_shared_pages_are_settled_while_the_sweep_runs(out, monkeypatch):
    monkeypatch.setattr(resuming, "_SETTLE_SECONDS", 0.0)
    seen = []

    def watching(x):
        if os.path.exists(out):
            seen.append(mm.status(out).waiting)
        return bytes_of(x, 100)

    mm.sweep(watching, ROWS, out, chunks=2, shape=100, dtype="u1")
    assert len(seen) > 20
    assert max(seen) <= 2
    np.testing.assert_array_equal(np.load(out), expected(24))


def test_a_finished_file_is_read_without_its_journal(out):
    mm.sweep(row, ROWS, out, chunks=2)
    assert not mm.open_npy(out).filling
    (Path(f"{out}.mmchunks") / "x.jsonl").write_text("not a journal\n\n")
    np.testing.assert_array_equal(mm.load(out, device="cpu"), expected(24))


def test_whatever_ends_while_others_begin_no_settled_byte_is_lost(tmp_path, out, monkeypatch):
    """A whole sweep that fails again and again, parts that finish, and everybody settles."""
    monkeypatch.setattr(resuming, "_SETTLE_SECONDS", 0.0)
    rows, parts = 60, 6

    def part(i):
        mm.sweep(row, {"x": range(rows)}, out, chunks=1, part=(i, parts), shape=100, dtype="u1")

    def settler(stop):
        journal, target = Journal.open(out), mm.open_target(out)
        while not stop.is_set():
            settle(journal, target, owner=None)

    part(0)
    stop = FORK.Event()
    settlers = [FORK.Process(target=settler, args=(stop,)) for _ in range(2)]
    workers = [FORK.Process(target=part, args=(i,)) for i in range(1, parts)]
    for process in settlers + workers:
        process.start()
    for process in workers:
        process.join(60)
        assert process.exitcode == 0
    stop.set()
    for process in settlers:
        process.join(60)
        assert process.exitcode == 0
    assert mm.status(out).done == rows
    np.testing.assert_array_equal(np.load(out), expected(rows))
    assert mm.verify(out).ok


def test_settling_takes_turns(out, monkeypatch):
    mm.sweep(row, ROWS, out, chunks=2)
    inside, most = [], []
    settle_pages = mm.Target.settle

    def counted(self, chunks):
        inside.append(1)
        most.append(len(inside))
        try:
            return settle_pages(self, chunks)
        finally:
            inside.pop()

    monkeypatch.setattr(mm.Target, "settle", counted)
    journal, target = Journal.open(out), mm.open_target(out)
    chunks = journal.ledger().done
    with journal.writer() as writer:
        writer.append(*(done._replace(box=((30 + i, 31 + i),)) for i, done in enumerate(chunks)))
    threads = [
        threading.Thread(target=settle, args=(journal, target), kwargs={"owner": None})
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]  # and the others found nothing left

"""What is done, what failed, who did it, and whether the bytes are still those that were written."""

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

from mmchunks.errors import JournalError, MMChunksError, StaleFileError
from mmchunks.filling.checking import status, verify
from mmchunks.filling.storing import to_npy
from mmchunks.filling.sweeping import sweep
from mmchunks.writing.journal import Journal
from mmchunks.writing.journallines import Done, Entry, Failed
from mmchunks.writing.ledger import Ledger
from mmchunks.writing.targets import Target


def halves(x, bad=()):
    if x in bad:
        msg = f"not {x}"
        raise ValueError(msg)
    return np.full(600, x / 2)


@pytest.fixture
def out(tmp_path):
    return str(tmp_path / "out.npy")


def test_status_counts_done_failed_and_missing(out):
    scenarios = [{"x": x, "bad": [3, 7]} for x in range(20)]
    sweep(halves, scenarios, out, part=(0, 2), on_error="record", chunks=4)
    found = status(out)
    assert (found.path, found.unit, found.total) == (out, "rows", 20)
    assert (found.done, found.failed, found.missing) == (8, 2, 10)
    assert found.fraction == 0.4
    assert found.hosts == (os.uname().nodename,)
    assert found.rate > 0
    assert found.left == ((3, 4), (7, 8), (10, 20))
    assert found.failures == {3: "ValueError: not 3", 7: "ValueError: not 7"}
    assert found.scenario(7) == {"x": 7, "bad": [3, 7]}
    assert found.scenario(-1)["x"] == 19
    with pytest.raises(IndexError):
        found.scenario(20)


def test_status_of_products_and_of_nothing(out, tmp_path):
    sweep(pow, [(x, 2) for x in range(3)], out)
    assert status(out).scenario(2) == (2, 2)
    assert (status(out).fraction, status(out).missing) == (1.0, 0)
    sweep(pow, [], tmp_path / "empty.npy", shape=(), dtype="f4")
    found = status(tmp_path / "empty.npy")
    assert (found.total, found.done, found.fraction, found.rate) == (0, 0, 1.0, None)


def test_status_of_an_array_counts_blocks(out):
    work = to_npy(da.ones((10, 10), chunks=(5, 4)), out, compute=False)
    assert (status(out).done, status(out).total, status(out).rate) == (0, 6, None)
    assert status(out).scenario(0) == ()
    work.compute()
    assert (status(out).done, status(out).missing) == (6, 0)


def test_a_file_without_a_journal_has_no_status(out):
    np.save(out, np.zeros(3))
    with pytest.raises(FileNotFoundError, match="has no journal"):
        status(out)
    with pytest.raises(FileNotFoundError):
        verify(out)


def test_a_damaged_journal_is_an_error(out):
    sweep(halves, [(x,) for x in range(6)], out, chunks=1)
    files = Journal.open(out).folder.glob("*.jsonl")
    file = max(files, key=lambda file: file.stat().st_size)
    text = bytearray(file.read_bytes())
    text[len(text) // 2] ^= 1
    file.write_bytes(text)
    with pytest.raises(JournalError, match="line"):
        status(out)


@pytest.fixture(params=["serial", "threads", "processes"])
def executor(request):
    if request.param == "serial":
        yield None
    elif request.param == "threads":
        with ThreadPoolExecutor(2) as pool:
            yield pool
    else:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            yield pool


def test_verify_finds_every_chunk_that_one_bit_changed(out, executor):
    sweep(halves, [(x,) for x in range(20)], out, chunks=3)
    report = verify(out, executor=executor)
    assert (report.ok, report.checked, report.bad) == (True, 7, ())
    view = np.load(out, mmap_mode="r+")
    view.view("u1")[4, 77] ^= 1
    view.view("u1")[19, -1] ^= 128
    view.flush()
    report = verify(out, executor=executor)
    assert (report.ok, report.checked) == (False, 7)
    assert report.bad == (((3, 6),), ((18, 20),))


def test_verify_reads_blocks_of_several_axes(out):
    to_npy(da.arange(600, chunks=600).reshape(20, 30).rechunk((7, 8)), out)
    assert (verify(out).ok, verify(out).checked) == (True, 12)
    np.load(out, mmap_mode="r+")[8, 9] = -1
    assert verify(out).bad == (((7, 14), (8, 16)),)


def test_rows_done_twice_are_checked_once(out):
    sweep(halves, [(x,) for x in range(4)], out, chunks=2)
    journal = Journal.open(out)
    with journal.writer() as writer:
        writer.append(journal.ledger().done[0])
    assert verify(out).checked == 2
    assert status(out).done == 4


def test_a_file_of_another_length_is_not_verified(out):
    sweep(halves, [(x,) for x in range(4)], out)
    os.truncate(out, os.path.getsize(out) - 1)
    with pytest.raises(MMChunksError):
        verify(out)


def test_a_header_that_says_something_else_is_not_verified(out):
    sweep(halves, [(x,) for x in range(4)], out)
    text = Path(out).read_bytes()
    Path(out).write_bytes(text.replace(b"<f8", b"<i8"))
    with pytest.raises(StaleFileError, match=r"dtype was \"'<f8'\", now it is \"'<i8'\""):
        verify(out)


def test_a_file_that_may_only_be_read_is_verified(out, monkeypatch):
    sweep(halves, [(x,) for x in range(4)], out)
    monkeypatch.setattr(os, "access", lambda _path, mode: mode != os.W_OK)
    assert verify(out).ok


def test_many_failures_beside_many_chunks_are_added_up_at_once():
    lines = [Failed(2 * i + 1, "", "") for i in range(30_000)]
    lines += [Done(((2 * i, 2 * i + 1),), 8, "") for i in range(30_000)] + [Done(((1, 4),), 8, "")]
    began = time.perf_counter()
    assert sorted(Ledger.read([Entry("", 0, 0.0, tuple(lines))]).failed) == list(
        range(5, 60_000, 2)
    )
    assert time.perf_counter() - began < 5


def test_chunks_that_are_forgotten_are_computed_again_and_no_others(out):
    computed = []

    class Row:
        def __call__(self, x):
            computed.append(x)
            return np.full(600, x / 2)

        def __dask_tokenize__(self):
            return "the same"

    row, scenarios = Row(), [(x,) for x in range(20)]
    sweep(row, scenarios, out, chunks=3)
    text = Path(out).read_bytes()
    np.load(out, mmap_mode="r+")[4, 77] = -1
    report = verify(out)
    assert (report.bad, report.forgotten) == ((((3, 6),),), False)
    with pytest.raises(StaleFileError, match=r"rows 3 to 6 hold other .*verify --forget /"):
        sweep(row, scenarios, out)
    computed.clear()
    assert verify(out, forget=True).forgotten
    assert status(out).left == ((3, 6),)
    assert sweep(row, scenarios, out).done == 3
    assert computed == [3, 4, 5]
    assert (Path(out).read_bytes(), verify(out).ok, status(out).fraction) == (text, True, 1)


def test_blocks_that_are_forgotten_are_computed_again(out):
    array = da.arange(600, chunks=600).reshape(20, 30).rechunk((7, 8))
    to_npy(array, out)
    view = np.load(out, mmap_mode="r+")
    view[8, 9] = view[0, 0] = -1
    with pytest.raises(StaleFileError, match=r"block \[0:7, 0:8\] and 1 more hold"):
        to_npy(array, out, resume=True)
    assert len(verify(out, forget=True).bad) == 2
    assert status(out).done == 10
    to_npy(array, out, resume=True)
    assert verify(out).ok
    np.testing.assert_array_equal(np.load(out), array.compute())


def test_pages_that_a_forgotten_chunk_shares_are_settled_again(out, monkeypatch):
    monkeypatch.setattr(Target, "local", False)  # as on a network file system
    scenarios = [(x,) for x in range(20)]
    sweep(halves, scenarios, out, chunks=3)
    text = Path(out).read_bytes()
    np.load(out, mmap_mode="r+")[3:6] = -1
    assert verify(out, forget=True).bad == (((3, 6),),)
    sweep(halves, scenarios, out)
    assert Path(out).read_bytes() == text
    assert any(done.fragments for done in Journal.open(out).ledger().done)
    assert verify(out).ok


def test_nothing_is_forgotten_while_a_driver_is_at_work(out):
    sweep(halves, [(x,) for x in range(4)], out)
    np.load(out, mmap_mode="r+")[2] = -1
    with Journal.open(out).lock(force=False), pytest.raises(JournalError, match="driver"):
        verify(out, forget=True)
    assert status(out).done == 4


def test_what_is_found_prints_in_one_line(out):
    bad = list(range(0, 3000, 2))
    done = sweep(halves, [(x, bad) for x in range(3000)], out, chunks=3, on_error="record")
    assert str(done).startswith(f"{out}: 1,500 rows done in ")
    assert str(done).endswith("s, 0 were done before, 1,500 failed")
    assert str(status(out)) == (f"{out}: 1,500 of 3,000 rows done (50.0%), 1,500 failed, 0 missing")
    assert repr(status(out).scenarios).startswith("<3,000 scenarios, the first is (0, [0, 2, 4")
    assert str(verify(out)) == f"{out}: all of 1,500 chunks hold what was written"
    np.load(out, mmap_mode="r+")[:40] = -1
    assert str(verify(out)) == (
        f"{out}: 20 of 1,500 chunks were changed since they were written, and hold other bytes: "
        "rows 1 to 2, rows 3 to 4, rows 5 to 6, rows 7 to 8, rows 9 to 10 and 15 more"
    )


def test_the_status_of_another_file_is_not_told(tmp_path):
    path = str(tmp_path / "out.npy")
    sweep(pow, [(2, 3), (3, 2)], path, progress=False)
    np.save(tmp_path / "other.npy", np.load(path))
    os.replace(tmp_path / "other.npy", path)
    with pytest.raises(
        StaleFileError, match=r"out\.npy: expected .* it is not the file that was begun"
    ):
        status(path)

"""What is assigned to a target is in the file, where NumPy would have put it, and nothing else is."""

import errno
import multiprocessing
import os
import pickle
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import HeaderError, JournalError, LayoutError, StaleFileError
from mmchunks.writing import pages, targets
from mmchunks.writing.journal import Journal
from mmchunks.writing.targets import create_npy, open_target

SPAWN = multiprocessing.get_context("spawn")
RECORD = np.dtype([("time", "<i8"), ("name", "S5"), ("value", "<f4", (2,))])


def fill_bytes(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, count, dtype="u1")


@pytest.fixture
def target(tmp_path):
    return create_npy(tmp_path / "out.npy", (100, 7), "f4")


# --- create ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["?", "<i2", ">f8", "<c16", "S3", "U2", "<M8[ms]", RECORD])
@pytest.mark.parametrize("shape", [(), (0, 4), (5,), (3, 4, 2)])
def test_a_created_file_is_what_numpy_loads(tmp_path, order, dtype, shape):
    create_npy(tmp_path / "out.npy", shape, dtype, order=order)
    loaded = np.load(tmp_path / "out.npy")
    assert (loaded.shape, loaded.dtype) == (shape, np.dtype(dtype))
    assert loaded.tobytes() == bytes(loaded.nbytes)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_fill_value_is_in_every_element(tmp_path, order):
    one = np.array((7, b"abc", [1.5, -2]), RECORD)
    create_npy(tmp_path / "a.npy", (50, 3), "f4", order=order, fill_value=np.nan)
    create_npy(tmp_path / "b.npy", 9, RECORD, fill_value=one)
    create_npy(tmp_path / "c.npy", 9, RECORD, fill_value=(7, b"abc", [1.5, -2]))
    assert np.isnan(np.load(tmp_path / "a.npy")).all()
    assert (np.load(tmp_path / "b.npy") == one).all()
    assert (np.load(tmp_path / "c.npy") == one).all()


def test_data_start_on_a_page_and_other_alignments_load_as_well(tmp_path):
    for align in (1, 64, 4096, 8192):
        made = create_npy(tmp_path / f"{align}.npy", 3, "u1", align=align, fill_value=align % 251)
        assert made.layout.offset % align == 0
        assert np.load(made.path, mmap_mode="r").tolist() == [align % 251] * 3
    assert create_npy(tmp_path / "auto.npy", 3, "u1").layout.offset == 4096


def test_an_alignment_that_numpy_would_not_load_is_refused(tmp_path):
    with pytest.raises(LayoutError, match=r"np\.load refuses"):
        create_npy(tmp_path / "out.npy", 3, "u1", align=65536)
    assert os.listdir(tmp_path) == []


def test_a_fill_value_that_does_not_fit_leaves_nothing(tmp_path):
    for value, kind in ((1.5, TypeError), (300, OverflowError), ([1, 2], LayoutError)):
        with pytest.raises(kind):
            create_npy(tmp_path / "out.npy", 3, "u1", fill_value=value)
    assert os.listdir(tmp_path) == []


def test_overwriting_forgets_the_journal_of_the_earlier_file(target):
    Journal.create(target.path, {})
    create_npy(target.path, 5, "f8", overwrite=True)
    assert np.load(target.path).shape == (5,)
    assert os.listdir(os.path.dirname(target.path)) == ["out.npy"]


def test_a_file_that_is_being_filled_is_not_overwritten(target):
    journal = Journal.create(target.path, {})
    with journal.lock(force=False), pytest.raises(JournalError, match="another driver"):
        create_npy(target.path, 5, "f8", overwrite=True)
    assert np.load(target.path).shape == (100, 7)


# --- assignment -----------------------------------------------------------------------------------


def indices(shape):
    def entry(length):
        cut = st.none() | st.integers(-length - 1, length + 1)
        whole = st.builds(slice, cut, cut)
        return whole | st.integers(-length, length - 1) if length else whole

    full = st.tuples(*map(entry, shape))
    return full | full.map(lambda index: (..., *index[1:])) | st.just(...)


@given(data=st.data(), order=st.sampled_from("CF"), dtype=st.sampled_from(["u1", ">i4", "<f8"]))
def test_assignment_does_what_numpy_does(tmp_path_factory, data, order, dtype):
    path = tmp_path_factory.mktemp("law") / "out.npy"
    shape = data.draw(st.lists(st.integers(0, 5), max_size=3).map(tuple))
    target = create_npy(path, shape, dtype, order=order, fill_value=9)
    judge = np.full(shape, 9, dtype, order=order)
    for seed in range(3):
        index = data.draw(indices(shape))
        lengths = judge[index].shape
        block = fill_bytes(np.prod(lengths, dtype=int), seed).reshape(lengths) % 100
        given_shape = data.draw(st.sampled_from(["same", "scalar", "more axes", "one row"]))
        if given_shape == "scalar":
            block = np.uint8(seed)
        elif given_shape == "more axes" and block.ndim:
            block = block[None, None]
        elif given_shape == "one row" and block.ndim and block.shape[0]:
            block = block[:1]
        judge[index] = block
        target[index] = block
        np.testing.assert_array_equal(target[index], judge[index])
    target.flush()
    np.testing.assert_array_equal(np.load(path), judge)
    assert target.source.offset + judge.nbytes == os.path.getsize(path)


@pytest.mark.parametrize("offset", [0, 1, 4095, 4096, 5000])
@pytest.mark.parametrize("nbytes", [0, 1, 4096, 5000, 8 * 2**20, 20 * 2**20 + 17])
@pytest.mark.parametrize("skew", [0, 1])
def test_large_and_small_spans_land_exactly(tmp_path, offset, nbytes, skew):
    total = 24 * 2**20
    target = create_npy(tmp_path / "out.npy", total, "u1", fill_value=1)
    memory = np.empty(nbytes + 4096 + skew, "u1")
    data = pages.aligned(memory, nbytes + skew, 4096 + offset)[skew:]
    data[...] = fill_bytes(nbytes)
    receipt = target.write_chunk(slice(offset, offset + nbytes), data)
    assert receipt.nbytes == nbytes
    judge = np.ones(total, "u1")
    judge[offset : offset + nbytes] = data
    assert np.load(target.path).tobytes() == judge.tobytes()
    assert target.checksum(slice(offset, offset + nbytes), receipt.checksum) == receipt.checksum


def test_a_cast_that_may_lose_something_is_refused(target):
    with pytest.raises(
        TypeError, match=r"out\.npy: the file holds float32, the block is complex128"
    ):
        target[0] = 1j
    target[0] = np.arange(7)  # integers to floats are of the same kind, as in NumPy
    with pytest.raises(
        ValueError, match=r"out\.npy: a block of shape \(3,\) does not go into .*\(7,\)"
    ):
        target[0] = [1, 2, 3]


def test_text_that_is_too_long_is_refused(tmp_path):
    target = create_npy(tmp_path / "text.npy", 2, "U3")
    target[0] = "abc"
    for text in ("abcd", np.array("abcd")):
        with pytest.raises(TypeError, match="the file holds <U3, the block is <U4"):
            target[1] = text
    assert target[:].tolist() == ["abc", ""]


def test_steps_and_new_axes_are_refused(target):
    for index in (slice(None, None, 2), slice(None, None, -1), None):
        with pytest.raises(LayoutError, match="no steps and no new axes"):
            target[index] = 0


def test_a_python_integer_that_does_not_fit_is_refused(tmp_path):
    target = create_npy(tmp_path / "out.npy", 4, "u1")
    target[:] = 7
    target[1:3] = [8, 9]
    with pytest.raises(OverflowError):
        target[0] = 300
    assert target[:].tolist() == [7, 8, 9, 7]


def test_structured_blocks_and_single_records_are_written(tmp_path):
    target = create_npy(tmp_path / "out.npy", 3, RECORD)
    target[1] = (7, b"abc", [1.5, -2])
    target[2:] = np.array([(8, b"xy", [0, 1])], RECORD)
    assert target[:].tobytes() == np.load(target.path).tobytes()
    assert target[1]["name"] == b"abc"


def test_a_scalar_fills_a_region_without_a_copy_of_its_size(tmp_path, monkeypatch):
    target = create_npy(tmp_path / "out.npy", (3000, 1000), "f4")
    taken = []
    take = targets.take
    monkeypatch.setattr(targets, "_SLAB_NBYTES", 2**20)
    monkeypatch.setattr(targets, "take", lambda n, *rest: taken.append(n[0]) or take(n, *rest))
    target[...] = 3
    assert 0 < max(taken) <= 2 * 2**20
    assert (np.load(target.path) == 3).all()


def test_what_was_read_does_not_change_when_the_file_does(target):
    before = target[:]
    target[:] = 5
    assert before.max() == 0


# --- map ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [slice(2, 5), (slice(None), slice(1, 3)), 4])
def test_a_mapped_region_is_filled_in_place_and_durable_at_the_end(target, index, monkeypatch):
    flushed = []
    fdatasync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: flushed.append(fdatasync(fd)))
    judge = target[:]
    with target.map(index) as view:
        assert view.shape == judge[index].shape
        np.add(view, 3, out=view)
        assert not flushed
    judge[index] += 3
    np.testing.assert_array_equal(np.load(target.path), judge)
    assert len(flushed) == 1


def test_a_map_whose_block_fails_writes_nothing(target):
    def fail(view):
        view[...] = 1
        raise KeyError

    with pytest.raises(KeyError), target.map(slice(0, 2)) as view:
        fail(view)
    assert target[:].max() == 0


# --- identity -------------------------------------------------------------------------------------


def test_a_target_travels_light_and_writes_where_it_lands(target):
    data = pickle.dumps(target)
    assert len(data) < 1000
    pickle.loads(data)[1] = 5
    assert target[1].tolist() == [5] * 7


def content(path):
    return Path(path).read_bytes() if os.path.exists(path) else None


def shorten(path):
    os.truncate(path, os.path.getsize(path) - 1)


def lengthen(path):
    os.truncate(path, os.path.getsize(path) + 1)


def replace(path):
    with open(path, "rb") as old, open(f"{path}.new", "wb") as new:
        new.write(old.read())
    os.replace(f"{path}.new", path)


@pytest.mark.parametrize("change", [shorten, lengthen, replace, os.unlink])
def test_another_file_is_never_written(target, change):
    target[0] = 1  # it is open from here on
    change(target.path)
    before = content(target.path)
    with pytest.raises(
        StaleFileError, match=r"out\.npy: expected .* found .*; nothing was written"
    ):
        target[0] = 2
    with pytest.raises(StaleFileError):
        target.write_chunk(slice(0, 1), np.zeros((1, 7), "f4"))
    assert content(target.path) == before


def test_a_file_that_is_shorter_than_its_header_says_is_not_opened_or_extended(target):
    shorten(target.path)
    size = os.path.getsize(target.path)
    with pytest.raises(HeaderError, match="header promises"):
        open_target(target.path)
    assert os.path.getsize(target.path) == size


def test_any_npy_file_can_be_opened_and_what_follows_its_data_is_kept(tmp_path):
    path = tmp_path / "theirs.npy"
    np.save(path, np.zeros((50, 100), "f4"))
    with path.open("ab") as file:
        file.write(b"trailer")
    target = open_target(path)
    target.write_chunk(slice(0, 50), np.ones((50, 100)))
    assert (np.load(path) == 1).all()
    assert path.read_bytes()[-7:] == b"trailer"


# --- flush ----------------------------------------------------------------------------------------


def lose_writes(monkeypatch):
    asked = []

    def fdatasync(fd):
        asked.append(fd)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    return asked


def test_a_flush_that_failed_is_never_asked_again(target, monkeypatch):
    target[0] = 1
    with monkeypatch.context() as patch:
        asked = lose_writes(patch)
        with pytest.raises(
            OSError, match=r"out\.npy: what was written is lost: input/output error"
        ):
            target.flush()
    assert len(asked) == 1
    # The kernel would say that all is well now.
    for again in (target.flush, lambda: target.__setitem__(0, 1)):
        with pytest.raises(OSError, match="a flush failed before"):
            again()
    anew = open_target(target.path)
    anew[0] = 1
    anew.flush()


def test_a_chunk_whose_flush_failed_is_written_anew(target, monkeypatch):
    block = np.ones((1, 7), "f4")
    with monkeypatch.context() as patch:
        lose_writes(patch)
        with pytest.raises(OSError, match="is lost"):
            target.write_chunk(slice(0, 1), block)
    assert target.write_chunk(slice(0, 1), block).nbytes == 28


def test_each_chunk_hears_of_its_own_lost_writes(target, monkeypatch):
    opened = []
    monkeypatch.setattr(os, "fdatasync", opened.append)
    for row in range(3):
        with pages.opened(target.path, local=True):  # so that a number is not used twice
            target.write_chunk(slice(row, row + 1), np.ones((1, 7), "f4"))
    target[0] = 1
    target.write_chunk(slice(0, 1), np.ones((1, 7), "f4"))
    assert target._handle.shared().fd not in opened


def test_a_disk_that_refuses_direct_writes_gets_them_through_the_cache(tmp_path, monkeypatch):
    target = create_npy(tmp_path / "out.npy", 100_000, "u1")
    pwrite, refused = os.pwrite, []

    def refuse(fd, data, offset):
        if os.O_DIRECT & _flags(fd):
            refused.append(fd)
            raise OSError(errno.EINVAL, "no")
        return pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", refuse)
    data = fill_bytes(100_000)
    target.write_chunk(..., data)
    assert refused
    assert (np.load(target.path) == data).all()


def _flags(fd):
    text = Path(f"/proc/self/fdinfo/{fd}").read_text()
    return int(text.split("flags:")[1].split()[0], 8)


# --- a disk that fills ----------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_is_an_error_at_create_that_leaves_nothing(small_disk):
    with pytest.raises(OSError, match=r"needs 12,004,096 bytes, 8,388,608 bytes are free"):
        create_npy(small_disk / "out.npy", (12, 1000, 1000), "u1")
    assert os.listdir(small_disk) == []


def test_a_sparse_target_on_a_disk_that_fills_carries_on_after_space_is_freed(small_disk):
    (small_disk / "other").write_bytes(bytes(5 * 2**20))
    target = create_npy(small_disk / "out.npy", (12, 500, 1000), "u1", reserve=False)
    journal = Journal.create(target.path, {})

    def fill():
        done = set(journal.ledger().rows)
        with journal.writer() as writer:
            for row in range(12):
                if (row, row + 1) not in done:
                    writer.append(target.write_chunk(row, np.full((500, 1000), row + 1, "u1")))

    with pytest.raises(OSError, match=r"out\.npy: .*no space left") as info:
        fill()
    assert info.value.errno == errno.ENOSPC
    kept = len(journal.entries())
    assert 2 <= kept <= 6
    (small_disk / "other").unlink()
    fill()
    assert (np.load(target.path)[:, 0, 0] == np.arange(1, 13)).all()
    assert len(journal.entries()) == 12


# --- many processes -------------------------------------------------------------------------------


def write_own_slots(path, turn, stride, rounds):
    """Write every stride-th slot of 61 bytes, round after round, and see that it stays."""
    target = open_target(path)
    slots = range(turn, target.shape[0], stride)
    for number in range(rounds):
        for slot in slots:
            value = (number * stride + turn) % 251
            if slot % 8 == turn:  # some durably, most in the page cache
                target.write_chunk(slice(slot, slot + 1), np.full((1, 61), value, "u1"))
            else:
                target[slot] = value
        for slot in slots:
            assert (target[slot] == value).all(), (number, slot)


def test_processes_that_share_pages_lose_no_byte(tmp_path):
    target = create_npy(tmp_path / "out.npy", (64, 61), "u1", align=64)
    workers = [
        SPAWN.Process(target=write_own_slots, args=(target.path, turn, 3, 60)) for turn in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0


def write_large_chunks(path, turn, stride, rounds):
    target = open_target(path)
    for number in range(rounds):
        for row in range(turn, target.shape[0], stride):
            target.write_chunk(row, np.full(target.shape[1:], 1 + number + row, "u1"))


def test_chunks_with_direct_bodies_and_shared_pages_lose_no_byte(tmp_path):
    # Rows of 5000 bytes: a page of its own, and a page shared at each end.
    target = create_npy(tmp_path / "out.npy", (16, 9001), "u1", align=64)
    workers = [
        SPAWN.Process(target=write_large_chunks, args=(target.path, turn, 2, 100))
        for turn in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert (np.load(target.path) == (np.arange(16) + 100).astype("u1")[:, None]).all()


def write_for_ever(path, ready):
    target = open_target(path)
    with Journal.open(path).writer() as writer:
        for row in range(target.shape[0]):
            writer.append(target.write_chunk(row, np.full(target.shape[1:], row + 1, "u1")))
            ready.set()


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.01, 0.03])
def test_what_is_journalled_before_a_kill_is_in_the_file(tmp_path, delay):
    target = create_npy(tmp_path / "out.npy", (60, 3_000_001), "u1", align=64, reserve=False)
    journal = Journal.create(target.path, {})
    ready = SPAWN.Event()
    worker = SPAWN.Process(target=write_for_ever, args=(target.path, ready))
    worker.start()
    assert ready.wait(60)
    time.sleep(delay)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    chunks = journal.ledger().done
    assert chunks
    for done in chunks:
        row = done.box[0][0]
        assert target.checksum(row, done.checksum) == done.checksum
        assert (target[row] == row + 1).all()


def test_threads_may_share_a_target(tmp_path):
    target = create_npy(tmp_path / "out.npy", (8, 50_001), "u1")

    def write(row):
        for value in range(20):
            target[row] = value
            target.write_chunk(slice(row, row + 1), np.full((1, 50_001), value + row, "u1"))
        target.flush()

    threads = [threading.Thread(target=write, args=(row,)) for row in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (np.load(target.path) == (np.arange(8) + 19)[:, None]).all()


def test_a_target_that_is_let_go_closes_its_file(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    target = create_npy(tmp_path / "out.npy", 10, "u1")
    target[:] = 1
    del target
    assert len(os.listdir("/proc/self/fd")) == before

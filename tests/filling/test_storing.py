"""A dask array in one file: every block where numpy would have put it, written where it was computed."""

import functools
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmchunks.errors import JournalError, MMChunksError, PlanError
from mmchunks.filling import storing
from mmchunks.filling.checking import status, verify
from mmchunks.filling.storing import to_npy
from mmchunks.reading.lazy import from_npy
from mmchunks.reading.stacks import from_npy_stack
from mmchunks.sliding.arrays import sliding_window
from mmchunks.writing.journal import Journal

VALUES = np.arange(60 * 50, dtype="f4").reshape(60, 50)


@pytest.fixture
def out(tmp_path):
    return str(tmp_path / "out.npy")


def counted(log, block):
    """Pass a block on, and write down that it was computed."""
    if block.size:  # dask tries it on nothing, to learn its type
        with open(log, "a") as file:
            file.write("block\n")
    return block


def computed(log):
    return len(Path(log).read_text().split()) if os.path.exists(log) else 0


@pytest.fixture(params=["sync", "threads", "processes"])
def scheduler(request):
    with dask.config.set(scheduler=request.param, num_workers=2):
        yield request.param


@pytest.mark.parametrize("chunks", [(60, 50), (7, 50), (60, 7), (13, 11), ((0, 20, 40), 50)])
def test_blocks_of_any_shape_are_written_exactly(out, scheduler, chunks):
    array = da.from_array(VALUES, chunks=chunks)
    assert to_npy(array, out) is None
    np.testing.assert_array_equal(np.load(out), VALUES)
    assert verify(out).ok


@settings(max_examples=25)  # each makes a file and flushes it
@given(
    shape=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    dtype=st.sampled_from(["u1", ">i2", "f8", "c16", "S3", "M8[s]"]),
    data=st.data(),
)
def test_any_array_is_what_numpy_would_have_saved(tmp_path_factory, shape, dtype, data):
    out = tmp_path_factory.mktemp("any") / "out.npy"
    values = np.arange(int(np.prod(shape)), dtype="u1").reshape(shape).astype(dtype)
    chunks = tuple(data.draw(st.integers(1, 9)) for _ in shape)
    with dask.config.set(scheduler="sync"):
        to_npy(da.from_array(values, chunks=chunks), out)
    found = np.load(out)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values)


def test_it_can_be_computed_later(out):
    work = to_npy(da.from_array(VALUES, chunks=20), out, compute=False)
    assert np.load(out).shape == VALUES.shape
    assert not np.load(out).any()
    assert work.compute() is None
    np.testing.assert_array_equal(np.load(out), VALUES)


def test_it_goes_into_a_region_of_a_file_by_whoever(out):
    np.save(out, np.zeros((80, 60), "f8"))
    to_npy(da.from_array(VALUES, chunks=(17, 13)), out, region=(slice(10, 70), slice(5, 55)))
    expected = np.zeros((80, 60))
    expected[10:70, 5:55] = VALUES
    np.testing.assert_array_equal(np.load(out), expected)
    assert not os.path.exists(f"{out}.mmchunks")
    with pytest.raises(PlanError, match=r"the region has shape \(80, 60\), the array \(60, 50\)"):
        to_npy(da.from_array(VALUES), out, region=...)
    with pytest.raises(PlanError, match="region= writes into a file as it is"):
        to_npy(da.from_array(VALUES), out, region=slice(0, 60), overwrite=True)


def test_a_file_that_is_there_is_refused_or_replaced(out):
    np.save(out, np.zeros(3))
    array = da.from_array(VALUES, chunks=20)
    with pytest.raises(FileExistsError):
        to_npy(array, out)
    assert np.load(out).shape == (3,)
    for factor in (1, 2):
        to_npy(array * factor, out, overwrite=True)
        np.testing.assert_array_equal(np.load(out), VALUES * factor)
        with pytest.raises(FileExistsError):
            to_npy(array, out, resume=False)
        with pytest.raises(JournalError, match="begun with other settings: array was"):
            to_npy(array * 3, out)


def failing(log, gate, block, block_id=None):
    if block_id == (2, 0) and not os.path.exists(gate):
        msg = "not yet"
        raise ValueError(msg)
    return counted(log, block)


def test_it_carries_on_with_the_blocks_that_are_missing(out, scheduler, tmp_path):
    log, gate = str(tmp_path / "log"), str(tmp_path / "gate")
    array = da.from_array(VALUES, chunks=(20, 10)).map_blocks(
        functools.partial(failing, log, gate), dtype="f4", name="same"
    )
    with pytest.raises(ValueError, match="not yet"):
        to_npy(array, out)
    time.sleep(
        0.5
    )  # other workers go on for a moment; what comes after the driver left is not written down
    before, kept = computed(log), status(out).done
    assert 0 < kept <= before <= kept + 2
    Path(gate).touch()
    to_npy(array, out, resume=True)
    assert computed(log) == before + 15 - kept
    np.testing.assert_array_equal(np.load(out), VALUES)
    to_npy(array, out, resume=True)
    assert computed(log) == before + 15 - kept
    found = status(out)
    assert (found.unit, found.total, found.done, found.fraction) == ("blocks", 15, 15, 1.0)


def test_another_array_is_refused_and_nothing_is_touched(out):
    to_npy(da.from_array(VALUES, chunks=20), out)
    before = Path(out).read_bytes()
    for other in (da.from_array(VALUES + 1, chunks=20), da.from_array(VALUES, chunks=30)):
        with pytest.raises(JournalError, match="was begun with other settings: array was"):
            to_npy(other, out, resume=True)
    assert Path(out).read_bytes() == before


def test_a_second_driver_is_refused(out):
    array = da.from_array(VALUES, chunks=20)
    to_npy(array, out)
    with Journal.open(out).lock(force=False), pytest.raises(JournalError):
        to_npy(array, out, resume=True)


def test_a_block_of_another_shape_than_promised_is_refused(out):
    sums = da.ones(20, chunks=10).map_blocks(lambda block: block.sum(keepdims=True))
    with pytest.raises(PlanError, match=r"has shape \(1,\), its chunks promise \(10,\)"):
        to_npy(sums, out, progress=False)


def test_unknown_chunks_are_refused_in_a_sentence(out):
    array = da.from_array(VALUES, chunks=20)
    with pytest.raises(MMChunksError, match=r"call its compute_chunk_sizes\(\) first"):
        to_npy(array[array[:, 0] > 3], out)
    assert not os.path.exists(out)


def test_a_task_carries_neither_data_nor_the_plan(out):
    work = to_npy(da.zeros((1000, 10), chunks=(1, 10)), out, compute=False)
    (work,) = dask.optimize(work)
    sizes = [len(pickle.dumps(task)) for task in dict(work.__dask_graph__()).values()]
    assert sorted(sizes)[-2] < 5000  # the last one lists the others


def test_files_of_the_journal_are_closed_by_the_next_run(tmp_path):
    for number in range(5):
        with dask.config.set(scheduler="sync"):
            to_npy(da.zeros(10, chunks=2), tmp_path / f"{number}.npy")
    links = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    assert sum(link.endswith(".jsonl") for link in links) <= 1


def test_both_engines_of_dask_write_the_same(out):
    code = """
import sys, warnings
warnings.simplefilter("ignore")
import dask.array as da, numpy as np
from mmchunks.filling.storing import to_npy
array = da.arange(300, chunks=70) * 2
assert type(array).__module__ == "dask.array._array_expr._collection", type(array)
to_npy(array, sys.argv[1])
to_npy(array, sys.argv[1], resume=True)
np.testing.assert_array_equal(np.load(sys.argv[1]), np.arange(300) * 2)
"""
    env = os.environ | {"DASK_ARRAY__QUERY_PLANNING": "True"}
    env["PYTHONPATH"] = str(Path(__file__).parents[2])
    subprocess.run([sys.executable, "-c", code, out], env=env, check=True)
    np.testing.assert_array_equal(np.load(out), np.arange(300) * 2)


def test_ctrl_c_stops_and_what_is_done_is_kept(out, tmp_path):
    def interrupting(block, block_id=None):
        if block_id == (2,):
            raise KeyboardInterrupt
        return block

    array = da.arange(50, chunks=10).map_blocks(interrupting, dtype="i8", name="interrupted")
    with dask.config.set(scheduler="sync"), pytest.raises(KeyboardInterrupt):
        to_npy(array, out)
    assert 0 < status(out).done < 5


def test_the_progress_line_counts_every_block_once(out, monkeypatch):
    seen = []

    class Bar:
        def advance(self, done):
            seen.append(done)

    def slow(block):
        time.sleep(0.05)
        return block

    monkeypatch.setattr(storing, "visible", lambda _: True)
    monkeypatch.setattr(storing, "progress_bar", lambda *_, **__: nullcontext(Bar()))
    monkeypatch.setattr(storing, "_POLL_SECONDS", 0.02)
    with dask.config.set(scheduler="sync"):
        to_npy(da.arange(50, chunks=10).map_blocks(slow, dtype="i8", name="slow"), out)
    assert sum(seen) == 5
    assert len(seen) > 3


@pytest.mark.parametrize(
    "work",
    [
        lambda path: from_npy(path, chunks=(20, -1)),
        lambda path: from_npy(path, chunks=(20, -1)).sum(axis=1) * 2,
        lambda path: sliding_window(path, {0: 3}, "mean"),
        lambda path: from_npy_stack([path, path]).map_blocks(
            lambda block, _lock: block + 1, threading.Lock()
        ),
    ],
    ids=["itself", "computed from it", "windows", "stacked, beside what cannot be pickled"],
)
def test_a_file_is_never_overwritten_by_an_array_that_reads_it(out, work):
    np.save(out, VALUES)
    array = work(out)
    for how in ({"overwrite": True}, {"resume": True}, {}):
        with pytest.raises(PlanError, match=r"^/.*reads this file; write elsewhere"):
            to_npy(array, out, **how)
    np.testing.assert_array_equal(np.load(out), VALUES)
    elsewhere = out.replace("out", "elsewhere")
    to_npy(array, elsewhere)
    to_npy(array, elsewhere, overwrite=True)
    np.testing.assert_array_equal(np.load(elsewhere), array.compute())


def test_a_region_of_a_file_with_a_journal_is_written_with_a_warning(out):
    to_npy(da.from_array(VALUES, chunks=(20, -1)), out)
    with pytest.warns(UserWarning, match=r"^/.* whose journal does not know of region="):
        to_npy(da.ones((5, 50)), out, region=np.s_[30:35])
    assert verify(out).bad == (((20, 40), (0, 50)),)


def test_a_region_of_the_file_that_the_array_reads_is_refused(out):
    np.save(out, VALUES)
    with pytest.raises(PlanError, match="reads this file"):
        to_npy(from_npy(out)[:30] * 2, out, region=np.s_[30:])
    np.testing.assert_array_equal(np.load(out), VALUES)


@pytest.mark.parametrize("array", [VALUES, [1, 2], None])
def test_what_is_no_dask_array_is_refused_in_a_sentence(out, array):
    with pytest.raises(PlanError, match=r"^/.*to_npy writes dask arrays, got .*; use numpy.save"):
        to_npy(array, out)
    assert not os.path.exists(out)


def test_a_mask_is_not_lost_silently(tmp_path):
    masked = da.ma.masked_greater(da.arange(10, chunks=4), 5)
    with pytest.raises(PlanError, match=r"masked, and a \.npy holds no mask"):
        to_npy(masked, tmp_path / "x.npy")
    assert not list(tmp_path.iterdir())

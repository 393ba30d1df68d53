"""Lazy arrays of files: values, laziness, names, slices and faults, judged by NumPy and dask.

The whole module runs under one of dask's two array engines; ``test_both_engines_agree`` runs it
again under the other one.
"""

import os
import pickle
import subprocess
import sys

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pytest
from dask.array.utils import assert_eq
from hypothesis import given, settings
from hypothesis import strategies as st

import mmchunks as mm
from mmchunks.reading import lazyindexing, regions, stacks
from tests.engines import assert_passes_with_newer_engine

NEW_ENGINE = bool(dask.config.get("array.query-planning"))


@pytest.fixture
def reads(monkeypatch):
    """The regions that were read, and how many elements they hold."""
    seen = []
    block = regions.block

    def recording(source, region, **options):
        seen.append(source.layout[region].shape)
        return block(source, region, **options)

    monkeypatch.setattr(regions, "block", recording)
    return seen


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("io", ["auto", "mmap", "pread", "direct"])
def test_blocks_equal_the_file(tmp_path, order, io):
    array = np.asarray(np.arange(60 * 7 * 5, dtype=">i4").reshape(60, 7, 5), order=order)
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy", chunks=(17, -1, 2), io=io, device="cpu")
    assert x.chunks == ((17, 17, 17, 9), (7,), (2, 2, 1))
    assert isinstance(x, da.Array)
    if NEW_ENGINE:  # its assert_eq needs functions that the engine does not have yet
        np.testing.assert_array_equal(x.compute(scheduler="sync"), array)
    else:
        assert_eq(x, array)


def test_nothing_is_read_before_compute(ramp, reads):
    x = mm.from_npy(ramp[0], chunks=100)
    y = (x[5:700, 3] + 1).sum()
    assert reads == []
    y.compute(scheduler="sync")
    assert reads


def test_graph_holds_paths_and_slices_only(tmp_path):
    sizes = []
    for rows in (1_000, 100_000):
        np.save(tmp_path / "x.npy", np.zeros((rows, 10)))
        x = mm.from_npy(tmp_path / "x.npy", chunks=rows // 10)
        sizes.append(len(cloudpickle.dumps(x.dask)))
    assert max(sizes) < 20_000
    assert abs(sizes[0] - sizes[1]) < 200


def test_names_come_from_identity(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.zeros(10))
    first, again = mm.from_npy(path), mm.from_npy(path)
    assert first.name == again.name
    assert first.name != mm.from_npy(path, chunks=3).name
    assert first.name != mm.from_npy(path, io="pread").name
    os.utime(path, ns=(1, 1))
    assert mm.from_npy(path).name != first.name
    if not NEW_ENGINE:
        assert first.name.startswith("from-npy-")
        assert mm.from_npy(path, name="mine").name == "mine"


def test_tokens_are_deterministic_across_processes(ramp):
    code = f"import mmchunks as mm; print(mm.from_npy({ramp[0]!r}, chunks=100)[3:40].name)"
    config = {**os.environ, "DASK_ARRAY__QUERY_PLANNING": str(NEW_ENGINE)}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=config
    )
    assert out.stdout.strip() == mm.from_npy(ramp[0], chunks=100)[3:40].name


@pytest.mark.parametrize("scheduler", ["sync", "threads", "processes"])
def test_every_scheduler_reads_the_same(ramp, scheduler):
    path, array = ramp
    x = mm.from_npy(path, chunks=300)
    with dask.config.set(scheduler=scheduler, num_workers=2):
        np.testing.assert_array_equal(x[10:990, 1:].compute(), array[10:990, 1:])
        assert x.sum().compute() == array.sum()


def test_meta_is_an_empty_array_of_the_right_kind(ramp):
    x = mm.from_npy(ramp[0], device="cpu")
    assert type(x._meta) is np.ndarray
    assert x._meta.dtype == np.float32
    assert x._meta.shape == (0, 0)


INDEXES = st.sampled_from(
    [
        5,
        -1,
        slice(None),
        slice(3, 9),
        slice(900, None),
        slice(None, None, 7),
        slice(None, None, -3),
        slice(50, 2, -1),
        slice(4, 4),
        [3, 999, 3, 500],
        np.array([0, 1, 2, 800]),
        np.arange(1000) % 97 == 0,
        [],
        None,
        ...,
    ]
)
INNER = st.sampled_from(
    [0, -3, slice(None), slice(2, 5), slice(None, None, -1), [1, 0], None, ..., slice(16, None, -5)]
)


@settings(max_examples=200)
@given(first=st.tuples(INDEXES, INNER), then=st.tuples(INNER))
def test_indexing_is_that_of_numpy(tmp_path_factory, first, then):
    path, array = _shared_ramp(tmp_path_factory)
    x = mm.from_npy(path, chunks=(64, 5), device="cpu")
    if sum(entry is Ellipsis for entry in first) > 1:
        return
    lists = sum(isinstance(entry, list | np.ndarray) for entry in first)
    if lists > 1 or (NEW_ENGINE and (None in _plain(first) or then == (None,))):
        return  # lists on two axes: NumPy pairs them, dask crosses them
    expected = array[first]
    y = x[first]
    assert y.shape == expected.shape
    assert sum(map(len, y.chunks)) < 1100
    np.testing.assert_array_equal(y.compute(scheduler="sync"), expected)
    if expected.ndim and expected.shape[0] > 3 and not isinstance(then[0], list):
        np.testing.assert_array_equal(y[then].compute(scheduler="sync"), expected[then])


def _plain(index):
    return tuple("list" if isinstance(entry, list | np.ndarray) else entry for entry in index)


_RAMP = {}


def _shared_ramp(factory):
    if not _RAMP:
        array = np.arange(17_000, dtype="f4").reshape(1000, 17)
        path = factory.mktemp("ramp") / "x.npy"
        np.save(path, array)
        _RAMP.update(path=path, array=array)
    return _RAMP["path"], _RAMP["array"]


@pytest.mark.parametrize(
    "index", [3, slice(-1, None), [3, 4], (3, slice(2, 5)), np.array([7]), (slice(4, 6), 0)]
)
@pytest.mark.parametrize("io", ["auto", "pread"])
def test_a_small_pick_does_not_cost_its_chunk(ramp, reads, index, io):
    path, array = ramp
    mm.from_npy(path, chunks=500, io=io)[index].compute(scheduler="sync")
    assert sum(np.prod(shape) for shape in reads) <= 2 * array[index].size


def test_a_pick_of_a_slice_is_looked_up_in_the_file(ramp, reads):
    path, array = ramp
    row = mm.from_npy(path, chunks=500)[1:][2:][5]
    np.testing.assert_array_equal(row.compute(scheduler="sync"), array[8])
    assert reads == [(1, 17)]


def test_rows_far_apart_are_read_one_by_one(tmp_path, reads):
    array = np.arange(50 * 40_000, dtype="f4").reshape(50, 40_000)
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy", io="pread")
    for index in ([3, 40, 41, 1], slice(None, None, 20), slice(None, 3, -9)):
        reads.clear()
        np.testing.assert_array_equal(x[index].compute(scheduler="sync"), array[index])
        assert sum(np.prod(shape) for shape in reads) == array[index].size


@pytest.mark.parametrize("dtype", [">i4", [("a", ">f4"), ("b", "u1")], "S2", "V3"])
def test_rows_far_apart_keep_their_dtype(tmp_path, dtype):
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(0).integers(1, 9, (100, 40_000 * dtype.itemsize), "u1")
    np.save(tmp_path / "x.npy", raw.view(dtype))
    y = mm.from_npy(tmp_path / "x.npy", chunks=30, device="cpu")[[70, 3], :30]
    found = y.compute(scheduler="sync")
    assert found.dtype == y.dtype == dtype
    np.testing.assert_array_equal(found, raw.view(dtype)[[70, 3], :30])


@pytest.mark.skipif(NEW_ENGINE, reason="it cannot combine arrays whose chunks differ yet")
def test_shared_chunks_are_read_once(ramp, reads):
    x = mm.from_npy(ramp[0], chunks=500)
    np.testing.assert_array_equal(
        (x[1:] - x[:-1]).compute(scheduler="sync"), np.diff(ramp[1], axis=0)
    )
    assert sorted(reads) == [(500, 17), (500, 17)]


@pytest.mark.skipif(NEW_ENGINE, reason="it has no assignment yet")
def test_assignment_ends_the_bond_with_the_file(ramp):
    path, array = ramp
    x = mm.from_npy(path, chunks=300)
    x[5] = 0
    expected = array.copy()
    expected[5] = 0
    np.testing.assert_array_equal(x[4:7].compute(scheduler="sync"), expected[4:7])
    assert lazyindexing.selection_of(x) is None


def test_a_lazy_array_survives_pickling(ramp):
    path, array = ramp
    x = pickle.loads(pickle.dumps(mm.from_npy(path, chunks=300)))
    np.testing.assert_array_equal(x[5:8].compute(scheduler="sync"), array[5:8])


def test_fields_of_structured_dtypes(tmp_path, reads):
    dtype = np.dtype([("t", "<i8"), ("v", "<f4", (2, 3)), ("who", "S4")], align=True)
    array = np.zeros(20, dtype)
    array["t"] = np.arange(20)
    array["v"] = np.random.default_rng(0).random((20, 2, 3))
    path = tmp_path / "records.npy"
    np.save(path, array)
    for v in (mm.from_npy(path, chunks=7, field="v"), mm.from_npy(path, chunks=7)["v"]):
        assert v.chunks == ((7, 7, 6), (2,), (3,))
        assert v.dtype == np.float32
        np.testing.assert_array_equal(v.compute(scheduler="sync"), array["v"])
        np.testing.assert_array_equal(v[3].compute(scheduler="sync"), array["v"][3])
        np.testing.assert_array_equal(v[2:4, 1].compute(scheduler="sync"), array["v"][2:4, 1])
    whole = mm.from_npy(path, chunks=7).compute(scheduler="sync")
    assert whole.dtype == dtype
    assert all((whole[name] == array[name]).all() for name in dtype.names)
    with pytest.raises(mm.LayoutError, match=r"no field 'w'.*'t', 'v', 'who'"):
        mm.from_npy(path, field="w")


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 5), (3, 0), (1, 1, 1)])
def test_odd_shapes(tmp_path, shape):
    array = np.ones(shape, "c8")
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy")
    assert x.shape == shape
    np.testing.assert_array_equal(x.compute(scheduler="sync"), array)


def test_blocks_may_be_written_to_and_the_file_stays(ramp):
    path, array = ramp

    def clobber(block):
        block[:] = -1
        return block

    for io in ("mmap", "pread", "auto"):
        x = mm.from_npy(path, chunks=500, io=io)
        assert (x.map_blocks(clobber, dtype=x.dtype).compute(scheduler="sync") == -1).all()
    np.testing.assert_array_equal(np.load(path), array)


def test_raw_files(tmp_path):
    array = np.arange(100, dtype=">u2")
    path = tmp_path / "x.bin"
    path.write_bytes(b"head" + array.tobytes())
    x = mm.from_raw(path, ">u2", (10, 10), 4, offset=4)
    np.testing.assert_array_equal(x.compute(scheduler="sync"), array.reshape(10, 10))
    f = mm.from_raw(path, ">u2", (10, 10), 4, offset=4, order="F")
    np.testing.assert_array_equal(f.compute(scheduler="sync"), array.reshape(10, 10).T)


def test_a_stack_of_files(tmp_path):
    arrays = [np.full((2, 3), i, "f4") for i in range(12)]
    for i, array in enumerate(arrays):
        np.save(tmp_path / f"{i}.npy", array)
    for paths in (tmp_path, str(tmp_path / "*.npy"), [tmp_path / f"{i}.npy" for i in range(12)]):
        joined = mm.from_npy_stack(paths)
        np.testing.assert_array_equal(joined.compute(scheduler="sync"), np.concatenate(arrays))
        stacked = mm.from_npy_stack(paths, new_axis=True, axis=-1)
        np.testing.assert_array_equal(stacked.compute(scheduler="sync"), np.stack(arrays, axis=-1))


def test_a_stack_takes_no_name_by_which_one_file_would_be_read_for_all(tmp_path):
    for i in range(2):
        np.save(tmp_path / f"{i}.npy", np.full(3, i))
    with pytest.raises(TypeError, match="unexpected keyword argument 'name'"):
        mm.from_npy_stack(tmp_path, name="both")


@pytest.mark.parametrize("dtype", ["S3", "U2", ">U2", "V5", ">f8", ">M8[D]", [("a", ">i2")]])
def test_a_single_element_keeps_its_dtype(tmp_path, dtype):
    array = np.arange(3).astype("S1" if np.dtype(dtype).kind in "SU" else "i8").astype(dtype)
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy", device="cpu")
    assert x[1].compute(scheduler="sync") == array[1]
    y = da.stack([x[1]]).compute(scheduler="sync")
    assert (y.shape, y[0]) == ((1,), array[1])
    if not NEW_ENGINE:  # it has no new axes yet
        z = x[1, None].compute(scheduler="sync")
        assert (z.dtype, z[0]) == (array.dtype, array[1])


@pytest.mark.parametrize("none", [np.array([], int), np.zeros(0, bool), np.zeros((0,), "u1")])
def test_nothing_is_picked_of_an_empty_axis(tmp_path, none):
    np.save(tmp_path / "empty.npy", np.zeros((0, 3)))
    x = mm.from_npy(tmp_path / "empty.npy", device="cpu")[none]
    assert x.shape == x.compute(scheduler="sync").shape == (0, 3)


def test_a_slice_that_runs_backward_from_before_the_start_is_empty_as_in_numpy(ramp):
    path, array = ramp
    y = mm.from_npy(path, chunks=300, device="cpu")[-1005::-2, ::-1]
    assert y.shape == array[-1005::-2, ::-1].shape == (0, 17)
    assert y.compute(scheduler="sync").shape == (0, 17)


@pytest.mark.skipif(NEW_ENGINE, reason="dask's newer engine has no new axes yet")
def test_new_axes_beside_a_cut_inside_of_elements(tmp_path):
    array = np.arange(24).view([("a", "i8", (3,))]).reshape(4, 2)
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy", device="cpu")["a"]
    index = (slice(2), None, 1, slice(1, 3))
    np.testing.assert_array_equal(x[index].compute(scheduler="sync"), array["a"][index])


def test_a_stack_opens_each_file_once(tmp_path, monkeypatch):
    for i in range(3):
        np.save(tmp_path / f"{i}.npy", np.zeros((2, 3), "f4"))
    opened, open_npy = [], stacks.opening.open_npy

    def recording(path, **options):
        opened.append(path)
        return open_npy(path, **options)

    monkeypatch.setattr(stacks.opening, "open_npy", recording)
    mm.from_npy_stack(tmp_path)
    assert opened == [str(tmp_path / f"{i}.npy") for i in range(3)]


def test_files_that_do_not_fit_are_named(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3), "f4"))
    np.save(tmp_path / "b.npy", np.zeros((5, 3), "f4"))
    assert mm.from_npy_stack(tmp_path).shape == (7, 3)
    with pytest.raises(mm.LayoutError, match=r"b.npy: its shape \(5, 3\) .*a.npy"):
        mm.from_npy_stack(tmp_path, new_axis=True)
    np.save(tmp_path / "b.npy", np.zeros((5, 3), "f8"))
    with pytest.raises(mm.LayoutError, match=r"b.npy: its dtype float64 .* float32 of .*a.npy"):
        mm.from_npy_stack(tmp_path)
    with pytest.raises(FileNotFoundError, match="no file matches"):
        mm.from_npy_stack(tmp_path / "*.dat")


def _truncate(path):
    os.truncate(path, 1000)


def _replace(path):
    np.save(path + ".new.npy", np.zeros((1000, 17), "f4"))
    os.replace(path + ".new.npy", path)


@pytest.mark.parametrize("io", ["auto", "mmap", "pread", "direct"])
@pytest.mark.parametrize("harm", [_truncate, _replace, os.unlink])
def test_a_changed_file_is_a_stale_file(ramp, harm, io):
    path, _ = ramp
    x = mm.from_npy(path, chunks=300, io=io)
    harm(path)
    with pytest.raises(mm.StaleFileError, match=r"ramp\.npy"):
        x.sum().compute(scheduler="threads")


@pytest.mark.parametrize("io", ["auto", "mmap", "pread"])
@pytest.mark.parametrize("harm", [_replace, os.unlink])
def test_live_blocks_keep_the_bytes_of_the_old_file(ramp, harm, io):
    path, array = ramp
    x = mm.from_npy(path, chunks=300, io=io).persist(scheduler="sync")
    harm(path)
    np.testing.assert_array_equal(x.compute(scheduler="sync"), array)


def test_read_blocks_survive_truncation(ramp):
    path, array = ramp
    x = mm.from_npy(path, chunks=300, io="pread").persist(scheduler="sync")
    _truncate(path)
    np.testing.assert_array_equal(x.compute(scheduler="sync"), array)


@pytest.mark.skipif(NEW_ENGINE, reason="this is the other engine's run")
def test_both_engines_agree():
    assert_passes_with_newer_engine(__file__)

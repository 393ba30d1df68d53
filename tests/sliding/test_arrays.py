"""Sliding windows over files and over any dask array, judged by NumPy, dask, xarray and pandas."""

import math
import os

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mmchunks as mm
from mmchunks.sliding import arrays
from tests.engines import assert_passes_with_newer_engine

NEW_ENGINE = bool(dask.config.get("array.query-planning"))
NAMES = ["sum", "mean", "min", "max", "std", "var", "ptp", "any", "all", "median"]


def judge(array, windows, steps, function):
    """The slow obvious way: every window, reduced by NumPy."""
    axes = tuple(windows)
    view = np.lib.stride_tricks.sliding_window_view(array, tuple(windows.values()), axes)
    for axis, step in steps.items():
        view = view[(slice(None),) * axis + (slice(None, None, step),)]
    inner = tuple(range(-len(axes), 0))
    return function(view, axis=inner if len(axes) > 1 else -1)


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    axes = sorted(draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=2)))
    windows = {axis: draw(st.integers(1, shape[axis])) for axis in axes}
    steps = {axis: draw(st.integers(1, 5)) for axis in axes}
    dtype = draw(st.sampled_from(["<f4", ">f8", "<i2", "u1", "<c8", "?"]))
    array = np.random.default_rng(draw(st.integers(0, 99))).normal(0, 50, shape).astype(dtype)
    array = np.asarray(array, order=draw(st.sampled_from(["C", "F"])))
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    return array, windows, steps, chunks


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("slide") / "x.npy"


@settings(max_examples=120)
@given(case=cases(), name=st.sampled_from(["sum", "mean", "min", "max", "std", "ptp", "any"]))
def test_all_ways_give_the_bits_of_one_and_the_values_of_numpy(path, case, name):
    array, windows, steps, chunks = case
    assume(not (array.dtype == bool and name == "ptp"))  # NumPy has no such subtraction
    path.unlink(missing_ok=True)
    np.save(path, array)
    expected = judge(array, windows, steps, getattr(np, name))
    in_file = mm.sliding_window(path, windows, name, step=steps, device="cpu")
    results = [in_file, mm.sliding_window(mm.open_npy(path), windows, name, step=steps, chunks=3)]
    results.append(mm.sliding_window(mm.from_npy(path, chunks=chunks), windows, name, step=steps))
    by_dask = da.from_array(array, chunks=chunks)
    results.append(mm.sliding_window(by_dask, windows, name, step=steps))
    computed = [result.compute(scheduler="sync") for result in results]
    for result, values in zip(results, computed, strict=True):
        assert result.dtype == values.dtype == expected.dtype
        assert result.shape == values.shape == expected.shape
        np.testing.assert_array_equal(values, computed[0])  # whichever way, bit for bit
    if expected.dtype.kind in "iub":
        np.testing.assert_array_equal(computed[0], expected)
    else:
        scale = 2 * float(np.abs(array).max())
        single = expected.dtype in (np.float32, np.complex64)
        tolerance = (1e-5 if single else 1e-12) * (scale * 100 if name == "sum" else scale)
        np.testing.assert_allclose(computed[0], expected, rtol=1e-5, atol=tolerance)


@pytest.mark.parametrize("reduce", [*NAMES, 0.25, np.prod])
def test_every_reduction(ramp, reduce):
    path, array = ramp
    small = array[:60] / 1000
    np.save(path, small)
    function = getattr(np, reduce) if isinstance(reduce, str) else reduce
    if isinstance(reduce, float):
        function = lambda view, axis: np.quantile(view, reduce, axis=axis)
    result = mm.sliding_window(path, {0: 7}, reduce, step=2, chunks=(5, -1))
    expected = judge(small, {0: 7}, {0: 2}, function)
    np.testing.assert_allclose(result.compute(scheduler="sync"), expected, rtol=1e-4, atol=1e-5)
    assert result.dtype == expected.dtype


def test_windows_may_be_longer_than_ten_chunks(ramp):
    path, array = ramp
    expected = judge(array.astype("f8"), {0: 700}, {0: 1}, np.mean)
    np.save(path, array.astype("f8"))
    for x in (path, mm.from_npy(path, chunks=64), da.from_array(array.astype("f8"), chunks=64)):
        result = mm.sliding_window(x, 700, chunks=50).compute(scheduler="sync")
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_peers_agree(tmp_path):
    array = np.random.default_rng(0).normal(0, 1, (500, 3))
    np.save(tmp_path / "x.npy", array)
    ours = mm.sliding_window(tmp_path / "x.npy", 24, "mean", chunks=100).compute(scheduler="sync")
    frame = pd.DataFrame(array).rolling(24).mean().to_numpy()[23:]
    np.testing.assert_allclose(ours, frame, rtol=1e-9, atol=1e-12)
    rolled = xr.DataArray(array, dims=("t", "x")).rolling(t=24).mean().to_numpy()[23:]
    np.testing.assert_allclose(ours, rolled, rtol=1e-9, atol=1e-12)
    if not NEW_ENGINE:  # it has no sliding_window_view yet
        x = da.from_array(array, chunks=100)
        view = da.lib.stride_tricks.sliding_window_view(x, 24, axis=0)
        np.testing.assert_allclose(ours, view.mean(axis=-1).compute(scheduler="sync"), rtol=1e-12)


def test_one_task_a_chunk_and_no_edges(ramp):
    y = mm.sliding_window(ramp[0], 100, "mean", chunks=(90, -1))
    graph = dict(y.optimize().__dask_graph__()) if NEW_ENGINE else dict(y.__dask_graph__())
    assert len(graph) == math.prod(y.numblocks) == 11
    keys = set(graph)
    for task in graph.values():
        assert not keys & set(task.dependencies)


def test_slices_of_a_file_are_read_from_the_file(ramp):
    path, array = ramp
    x = mm.from_npy(path, chunks=100)[100:900, 3:5]
    y = mm.sliding_window(x, {0: 50}, "max", step=10, chunks=(20, -1))
    graph = dict(y.optimize().__dask_graph__()) if NEW_ENGINE else dict(y.__dask_graph__())
    assert len(graph) == 4
    np.testing.assert_array_equal(
        y.compute(scheduler="sync"), judge(array[100:900, 3:5], {0: 50}, {0: 10}, np.max)
    )


def test_names_tell_files_and_windows_apart(ramp):
    path, _ = ramp
    names = {
        mm.sliding_window(path, 10).name,
        mm.sliding_window(path, 11).name,
        mm.sliding_window(path, 10, "max").name,
        mm.sliding_window(path, 10, step=2).name,
    }
    assert len(names) == 4
    assert mm.sliding_window(path, 10).name in names
    os.utime(path, ns=(1, 1))
    assert mm.sliding_window(path, 10).name not in names


def test_what_cannot_be_is_a_sentence(ramp):
    path, _ = ramp
    with pytest.raises(mm.PlanError, match=r"1000 rows, fewer than the 1001"):
        mm.sliding_window(path, 1001)
    with pytest.raises(mm.PlanError, match="no reduction is named 'mode'"):
        mm.sliding_window(path, 3, "mode")
    with pytest.raises(mm.PlanError, match="axis 2"):
        mm.sliding_window(path, {2: 3})
    with pytest.raises(mm.PlanError, match="window must be a whole number"):
        mm.sliding_window(path, 2.5)
    with pytest.raises(mm.PlanError, match="step must be a whole number"):
        mm.sliding_window(path, {0: 2}, step={0: 1.5})
    with pytest.raises(mm.PlanError, match="x is a ndarray; pass a path"):
        mm.sliding_window(np.zeros(5), 2)
    with pytest.raises(mm.PlanError, match="fewer than"):
        mm.sliding_window(da.ones(5), 6)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"window": "5"}, "window must be a whole number"),
        ({"window": {0: 2.5}}, "window must be a whole number"),
        ({"window": {"t": 2}}, "window must be a whole number"),
        ({"step": None}, "step must be a whole number"),
        ({"x": np.ones(5)}, r"x is a ndarray; pass a path, a Source or a dask array"),
        ({"chunks": 0}, "never fill"),
        ({"chunks": {2: 5}}, "no axis 2"),
        ({"chunks": ((10, 9), (17,))}, "add up to 19"),
    ],
)
def test_a_request_that_cannot_be_read_says_what_to_write(ramp, change, sentence):
    for x in (ramp[0], da.from_array(ramp[1], chunks=100)):
        with pytest.raises(mm.PlanError, match=sentence):
            mm.sliding_window(**{"x": x, "window": 3, **change})


@pytest.mark.parametrize("chunks", [None, -1, {-1: 5}, {0: 100}, np.array([100, 5]), "2 KiB"])
def test_chunks_mean_the_same_from_a_file_and_from_dask(ramp, chunks):
    x = mm.from_npy(ramp[0], chunks=150, device="cpu")
    found = mm.sliding_window(x, 3, chunks=chunks).chunks
    assert found == mm.sliding_window(da.from_array(ramp[1]), 3, chunks=chunks).chunks


def test_axes_of_no_rows_slide_to_nothing(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((10, 0)))
    assert mm.sliding_window(tmp_path / "x.npy", 3).compute(scheduler="sync").shape == (8, 0)


@pytest.mark.parametrize("first", [0, 1])
def test_a_first_chunk_that_is_short_or_empty_sets_no_measure(first):
    array = np.arange(1000.0)
    x = da.from_array(array, chunks=((first, 500, 500 - first),))
    y = mm.sliding_window(x, 3, "sum", step=2)
    assert len(y.chunks[0]) <= 2
    np.testing.assert_array_equal(y.compute(scheduler="sync"), judge(array, {0: 3}, {0: 2}, np.sum))


def test_a_callable_may_need_the_whole_window(ramp):
    def steepest(windows, axis):
        return np.diff(windows, axis=axis).max(axis=axis)

    for x in (ramp[0], da.from_array(ramp[1], chunks=100)):
        found = mm.sliding_window(x, 5, steepest).compute(scheduler="sync")
        np.testing.assert_array_equal(found, judge(ramp[1], {0: 5}, {}, steepest))


def test_a_changed_file_is_stale(ramp):
    y = mm.sliding_window(ramp[0], 10)
    os.truncate(ramp[0], 3000)
    with pytest.raises(mm.StaleFileError, match=r"ramp\.npy"):
        y.compute(scheduler="threads")


def test_chunks_weigh_the_halo(ramp):
    with dask.config.set({"array.chunk-size": "16 KiB"}):
        y = mm.sliding_window(ramp[0], 40)
        rows = y.chunks[0][0]
    assert (rows + 39) / rows < 1.1
    assert math.prod(y.numblocks) > 1
    assert (rows + 39) * 17 * 4 <= arrays._GROWTH * 16 * 1024


@pytest.mark.skipif(NEW_ENGINE, reason="this is the other engine's run")
def test_both_engines_agree():
    assert_passes_with_newer_engine(__file__)


@pytest.mark.parametrize("reduce", ["mean", "std"])
def test_steps_longer_than_windows_give_the_same_bits_whatever_the_chunks(tmp_path, reduce):
    np.save(tmp_path / "x.npy", np.random.default_rng(3).normal(size=(100, 80)))
    made = [
        mm.sliding_window(
            tmp_path / "x.npy", {0: 10, 1: 12}, reduce, step={0: 40, 1: 30}, chunks=chunks,
            device="cpu",
        ).compute()
        for chunks in (-1, 1, 2)
    ]  # fmt: skip
    assert made[0].tobytes() == made[1].tobytes() == made[2].tobytes()
    (found,) = mm.sliding_window(
        tmp_path / "x.npy", 90, reduce, step=10**30, device="cpu"
    ).compute()
    assert found.shape == (80,)

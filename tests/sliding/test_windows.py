"""Windows, judged by numpy's own windows reduced one by one, and by bottleneck and pandas."""

import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import bottleneck
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from mmchunks.errors import PlanError
from mmchunks.sliding import compiled, sums
from mmchunks.sliding.reductions import MERGING, as_function, result_dtype
from mmchunks.sliding.windows import as_windows, reduce_windows, window_count

EXACT = ["min", "max", "ptp", "any", "all", "median"]
REDUCTIONS = [*MERGING, "median", 0.25]
FLOATS = ["f2", "<f4", ">f4", "f8", "c8", "c16", "g"]
OTHERS = ["?", "i1", "u2", ">i4", "i8", "u8", "m8[s]", "M8[D]"]


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    module = pytest.importorskip(request.param)
    if request.param == "cupy" and module.cuda.runtime.getDeviceCount() == 0:
        pytest.skip("no CUDA device")
    return module


def host(array):
    return array.get() if hasattr(array, "get") else array


def judge(block, windows, steps, reduce):
    """Reduce numpy's windows directly."""
    view = sliding_window_view(block, tuple(windows.values()), axis=tuple(windows))
    view = view[tuple(slice(None, None, steps.get(axis, 1)) for axis in range(block.ndim))]
    axis = -1 if len(windows) == 1 else tuple(range(-len(windows), 0))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return as_function(np, reduce)(view, axis=axis)


def filled(rng, shape, dtype):
    """Numbers of every size that `dtype` takes a sum of."""
    dtype = np.dtype(dtype)
    if dtype.kind in "fc":
        spread = 1 if dtype.itemsize == 2 else 4
        x = rng.normal(size=shape) * 10.0 ** rng.integers(-spread, spread, size=shape)
        return (x * (1 - 0.5j) if dtype.kind == "c" else x).astype(dtype)
    if dtype.kind in "mM":
        return rng.integers(-(10**6), 10**6, size=shape).astype(dtype)
    return rng.integers(0, 2**15, size=shape).astype(dtype)


def assert_close(found, wanted, block, windows, reduce):
    """Exact where nothing is rounded, else within some roundings of the largest partial sum."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if found.dtype.kind not in "fc" or reduce in EXACT:
        np.testing.assert_array_equal(found, wanted)
        return
    if not found.size:
        return
    power = 2 if reduce == "var" else 1
    largest = np.abs(block.astype("G")).max() if block.size else 0
    elements = np.prod(list(windows.values())) if reduce == "sum" else 1
    eps = np.finfo(found.dtype).eps
    atol = np.longdouble(largest) ** power * elements * eps * 8
    if reduce == "std":  # the root of a variance that is off by eps
        atol = largest * np.sqrt(np.longdouble(eps) * 8)
    np.testing.assert_allclose(
        found.astype("G"), wanted.astype("G"), rtol=float(eps) * 8, atol=atol
    )


@st.composite
def cases(draw, dtypes):
    ndim = draw(st.integers(1, 3))
    shape = tuple(draw(st.lists(st.integers(1, 12), min_size=ndim, max_size=ndim)))
    axes = draw(st.lists(st.integers(0, ndim - 1), min_size=1, max_size=ndim, unique=True))
    long = draw(st.booleans())
    if long:
        shape = tuple(
            draw(st.integers(300, 900)) if a == axes[0] else min(n, 3) for a, n in enumerate(shape)
        )
    windows = {axis: draw(st.integers(1, shape[axis])) for axis in axes}
    steps = {axis: draw(st.integers(1, 6)) for axis in axes}
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    block = filled(rng, shape, draw(st.sampled_from(dtypes)))
    layout = draw(st.sampled_from(["C", "F", "strided", "backwards"]))
    if layout == "strided":
        block = np.repeat(block, 2, axis=-1)[..., ::2]
    elif layout == "backwards":
        block = np.ascontiguousarray(block[::-1])[::-1]
    else:
        block = np.asarray(block, order=layout)
    return block, windows, steps


@settings(max_examples=300)
@given(cases(FLOATS + OTHERS), st.sampled_from(REDUCTIONS))
def test_windows_are_those_of_numpy(case, reduce):
    block, windows, steps = case
    try:
        result_dtype(block.dtype, reduce)
    except PlanError:
        with pytest.raises(PlanError, match="numpy has no"):
            reduce_windows(block, windows, steps, reduce, origin={})
        return
    before = block.copy()
    found = reduce_windows(block, windows, steps, reduce, origin={})
    assert_close(found, judge(block, windows, steps, reduce), block, windows, reduce)
    np.testing.assert_array_equal(block, before)
    assert not np.shares_memory(found, block)


@pytest.mark.parametrize("reduce", ["mean", "max", "std", 0.5])
@pytest.mark.parametrize("shape", [(700, 6), (3, 700), (5, 400, 4)])
def test_numpy_and_cupy_reduce_alike(xp, shape, reduce):
    block = filled(np.random.default_rng(3), shape, "f4")
    axis = int(np.argmax(shape))
    windows, steps = {axis: 300}, {axis: 7}
    found = host(reduce_windows(xp.asarray(block), windows, steps, reduce, origin={}))
    assert_close(found, judge(block, windows, steps, reduce), block, windows, reduce)


@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max"])
@pytest.mark.parametrize("length", [1, 10, 300, 5000])
def test_bottleneck_moves_to_the_same_place(reduce, length):
    x = np.random.default_rng(5).normal(size=(20_000, 2))
    found = reduce_windows(x, {0: length}, {0: 1}, reduce, origin={})
    wanted = getattr(bottleneck, f"move_{reduce}")(x, length, axis=0)[length - 1 :]
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max", "var", "std", "median"])
def test_pandas_rolls_to_the_same_place(reduce):
    x = np.random.default_rng(6).normal(size=3000)
    found = reduce_windows(x, {0: 365}, {0: 1}, reduce, origin={})
    rolling = pd.Series(x).rolling(365)
    wanted = (
        getattr(rolling, reduce)(ddof=0) if reduce in {"var", "std"} else getattr(rolling, reduce)()
    )
    np.testing.assert_allclose(found, wanted[364:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("length", [3, 300])
def test_a_nan_stays_in_the_windows_that_hold_it(reduce, length):
    block = np.random.default_rng(7).normal(size=(2000, 2))
    block[500, 0], block[900, 1], block[1500, 0], block[1600, 0] = np.nan, np.inf, np.inf, -np.inf
    found = reduce_windows(block, {0: length}, {0: 1}, reduce, origin={})
    wanted = judge(block, {0: length}, {0: 1}, reduce)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.fixture(scope="module", params=["f4", "f8"])
def badly_scaled(request):
    """Ten million rows over 24 decades; a running sum would carry what the first leave behind."""
    rng = np.random.default_rng(8)
    rows = 10_000_000
    x = rng.standard_normal(rows) * 10.0 ** rng.integers(-12, 12, size=rows)
    x[: rows // 10] *= 1e12
    return x.astype(request.param)


@pytest.mark.parametrize(("length", "step"), [(10, 1), (1000, 1), (100_000, 1), (1000, 100)])
def test_error_does_not_drift_along_ten_million_badly_scaled_rows(badly_scaled, length, step):
    found = reduce_windows(badly_scaled, {0: length}, {0: step}, "sum", origin={})
    assert found.shape == ((len(badly_scaled) - length) // step + 1,)
    some = np.random.default_rng(9).integers(len(found), size=max(300, 2_000_000 // length))
    windows = [badly_scaled[i * step : i * step + length] for i in some]
    truth = np.array([window.sum(dtype=np.longdouble) for window in windows])
    scale = np.array([np.abs(window).sum(dtype=np.longdouble) for window in windows])
    ours = np.abs(found[some] - truth) / scale
    numpys = np.abs(np.array([window.sum() for window in windows]) - truth) / scale
    assert np.sqrt(np.mean(ours**2)) <= 2 * np.sqrt(np.mean(numpys**2))
    assert ours.max() <= 2 * numpys.max()


def test_a_small_variance_on_a_large_mean_is_as_exact_as_numpys():
    x = 1e9 + np.random.default_rng(9).normal(size=5000)
    found = reduce_windows(x, {0: 1000}, {0: 1}, "var", origin={})
    exact = sliding_window_view((x - 1e9).astype("g"), 1000).var(axis=-1)
    direct = sliding_window_view(x, 1000).var(axis=-1)
    assert np.abs(found - exact).max() <= 2 * np.abs(direct - exact).max()


@settings(max_examples=60)
@given(
    st.integers(2, 900),
    st.integers(1, 200),
    st.integers(0, 99),
    st.integers(-3, 9),
    st.integers(-3, 3),
    st.sampled_from([1, 1, 7, 50]),
    st.integers(0, 2**32),
)
def test_variances_are_as_exact_as_numpys(length, windows, origin, offset, scale, step, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(length + windows - 1, 2)) * 10.0**scale + 10.0**offset
    x[rng.random(x.shape) < 0.02] *= 1e3  # windows of which a few elements are most
    view = sliding_window_view(x, length, axis=0)[::step]
    exact = view.astype("g").var(axis=-1)
    found = reduce_windows(x, {0: length}, {0: step}, "var", origin={0: origin * step})
    error, numpys = np.abs(found - exact), np.abs(view.var(axis=-1) - exact)
    assert (error <= np.maximum(4 * numpys.max(), exact * 1e-14)).all()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
@pytest.mark.parametrize("length", [2, 31, 32, 1000])
def test_what_is_constant_has_no_variance(dtype, length):
    x = np.full(3000, 0.1 if dtype != "i2" else 1000, dtype)
    assert np.abs(reduce_windows(x, {0: length}, {0: 1}, "std", origin={})).max() <= 1e-16


def test_deviations_beyond_the_roots_of_the_largest_number_are_infinite():
    x = np.zeros(200)
    x[100] = 1e200
    with np.errstate(over="ignore"):
        wanted = sliding_window_view(x, 40).var(axis=-1)
    np.testing.assert_array_equal(reduce_windows(x, {0: 40}, {0: 1}, "var", origin={}), wanted)


@given(
    st.data(),
    st.sampled_from(["f4", "f8"]),
    st.sampled_from(["sum", "mean", "var", "max"]),
    st.sampled_from([1, 2, 7]),
)
def test_a_window_has_the_same_bits_whatever_the_cut(data, dtype, reduce, step):
    rows, columns = 2500, 3
    x = filled(np.random.default_rng(data.draw(st.integers(0, 99))), (rows, columns), dtype)
    length = data.draw(st.sampled_from([2, 32, 33, 100, 300, 1001, 2000]))
    whole = reduce_windows(x, {0: length}, {0: step}, reduce, origin={})
    first = data.draw(st.integers(0, len(whole) - 1))
    stop = data.draw(st.integers(first + 1, len(whole)))
    column = data.draw(st.integers(0, columns - 1))
    cut = x[first * step : (stop - 1) * step + length, column : column + 1]
    cut = np.asarray(cut, order=data.draw(st.sampled_from("CF")))
    part = reduce_windows(cut, {0: length}, {0: step}, reduce, origin={0: first * step})
    assert part.tobytes() == whole[first:stop, column].tobytes()


@settings(max_examples=100)
@given(
    st.sampled_from(["f4", "f8"]),
    st.sampled_from([(1, 1), (3, 1), (1, 2), (2, 16), (1, 37)]),
    st.integers(1, 2200) | st.integers(1, 40),
    st.integers(0, 5000),
    st.integers(1, 1300),
    st.sampled_from([1, 7]),
)
def test_numba_gives_the_same_bits_as_numpy(dtype, around, length, origin, windows, divisor):
    outer, inner = around
    rng = np.random.default_rng(length)
    x = filled(rng, (outer, length + windows - 1, inner), dtype)
    x[rng.random(x.shape) < 0.3] = -0.0
    wanted = sums.unit_sums(x, length, origin) / x.dtype.type(divisor)
    found = compiled.window_sums(x, length, origin, divisor)
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("length", [9, 16, 1000, 70_000])
@pytest.mark.parametrize("inner", [1, 3])
def test_numba_gives_the_same_bits_over_several_batches(dtype, length, inner):
    x = filled(np.random.default_rng(length), (1, length + 150_000, inner), dtype)
    wanted = sums.unit_sums(x, length, 5)
    np.testing.assert_array_equal(compiled.window_sums(x, length, 5), wanted)
    x[0, 777], x[0, 100_000], x[0, 100_900] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        wanted = sums.unit_sums(x, length, 5)
    np.testing.assert_array_equal(compiled.window_sums(x, length, 5), wanted)


def test_what_is_compiled_touches_nothing_beyond_its_arrays():
    script = Path(__file__).parents[1] / "guarded_sums.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no element was touched" in done.stdout


def test_both_sum_by_the_same_units():
    assert compiled.UNIT == sums.UNIT


@settings(max_examples=60)
@given(
    st.sampled_from(["f4", "f8"]),
    st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 40)),
    st.integers(1, 700),
    st.integers(0, 9),
)
def test_numba_sums_runs_as_numpy_sums_what_lies_side_by_side(dtype, shape, length, gap):
    outer, runs, inner = shape
    x = filled(np.random.default_rng(length), (outer, runs * (length + gap), inner), dtype)
    view = x.reshape(outer, runs, length + gap, inner).transpose(0, 1, 3, 2)[..., :length]
    assert sums._adds_runs(x.dtype)
    found = sums._by_halves(view)
    np.testing.assert_array_equal(found, np.ascontiguousarray(view).sum(axis=-1))


@pytest.fixture
def forget_numba():
    """Forget, before and after, what is known of numba."""
    known = (sums._compiled, sums._adds_units, sums._adds_runs)
    for about in known:
        about.cache_clear()
    yield
    for about in known:
        about.cache_clear()


@pytest.fixture
def without_numba(monkeypatch, forget_numba):
    monkeypatch.setitem(sys.modules, "mmchunks.sliding.compiled", None)
    monkeypatch.delattr("mmchunks.sliding.compiled", raising=False)


@pytest.mark.parametrize("shape", [(2**20,), (2**14, 70), (3, 2**16, 6), (300, 5000)])
@pytest.mark.parametrize(
    ("length", "step"), [(10, 1), (24, 1), (100, 1), (34, 2), (200, 7), (200, 50)]
)
def test_without_numba_large_blocks_have_the_same_bits(request, shape, length, step):
    x = np.random.default_rng(11).normal(size=shape)
    x[: shape[0] // 3] = -0.0
    axis = 0 if shape[0] > 3 else 1
    assert sums.compiles(x)
    with_numba = reduce_windows(x, {axis: length}, {axis: step}, "mean", origin={axis: 21})
    request.getfixturevalue("without_numba")
    assert not sums.compiles(x)
    without = reduce_windows(x, {axis: length}, {axis: step}, "mean", origin={axis: 21})
    assert with_numba.tobytes() == without.tobytes()


def _fail(*_args):
    msg = "as_pointer"  # say, of another llvmlite
    raise AttributeError(msg)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [(_fail, "AttributeError: as_pointer"), (lambda x, *_: x, "another order")],
)
def test_a_numba_that_cannot_be_trusted_is_done_without(monkeypatch, forget_numba, broken, reason):
    x = np.random.default_rng(12).normal(size=2**20)
    wanted = reduce_windows(x, {0: 100}, {0: 1}, "sum", origin={})
    sums._adds_units.cache_clear()
    monkeypatch.setattr(compiled, "window_sums", broken)
    with pytest.warns(RuntimeWarning, match=f"do without numba.*{reason}"):
        found = reduce_windows(x, {0: 100}, {0: 1}, "sum", origin={})
    np.testing.assert_array_equal(found, wanted)


def _in_records(x):
    """Lay `x` out with three bytes between its rows."""
    records = np.zeros(len(x), [("before", "u1"), ("x", x.dtype, x.shape[1:]), ("after", "u2")])
    records["x"] = x
    return records["x"]


def _read_only(x):
    x.flags.writeable = False
    return x


LAYOUTS = {
    "read-only": _read_only,
    "backwards": lambda x: np.ascontiguousarray(x[::-1])[::-1],
    "mirrored": lambda x: np.ascontiguousarray(x[:, ::-1])[:, ::-1],
    "every other column": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "every other row": lambda x: np.repeat(x, 2, axis=0)[::2],
    "in records": _in_records,
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "Fortran": np.asfortranarray,
    "big-endian": lambda x: x.astype(x.dtype.newbyteorder(">")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("length", "step"), [(10, 1), (300, 1), (300, 9)])
def test_large_blocks_may_lie_in_memory_as_they_like(layout, dtype, length, step):
    x = np.random.default_rng(13).normal(size=(2**14, 65)).astype(dtype)
    laid = LAYOUTS[layout](x)
    assert sums.compiles(x.copy())
    wanted = reduce_windows(np.array(laid, dtype), {0: length}, {0: step}, "sum", origin={})
    found = reduce_windows(laid, {0: length}, {0: step}, "sum", origin={})
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        reduce_windows(laid.T, {1: length}, {1: step}, "sum", origin={}), wanted.T
    )


@pytest.mark.parametrize("reduce", [*MERGING, "median"])
@pytest.mark.parametrize("axis", [0, 1])
def test_memory_is_a_small_multiple_of_the_block(reduce, axis):
    shape = [300, 300]
    shape[axis] = 7000
    block = np.ones(shape)
    length = 5000 if reduce != "median" else 10  # never the window axis: 5000 times the block
    step = 1 if reduce != "median" else 5
    reduce_windows(block[:, :300], {axis: 200}, {axis: 1}, "sum", origin={})
    tracemalloc.start()
    reduce_windows(block, {axis: length}, {axis: step}, reduce, origin={})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 5 * block.nbytes


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "std"])
@pytest.mark.parametrize(("length", "step"), [(1000, 1), (10**6, 1), (10**6, 3), (1_990_000, 1)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_memory_is_a_small_multiple_of_one_column(reduce, length, step, dtype):
    block = np.ones(2_000_000, dtype)
    of_result = result_dtype(block.dtype, reduce).itemsize * len(block)
    reduce_windows(block, {0: 200}, {0: 1}, reduce, origin={})
    tracemalloc.start()
    reduce_windows(block, {0: length}, {0: step}, reduce, origin={})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    few = 5 if reduce != "std" or step == 1 else 11  # three planes of doubles for every third row
    assert peak <= few * max(block.nbytes, of_result) + 2**22


def test_a_function_sees_windows_as_numpys_reductions_do():
    block = np.random.default_rng(12).normal(size=(50, 40))
    calls = []

    def span(windows, axis):
        calls.append(windows.shape)
        return windows.max(axis=axis) - windows.min(axis=axis)

    found = reduce_windows(block, {0: 7, 1: 3}, {0: 2, 1: 1}, span, origin={})
    np.testing.assert_array_equal(found, judge(block, {0: 7, 1: 3}, {0: 2, 1: 1}, "ptp"))
    assert calls[0][-2:] == (7, 3)
    np.testing.assert_array_equal(
        reduce_windows(block, {1: 5}, {1: 1}, span, origin={}),
        judge(block, {1: 5}, {1: 1}, "ptp"),
    )


def test_empty_axes_stay_empty():
    for reduce in REDUCTIONS:
        found = reduce_windows(np.zeros((0, 5), "f4"), {1: 3}, {1: 1}, reduce, origin={})
        assert (found.shape, found.dtype) == ((0, 3), result_dtype(np.dtype("f4"), reduce))


def test_windows_that_do_not_fit_are_told_with_both_numbers():
    with pytest.raises(PlanError, match="axis 1 has 5 rows, fewer than the 6 of one window"):
        as_windows((9, 5), {1: 6}, 1)
    with pytest.raises(PlanError, match="3 rows, fewer than the 4"):
        reduce_windows(np.zeros(3), {0: 4}, {0: 1}, "sum", origin={})
    with pytest.raises(PlanError, match="axis 2, the array has 1 axes"):
        as_windows((9,), {2: 6}, 1)
    with pytest.raises(PlanError, match="axis 0 twice"):
        as_windows((9,), {0: 6, -1: 6}, 1)
    with pytest.raises(PlanError, match="step names axis 1, window only"):
        as_windows((9, 9), {0: 6}, {1: 2})
    with pytest.raises(PlanError, match="must both be 1 or more"):
        as_windows((9,), 3, 0)
    with pytest.raises(PlanError, match="no axis"):
        as_windows((9,), {}, 1)
    with pytest.raises(PlanError, match=r"no reduction is named 'avg'; write one of sum, mean"):
        result_dtype(np.dtype("f4"), "avg")
    with pytest.raises(PlanError, match="Python objects"):
        reduce_windows(np.zeros(3, object), {0: 2}, {0: 1}, "var", origin={})
    with pytest.raises(PlanError, match="window must be a whole number"):
        as_windows((9,), np.array([3]), 1)
    for wrong in (1.5, None, [1], 0.5j, b"sum", True, np.True_, float("nan")):
        with pytest.raises(PlanError, match="no reduction is named"):
            result_dtype(np.dtype("f4"), wrong)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 9))
def test_windows_are_counted_as_numpy_counts_them(rows, length, step):
    if rows < length:
        with pytest.raises(PlanError):
            window_count(rows, length, step, axis=0)
        return
    assert window_count(rows, length, step, axis=0) == len(
        sliding_window_view(np.zeros(rows), length)[::step]
    )


def test_a_function_that_does_not_reduce_its_axis_is_told_so():
    x = np.random.default_rng(14).normal(size=(40, 3))
    for careless in (
        lambda windows, axis: np.percentile(windows, 90),  # noqa: ARG005  the fault itself
        lambda windows, axis: windows,  # noqa: ARG005
    ):
        with pytest.raises(PlanError, match="it must reduce the last axis"):
            reduce_windows(x, {0: 5}, {0: 1}, careless, origin={})


@pytest.mark.parametrize("reduce", ["sum", "mean", "std", "max"])
@pytest.mark.parametrize(
    ("windows", "steps"), [({0: 10, 1: 12}, {0: 40, 1: 30}), ({0: 1}, {0: 21})]
)
def test_a_cut_with_one_window_gives_its_bits(reduce, windows, steps):
    x = np.random.default_rng(15).normal(size=(100, 80))
    x[:, ::2] = -0.0
    whole = reduce_windows(x, windows, steps, reduce, origin={})
    for first in range(len(whole)):
        begin = first * steps[0]
        cut = x[begin : begin + windows[0]]
        part = reduce_windows(cut, windows, steps, reduce, origin={0: begin})
        assert part.tobytes() == whole[first : first + 1].tobytes()


@pytest.mark.parametrize("length", [7, 32, 40])
@pytest.mark.parametrize("step", [1, 3, 40])
def test_deviations_of_the_largest_numbers_are_numpys(length, step):
    x = np.full(120, 1e301)
    with np.errstate(over="ignore"):
        wanted = judge(x, {0: length}, {0: step}, "std")
    found = reduce_windows(x, {0: length}, {0: step}, "std", origin={})
    assert np.isfinite(found).all() or not np.isfinite(wanted).all()


def test_steps_may_be_longer_than_anything():
    x = np.arange(10.0)
    for reduce in ("sum", "max", "std", "median"):
        found = reduce_windows(x, {0: 3}, {0: 10**30}, reduce, origin={})
        assert found == [as_function(np, reduce)(x[:3], axis=0)]


def test_a_function_is_not_warned_of_when_it_is_tried():
    def roughness(windows, axis):
        return np.abs(np.diff(windows, axis=-1)).mean(axis=axis)

    assert result_dtype(np.dtype("f4"), roughness) == np.float32

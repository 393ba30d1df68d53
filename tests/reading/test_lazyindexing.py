"""Whatever stands between the brackets of a lazy array means what it means to NumPy."""

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mmchunks as mm
from tests.engines import assert_passes_with_newer_engine

NEW_ENGINE = bool(dask.config.get("array.query-planning", False))
classic = pytest.mark.skipif(NEW_ENGINE, reason="dask's newer engine lacks it")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("indexing")


def lazy(folder, array, chunks):
    path = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(path, array)
    return mm.from_npy(path, chunks=chunks, device="cpu")


def assert_equal(found, wanted):
    found = found.compute(scheduler="sync")
    assert np.shape(found) == np.shape(wanted)
    if np.ndim(wanted):  # a scalar of NumPy's has no byte order, and text no width of its own
        assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)


def cuts(length):
    """Chunks of one axis, empty ones too."""
    stops = st.lists(st.integers(0, length), max_size=3).map(sorted)
    return stops.map(lambda stops: tuple(np.diff([0, *stops, length]).tolist()))


bounds = st.none() | st.integers(-9, 9)
steps = st.none() | st.integers(-4, 4).filter(bool)
slices = st.builds(slice, bounds, bounds, steps)


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
    chunks = tuple(draw(cuts(length)) for length in shape)
    dtype = draw(st.sampled_from(["i8", ">f4", "U2"]))
    entries = [draw(slices | st.integers(-n, n - 1)) if n else draw(slices) for n in shape]
    listed = draw(st.none() | st.integers(0, len(shape) - 1))
    if listed is not None:
        n = shape[listed]
        numbers = st.lists(st.integers(-n, n - 1), max_size=5) if n else st.just([])
        masks = st.lists(st.booleans(), min_size=n, max_size=n).map(np.array)
        entries[listed] = draw(numbers | masks.map(lambda mask: mask.astype(bool)))
        # Beside a list, an integer counts as a list too, and moves axes to the front.
        entries = [e if not isinstance(e, int) else slice(e, e + 1 or None) for e in entries]
    entries = entries[: draw(st.integers(1, len(entries)))]
    return shape, chunks, dtype, entries, draw(st.lists(st.integers(0, 3), max_size=2))


@given(case=cases())
@settings(max_examples=300)
def test_any_index_gives_what_numpy_gives(folder, case):
    shape, chunks, dtype, entries, news = case
    array = (np.arange(np.prod(shape)).reshape(shape) % 90).astype(dtype)
    for new in [] if NEW_ENGINE else news:
        entries.insert(min(new, len(entries)), None)
    index = tuple(np.asarray(e, np.intp) if isinstance(e, list) else e for e in entries)
    x = lazy(folder, array, chunks)
    assert_equal(x[index], array[index])
    assert_equal(x[::-1][::-1], array)


@given(case=cases(), data=st.data())
@settings(max_examples=100)
def test_an_index_of_an_index_gives_what_numpy_gives(folder, case, data):
    shape, chunks, dtype, entries, _ = case
    array = (np.arange(np.prod(shape)).reshape(shape) % 90).astype(dtype)
    index = tuple(np.asarray(e, np.intp) if isinstance(e, list) else e for e in entries)
    x, wanted = lazy(folder, array, chunks)[index], array[index]
    assume(wanted.ndim)
    again = tuple(data.draw(slices) for _ in wanted.shape)
    assert_equal(x[again], wanted[again])


BACKWARDS = [
    ((5,), ((4, 0, 1),), np.s_[::-1]),
    ((5,), ((4, 0, 1),), np.s_[4:0:-2]),
    ((5,), ((0, 5, 0),), np.s_[-9::-1]),
    ((4, 5), (2, 3), np.s_[[], -9::-1]),
    ((4, 5), (2, 3), np.s_[[1, 3], ::-1]),
    ((4, 5), (2, 3), np.s_[::-2, ::-1]),
]


@pytest.mark.parametrize(("shape", "chunks", "index"), BACKWARDS)
def test_slices_go_backwards_as_numpys_do(folder, shape, chunks, index):
    array = np.arange(np.prod(shape)).reshape(shape)
    index = tuple(np.asarray(e, np.intp) if isinstance(e, list) else e for e in np.index_exp[index])
    assert_equal(lazy(folder, array, chunks)[index], array[index])


@classic
@pytest.mark.parametrize("entry", [np.s_[-9::-1], np.s_[::-1], np.s_[3:0:-2]])
def test_slices_go_backwards_beside_whatever_is_daskss_work(folder, entry):
    array = np.arange(20).reshape(4, 5)
    x = lazy(folder, array, (2, 3))
    mask = array[:, 0] > 3
    assert_equal(x[x[:, 0] > 3, entry], array[mask, entry])
    assert_equal(x[None][:, :, entry], array[None][:, :, entry])
    assert_equal(x[None, ..., None][:, :, entry][..., ::-1], array[None, ..., None][:, :, entry])


@classic
def test_a_lazy_index_stays_lazy_and_means_what_it_says(folder, monkeypatch):
    array = np.arange(6).reshape(1, 6)
    x = lazy(folder, array, (1, 6))
    row = lazy(folder, np.arange(6), 3)

    def never(*_, **__):
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(da.Array, "compute", never)
        patch.setattr(da.Array, "__index__", never)
        found = [
            x[x[:, 0] > 9],
            x[x[:, 0] < 9],
            row[da.from_array(np.array([1]))],
            row[da.flatnonzero(row > 3)],
            row[da.argmax(row)],
            row[da.from_array(np.array(2))],
            x[:, da.from_array(np.array([5, 0]))],
            row[row > 2],
            x[x > 2],
        ]
    wanted = [
        array[:0],
        array,
        np.array([1]),
        np.array([4, 5]),
        np.array(5),
        np.array(2),
        array[:, [5, 0]],
        np.array([3, 4, 5]),
        np.array([3, 4, 5]),
    ]
    for lazily, judge in zip(found, wanted, strict=True):
        assert_equal(lazily, judge)


@pytest.mark.parametrize("index", [np.s_[0.0:2.0], np.s_[0.0:4:2.0], np.s_[np.float64(3) :]])
def test_whole_floats_are_numbers_in_slices_as_they_are_to_dask(folder, index):
    array = np.arange(8).reshape(4, 2)
    whole = slice(*(None if n is None else int(n) for n in (index.start, index.stop, index.step)))
    assert_equal(lazy(folder, array, (3, 1))[index], array[whole])


@classic
def test_functions_that_slice_with_floats_work(folder):
    array = np.arange(20.0).reshape(4, 5)
    x = lazy(folder, array, (2, 3))
    assert_equal(da.repeat(x, 2, axis=0), np.repeat(array, 2, axis=0))
    same = x.map_overlap(lambda block: block, depth=2, boundary="nearest", dtype=x.dtype)
    assert_equal(same, array)


@pytest.mark.parametrize("index", [np.s_[0.5:2], np.s_[::0], np.s_["a":], np.s_[:: float("nan")]])
def test_what_is_no_slice_is_refused(folder, index):
    with pytest.raises((TypeError, ValueError, IndexError)):
        lazy(folder, np.arange(8), 3)[index].compute(scheduler="sync")


@classic
@pytest.mark.parametrize("dtype", ["U2", "S2", ">f4", "M8[D]", "V3", [("a", ">i2")]], ids=str)
def test_one_element_keeps_its_type_among_new_axes(folder, dtype):
    array = np.zeros(2, dtype)
    x = lazy(folder, array, 1)
    for index in ((None, 0, None), (0, None), (None, -1), (None, None, 1, None, None)):
        assert_equal(x[index], array[index])
    assert_equal(x[1][None], array[1:])


def test_numbers_that_are_out_of_bounds_are_refused_and_not_wrapped(folder):
    x = lazy(folder, np.arange(6), 4)
    for number in (2**64 - 1, 2**63, 6):
        with pytest.raises(IndexError, match="out of bounds"):
            x[np.array([number], "u8")].compute(scheduler="sync")
    with pytest.raises(IndexError):
        x[[-7]].compute(scheduler="sync")


@classic
def test_a_plugin_of_dask_that_makes_something_else_of_arrays_is_obeyed(folder):
    path = folder / "plugin.npy"
    np.save(path, np.arange(3))
    with dask.config.set(array_plugins=[lambda array: np.asarray(array.shape)]):
        assert isinstance(mm.from_npy(path, device="cpu"), np.ndarray)


def test_both_engines_agree():
    if NEW_ENGINE:
        pytest.skip("this is the other engine's run")
    assert_passes_with_newer_engine(__file__)

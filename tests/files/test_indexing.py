"""Regions and picks, judged by NumPy's own indexing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mmchunks as mm
from mmchunks.files.indexing import split_index


@st.composite
def arrays_and_indices(draw):
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    named = draw(st.integers(0, len(shape)))
    entries = []
    for length in shape[:named]:
        whole = st.slices(length)
        entries.append(draw(whole | st.integers(-length, length - 1) if length else whole))
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), Ellipsis)
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), None)
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return array, entries[0] if len(entries) == 1 else tuple(entries)


@given(arrays_and_indices())
def test_a_pick_from_a_region_is_what_numpy_picks_from_the_array(case):
    array, index = case
    try:
        judge = array[index]
    except IndexError:  # an integer meets another axis behind the ellipsis
        with pytest.raises(IndexError):
            split_index(index, array.shape)
        return
    region, pick = split_index(index, array.shape)
    np.testing.assert_array_equal(array[region][pick], judge)
    assert np.shape(array[region][pick]) == judge.shape


@given(arrays_and_indices())
def test_a_region_begins_and_ends_with_an_element_that_is_asked_for(case):
    array, index = case
    try:
        judge = np.atleast_1d(array[index])
    except IndexError:
        return
    region, _ = split_index(index, array.shape)
    assert all(part.step is None and 0 <= part.start <= part.stop for part in region)
    if judge.size:
        covered = array[region]
        assert {judge.min(), judge.max()} == {covered.min(), covered.max()}


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        (5, "index 5 is out of bounds for axis 0 with 3 elements"),
        ((0, -5), "index -5 is out of bounds for axis 1 with 4 elements"),
        ((0, 0, 0), "index has 3 entries, the array has 2 axes"),
        ((..., ...), "one ... only"),
        ([0, 1], "index the block instead"),
        (np.array([0, 1]), "index the block instead"),
        ((..., np.ones((3, 4), bool)), "index the block instead"),
        (True, "index the block instead"),
        (1.0, "index the block instead"),
        ("field", "index the block instead"),
    ],
)
def test_an_index_that_is_not_basic_is_an_index_error_that_says_why(index, sentence):
    with pytest.raises(IndexError, match=sentence):
        split_index(index, (3, 4))


def test_integers_of_numpy_are_integers():
    assert split_index(np.int8(-1), (3,)) == ((slice(2, 3),), (0,))


@pytest.mark.parametrize("shape", [(), (6,), (2, 3)])
@pytest.mark.parametrize(
    "index", [(), ..., (...,), 1, (1, ...), (..., 1), (1, 2), (1, 2, ...), (..., None)], ids=str
)
def test_scalars_are_scalars_and_arrays_without_axes_arrays_as_numpys(tmp_path, shape, index):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    np.save(tmp_path / "x.npy", array)
    for read in (mm.open_npy(tmp_path / "x.npy"), mm.open_target(tmp_path / "x.npy")):
        try:
            wanted = array[index]
        except IndexError:
            with pytest.raises(IndexError):
                read[index]
            continue
        if None in np.index_exp[index] and isinstance(read, mm.Target):
            continue
        assert type(read[index]) is type(wanted)
        np.testing.assert_array_equal(read[index], wanted)


def test_an_index_of_many_numbers_does_not_fill_the_error(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(9))
    with pytest.raises(IndexError) as caught:
        mm.open_npy(tmp_path / "x.npy")[list(range(128))]
    assert len(str(caught.value)) < 200

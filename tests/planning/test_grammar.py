"""The meaning of ``chunks=``, judged by dask itself."""

import itertools

import dask
import numpy as np
import pytest
from dask.array.core import normalize_chunks
from dask.utils import parse_bytes
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import PlanError
from mmchunks.files.layout import Layout
from mmchunks.planning.cuts import EvenCuts, ListedCuts, even, listed
from mmchunks.planning.grammar import parse_chunks, parse_nbytes, slabs

TARGET = 5_000


def layout_of(shape, dtype="f4", order="C"):
    return Layout(shape=shape, dtype=np.dtype(dtype), order=order, offset=128)


def cut(chunks, shape, dtype="f4"):
    grid = parse_chunks(chunks, layout_of(shape, dtype), target_nbytes=TARGET)
    return tuple(cuts.sizes() for cuts in grid.cuts)


def judge(chunks, shape, dtype="f4"):
    with dask.config.set({"array.chunk-size": TARGET}):
        return normalize_chunks(chunks, shape, dtype=np.dtype(dtype))


@st.composite
def partitions(draw, length):
    stops = draw(st.lists(st.integers(0, length), max_size=4))
    stops = [0, *sorted(stops), length]
    return tuple(b - a for a, b in itertools.pairwise(stops))


@st.composite
def shapes_and_chunks(draw):
    """An entry of every kind for each axis, mixed."""
    shape = tuple(draw(st.lists(st.integers(1, 300), min_size=1, max_size=4)))
    size = draw(st.sampled_from(["auto", "2 kB", "1KiB"]))
    entries = [
        draw(
            st.one_of(
                st.integers(1, 400),
                st.sampled_from([-1, None, size, np.int64(7), 3.0]),
                partitions(length),
                partitions(length).map(list),
            )
        )
        for length in shape
    ]
    if len(shape) == 1 and draw(st.booleans()):
        return shape, entries[0] if isinstance(entries[0], tuple) else tuple(entries)
    if draw(st.booleans()):
        return shape, dict(enumerate(entries))
    return shape, draw(st.sampled_from([tuple, list]))(entries)


@given(shapes_and_chunks(), st.sampled_from(["u1", "f4", "c16", "S100"]))
def test_entries_of_every_kind_mean_what_dask_says(case, dtype):
    shape, chunks = case
    assert cut(chunks, shape, dtype) == judge(chunks, shape, dtype)


@pytest.mark.parametrize(
    ("chunks", "shape"),
    [
        (10, (30, 5)),
        (-1, (30, 5)),
        ((3, 2), (5,)),
        ([[2, 2], [3, 3]], (4, 6)),
        (np.array([[2, 2], [3, 3]]), (4, 6)),
        ((), ()),
        ((1,), ()),
        (5, ()),
        ((), (0, 0)),
        (10, (0, 5)),
        ((-1, -1), (0, 5)),
        (((0, 5, 0),), (5,)),
        (("auto", "auto"), (3, 10_000)),
        (("auto", 100), (300, 20)),  # dask counts the 100, though the axis has only 20
        ({}, (4, 4)),
    ],
)
def test_the_corners_of_the_grammar_are_those_of_dask(chunks, shape):
    assert cut(chunks, shape) == judge(chunks, shape)


def test_axes_may_be_counted_from_the_end():
    assert cut({-1: 4}, (3, 10)) == ((3,), (4, 4, 2))


def test_none_alone_leaves_all_axes_whole():
    assert cut(None, (3, 10)) == ((3,), (10,))


@pytest.mark.parametrize(("shape", "dtype"), [((0, 5), "f4"), ((7, 5), "V0"), ((5, 0), "f4")])
def test_automatic_axes_of_arrays_without_bytes_are_whole(shape, dtype):
    whole = tuple((length,) for length in shape)
    assert cut(("auto", -1), shape, dtype) == cut("auto", shape, dtype) == whole


@pytest.mark.parametrize(
    ("chunks", "sentence"),
    [
        ((1, 2, 3), "3 entries for the 2 axes"),
        (((3, 3), -1), "add up to 6.*its length is 8"),
        (((9, -1), -1), "lengths >= 0"),
        (((), -1), "empty tuple"),
        ((2.5, -1), "whole numbers"),
        ((float("nan"), -1), "whole numbers"),
        ((0, -1), "never fill axis 0"),
        ((-2, -1), "never fill axis 0"),
        ({2: 3}, "no axis 2 in an array of 2 axes"),
        ({"x": 3}, "no axis 'x'"),
        (("1 kB", "2 kB"), "several sizes"),
        ("fast", "is no number of bytes"),
        (("fast", -1), "is no number of bytes"),
        (object(), "says nothing"),
    ],
)
def test_what_fits_no_shape_is_one_sentence(chunks, sentence):
    with pytest.raises(PlanError, match=sentence):
        cut(chunks, (8, 6))


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=4),
    st.sampled_from(["C", "F"]),
    st.integers(1, 20_000),
)
def test_slabs_are_contiguous_and_as_large_as_the_target_allows(shape, order, target):
    layout = layout_of(tuple(shape), order=order)
    grid = slabs(layout, target)
    assert grid.contiguous
    assert grid.chunk_nbytes <= max(target, layout.itemsize)
    axis = grid.cut_axis
    if axis is not None:  # one step more would be too large
        one_more = grid.chunk_nbytes // grid.largest[axis] * (grid.largest[axis] + 1)
        assert one_more > target
        slower = layout.axes[: layout.axes.index(axis)]
        assert all(grid.largest[a] == 1 for a in slower)


@pytest.mark.parametrize(
    "text", ["100", "64 MiB", "1.5kB", "1e6", "MB", "5 gib", "12B", "2Ki", "1 T"]
)
def test_numbers_of_bytes_are_read_as_dask_reads_them(text):
    assert parse_nbytes(text) == parse_bytes(text)


@pytest.mark.parametrize("text", ["", ".", "x", "5 XB", "-3", "i", "nan", "1e999"])
def test_what_is_no_number_of_bytes_is_refused(text):
    with pytest.raises(PlanError, match="no number of bytes"):
        parse_nbytes(text)


@given(st.integers(1, 60).flatmap(partitions))
def test_listed_lengths_are_kept_and_even_ones_are_not_listed(sizes):
    cuts = listed(sizes)
    assert cuts.sizes() == sizes
    assert cuts.length == sum(sizes)
    assert cuts.largest == max(sizes)
    assert cuts.last == [size for size in sizes if size][-1]
    stops = np.cumsum(sizes)
    for index in range(cuts.length):
        assert cuts.find(index) == np.searchsorted(stops, index, side="right")


@given(st.integers(0, 60), st.integers(1, 70))
def test_dasks_own_even_chunks_take_three_numbers(length, step):
    (sizes,) = normalize_chunks(step, (length,))
    assert isinstance(listed(sizes), EvenCuts)
    assert listed(sizes).sizes() == even(length, step).sizes() == sizes


@pytest.mark.parametrize(("first", "step"), [(0, 3), (11, 3), (3, 0), (-1, 2)])
def test_impossible_pieces_cannot_be_built(first, step):
    with pytest.raises(PlanError, match="has no pieces"):
        EvenCuts(length=10, first=first, step=step)


def test_boundaries_skip_empty_pieces():
    cuts = ListedCuts(stops=(0, 2, 2, 5, 5))
    assert [(b.start, b.before) for b in cuts.boundaries()] == [(2, 2)]

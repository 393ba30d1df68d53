"""The geometry of bytes, judged by NumPy's own strides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import LayoutError
from mmchunks.files.layout import Layout, Span


@st.composite
def layouts_and_regions(draw):
    shape = tuple(draw(st.lists(st.integers(0, 6), max_size=4)))
    layout = Layout(
        shape=shape,
        dtype=np.dtype(draw(st.sampled_from(["u1", "<f4", ">f8", "S3", "V5"]))),
        order=draw(st.sampled_from(["C", "F"])),
        offset=draw(st.integers(0, 300)),
    )
    region = []
    for length in shape:
        start = draw(st.integers(0, length))
        region.append(slice(start, draw(st.integers(start, length))))
    return layout, tuple(region)


def bytes_of(layout, region):
    """The slow judge: the offset of every byte of a region, from a NumPy array of indices."""
    elements = np.arange(layout.size).reshape(layout.shape, order=layout.order)[region]
    starts = np.sort(elements, axis=None) * layout.itemsize + layout.offset
    return (starts[:, None] + np.arange(layout.itemsize)).ravel()


@given(layouts_and_regions())
def test_runs_list_exactly_the_bytes_of_a_region(case):
    layout, region = case
    runs = layout[region].runs
    found = [
        runs.offset + sum(i * s for i, s in zip(index, runs.strides, strict=True)) + byte
        for index in np.ndindex(*runs.counts)
        for byte in range(runs.nbytes)
    ]
    np.testing.assert_array_equal(found, bytes_of(layout, region))


@given(layouts_and_regions())
def test_span_reaches_from_the_first_byte_to_the_last(case):
    layout, region = case
    span, judge = layout[region].span, bytes_of(layout, region)
    assert span.nbytes == (judge[-1] + 1 - judge[0] if judge.size else 0)
    if judge.size:
        assert span.offset == judge[0]
    assert layout[region].contiguous == (span.nbytes == judge.size)


@given(layouts_and_regions())
def test_strides_are_those_of_numpy(case):
    layout, _ = case
    judge = np.empty(layout.shape, layout.dtype, order=layout.order)
    assert layout.nbytes == judge.nbytes
    if layout.size:
        assert layout.strides == judge.strides


@given(st.integers(0, 20), st.slices(12))
def test_region_clips_as_numpy_does(length, entry):
    layout = Layout(shape=(length,), dtype=np.dtype("u1"))
    if entry.step not in (None, 1):
        with pytest.raises(LayoutError, match="no steps"):
            layout.region(entry)
        return
    (region,) = layout.region(entry)
    np.testing.assert_array_equal(np.arange(length)[entry], np.arange(length)[region])


def test_region_understands_ellipsis_and_missing_axes():
    layout = Layout(shape=(2, 3, 4), dtype=np.dtype("u1"))
    assert layout.region(None) == layout.whole == layout.region(...)
    assert layout.region((..., slice(1, 2))) == (slice(0, 2), slice(0, 3), slice(1, 2))
    assert layout.region((slice(1, 2), ...)) == (slice(1, 2), slice(0, 3), slice(0, 4))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"shape": (-1,)}, "negative"),
        ({"shape": (2**40, 2**40)}, "more bytes than a file"),
        ({"shape": (0, 2**62, 2**62)}, "more bytes than a file"),
        ({"shape": (1,) * 65}, "at most 64"),
        ({"shape": (1,), "offset": -1}, "offset must be"),
        ({"shape": (1,), "order": "K"}, "order must be"),
        ({"shape": (1,), "dtype": np.dtype("O")}, "Python objects"),
    ],
)
def test_impossible_layouts_cannot_be_built(arguments, sentence):
    with pytest.raises(LayoutError, match=sentence):
        Layout(**{"dtype": np.dtype("f4"), **arguments})


@pytest.mark.parametrize("index", [3, (slice(None),) * 3, (..., ...), ("a",)])
def test_a_region_that_cannot_be_read_is_refused(index):
    with pytest.raises(LayoutError):
        Layout(shape=(2, 3), dtype=np.dtype("u1")).region(index)


def test_pages_round_out():
    assert Span(offset=4096, nbytes=4096).pages(4096) == Span(offset=4096, nbytes=4096)
    assert Span(offset=4095, nbytes=2).pages(4096) == Span(offset=0, nbytes=8192)

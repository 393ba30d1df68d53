"""How much a task reads: within the limit where one window is, and never more windows than there are."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.files.layout import Layout
from mmchunks.sliding.halos import result_sizes


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(1, 400), min_size=1, max_size=3)))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    windows = {axis: draw(st.integers(1, shape[axis])) for axis in axes}
    steps = {axis: draw(st.integers(1, 9)) for axis in axes}
    order = draw(st.sampled_from(["C", "F"]))
    return Layout(shape=shape, dtype=np.dtype("f4"), order=order), windows, steps


def read_nbytes(layout, windows, steps, sizes):
    return layout.itemsize * math.prod(
        (n - 1) * steps.get(axis, 1) + windows.get(axis, 1) for axis, n in enumerate(sizes)
    )


@given(cases(), st.integers(1, 10**6))
def test_a_task_reads_no_more_than_allowed_or_one_window(case, target):
    layout, windows, steps = case
    sizes = result_sizes(layout, windows, steps, target_nbytes=target, limit_nbytes=4 * target)
    counts = [
        (n - windows.get(axis, 1)) // steps.get(axis, 1) + 1 for axis, n in enumerate(layout.shape)
    ]
    assert all(1 <= size <= count for size, count in zip(sizes, counts, strict=True))
    read = read_nbytes(layout, windows, steps, sizes)
    assert read <= 4 * target or all(sizes[axis] == 1 for axis in range(layout.ndim))


def test_halos_cost_less_than_a_tenth_where_memory_allows():
    layout = Layout(shape=(10**6, 1024), dtype=np.dtype("f4"))
    for window in (10, 1000, 10_000):
        sizes = result_sizes(layout, {0: window}, {0: 1}, target_nbytes=2**27, limit_nbytes=2**29)
        assert sizes[1] == 1024
        assert (sizes[0] + window - 1) / sizes[0] < 1.1


def test_axes_without_windows_are_cut_where_halos_would_be_dearer():
    layout = Layout(shape=(10_000, 65_536), dtype=np.dtype("f4"))
    rows, columns = result_sizes(layout, {0: 5000}, {0: 1}, target_nbytes=2**27, limit_nbytes=2**29)
    assert rows == 5001
    assert columns < 65_536

"""Boxes of runs, judged by the list of all their bytes."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.files.runs import boxes, joined, offsets
from tests.files.test_layout import bytes_of, layouts_and_regions


def bytes_in(runs):
    return [start + byte for start in offsets(runs) for byte in range(runs.nbytes)]


@given(layouts_and_regions(), st.data())
def test_boxes_hold_exactly_the_bytes_of_a_stretch(case, data):
    layout, region = case
    judge = bytes_of(layout, region)
    start = data.draw(st.integers(0, len(judge)))
    stop = data.draw(st.integers(start, len(judge)))
    found = [byte for box in boxes(layout[region].runs, start, stop) for byte in bytes_in(box)]
    np.testing.assert_array_equal(found, judge[start:stop])


@given(layouts_and_regions())
def test_a_stretch_takes_few_boxes(case):
    layout, region = case
    runs = layout[region].runs
    nbytes = layout[region].nbytes
    assert len(list(boxes(runs, nbytes // 3, nbytes))) <= 2 * layout.ndim + 1


@given(layouts_and_regions(), st.integers(0, 50), st.integers(0, 200))
def test_groups_hold_every_run_once_and_read_no_long_gap(case, gap, reach):
    layout, region = case
    runs = layout[region].runs
    if not len(runs):
        return
    outer, group = joined(runs, gap_nbytes=gap, reach_nbytes=reach)
    assert outer.counts + group.counts == runs.counts
    assert outer.nbytes == bytes_in(group)[-1] + 1 - group.offset
    waste = outer.nbytes - math.prod(group.counts) * group.nbytes
    assert waste <= gap * (math.prod(group.counts) - 1)

"""Plans: laws judged by visiting every element, and promises about plans too large to visit."""

import json
import re
import time
import tracemalloc
import xml.etree.ElementTree as ET

import dask
import numpy as np
import pytest
from dask.array.core import normalize_chunks
from hypothesis import example, given
from hypothesis import strategies as st

import mmchunks as mm
from mmchunks.errors import PlanError
from mmchunks.files.layout import Layout
from mmchunks.planning.making import plan, plan_chunks
from mmchunks.planning.plans import Plan

DTYPES = ["u1", ">i2", "<f4", "c16", "S5", "V0", "M8[ns]"]


def made(layout, chunks, **knobs):
    defaults = {"align": "auto", "halo": None, "writing": False, "page": 16}
    return plan_chunks(layout, chunks, **{"target_nbytes": 200} | defaults | knobs)


def layout_of(*shape, dtype="f4", order="C", offset=128):
    return Layout(shape=shape, dtype=np.dtype(dtype), order=order, offset=offset)


@st.composite
def plans(draw):
    shape = tuple(draw(st.lists(st.integers(0, 7), max_size=3)))
    layout = Layout(
        shape=shape,
        dtype=np.dtype(draw(st.sampled_from(DTYPES))),
        order=draw(st.sampled_from(["C", "F"])),
        offset=draw(st.sampled_from([0, 10, 64, 128])),
    )
    chunks = st.one_of(
        st.sampled_from(["auto", "50 B", -1, None, {}]),
        st.tuples(*(st.sampled_from([1, 2, 5, -1, None, "auto"]) for _ in shape)),
    )
    axes = st.sampled_from(range(-len(shape), len(shape))) if shape else st.nothing()
    reach = st.integers(0, 3)
    return made(
        layout,
        draw(chunks),
        align=draw(st.sampled_from(["auto", "page", None, 8, 48, "32 B"])),
        halo=draw(st.one_of(st.none(), st.dictionaries(axes, reach | st.tuples(reach, reach)))),
        writing=draw(st.booleans()),
        target_nbytes=draw(st.sampled_from([1, 30, 200, 10_000])),
    )


@given(plans())
def test_every_element_is_owned_exactly_once(plan):
    owned = np.zeros(plan.layout.shape, int)
    for chunk in plan:
        owned[chunk.region] += 1
    assert (owned == 1).all()


@given(plans())
def test_regions_are_the_blocks_that_dask_would_make_of_the_chunks(plan):
    assert plan.numblocks == tuple(map(len, plan.chunks))
    assert normalize_chunks(plan.chunks, plan.layout.shape) == plan.chunks
    starts = [np.cumsum((0, *sizes)) for sizes in plan.chunks]
    assert sorted(chunk.index for chunk in plan) == list(np.ndindex(plan.numblocks))
    for chunk in plan:
        for at, edges, part in zip(chunk.index, starts, chunk.region, strict=True):
            assert (part.start, part.stop) == (edges[at], edges[at + 1])


@given(plans(), st.integers(1, 40))
def test_parts_are_disjoint_complete_and_fair(plan, n):
    parts = [plan.part(i, n) for i in range(n)]
    assert [chunk for part in parts for chunk in part] == list(plan)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(plans(), st.data())
def test_a_plan_is_indexed_and_sliced_like_a_list(plan, data):
    chunks = list(plan)
    assert len(plan) == len(chunks)
    at = data.draw(st.integers(-len(chunks), len(chunks) - 1))
    assert plan[at] == chunks[at]
    cut = data.draw(st.slices(len(chunks)).filter(lambda s: s.step in {None, 1}))
    assert list(plan[cut]) == chunks[cut]
    assert plan[cut].chunks == plan.chunks
    with pytest.raises(IndexError):
        plan[len(chunks)]


@given(plans())
def test_chunks_follow_each_other_in_the_file(plan):
    chunks = [chunk for chunk in plan if chunk.nbytes]
    offsets = [chunk.offset for chunk in chunks]
    assert offsets == sorted(offsets)
    if all(chunk.contiguous for chunk in chunks):
        place = plan.layout.offset
        for chunk in chunks:
            assert chunk.offset == place
            place += chunk.nbytes
        assert place == plan.layout.stop


@given(plans())
@example(made(layout_of(0, 2), (1, 1)))
def test_spans_lie_inside_the_data_and_hold_what_is_owned(plan):
    layout = plan.layout
    for chunk in plan:
        assert layout.offset <= chunk.offset <= chunk.offset + chunk.nbytes <= layout.stop
        assert chunk.nbytes >= layout[chunk.region].nbytes
        assert chunk.contiguous == (chunk.nbytes == layout[chunk.region].nbytes)


@given(plans())
def test_aligned_means_that_every_boundary_is_on_a_page(plan):
    if plan.alignment.outcome.startswith("aligned"):
        assert plan.shared_pages == 0
        assert all(chunk.aligned for chunk in plan)
        for chunk in plan:
            if chunk.contiguous and chunk.nbytes:
                assert chunk.offset % plan.page == 0 or chunk.offset == plan.layout.offset
    else:
        assert plan.shared_pages > 0
        assert not all(chunk.aligned for chunk in plan)


@given(plans())
def test_what_is_read_is_what_is_owned_dilated_and_clipped(plan):
    elements = np.indices(plan.layout.shape)
    for chunk in plan:
        judge = np.ones(plan.layout.shape, bool)
        for place, part, (before, after) in zip(elements, chunk.region, plan.halo, strict=True):
            judge &= (place >= part.start - before) & (place < part.stop + after)
        found = np.zeros(plan.layout.shape, bool)
        found[chunk.read_region] = True
        np.testing.assert_array_equal(found, judge)


@given(plans(), st.integers(0, 3))
def test_json_gives_back_the_same_plan(plan, i):
    part = plan.part(i, 4)
    text = part.to_json()
    assert Plan.from_json(text) == part
    assert json.loads(text)["layout"]["shape"] == list(plan.layout.shape)


@pytest.mark.parametrize(
    "dtype",
    [
        np.dtype([("a", "<f4"), ("b", ">i2", (2, 3))]),
        np.dtype([("a", [("x", "u1"), ("y", "M8[s]")]), ("né", "S3")]),
        np.dtype({"names": ["b", "a"], "formats": ["f8", "u1"], "offsets": [8, 3], "itemsize": 32}),
        np.dtype({"names": ["a", "b"], "formats": ["u4", "u1"], "offsets": [0, 0]}),  # a union
        np.dtype([(("title", "name"), "f4")]),
        np.dtype([("a", "u1"), ("b", "f8")], align=True),
        np.dtype("longdouble"),
    ],
)
def test_json_keeps_every_dtype(dtype):
    plan = made(layout_of(10, dtype=dtype), 3)
    found = Plan.from_json(plan.to_json())
    assert found == plan
    assert found.layout.dtype.fields == dtype.fields


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cuts": 3}', "null", '"plan"'])
def test_what_is_no_plan_is_refused(text):
    with pytest.raises(PlanError, match="not a plan"):
        Plan.from_json(text)


def test_a_plan_that_was_tampered_with_is_refused():
    form = json.loads(made(layout_of(10), 3).to_json())
    form["cuts"][0]["length"] = 11
    with pytest.raises(PlanError, match="do not fit"):
        Plan.from_json(json.dumps(form))


def test_a_plan_of_a_thousand_million_chunks_costs_nothing():
    layout = layout_of(10**9, 1000, offset=4096)
    tracemalloc.start()
    began = time.perf_counter()
    plan = made(layout, (1, -1), halo={0: 3}, page=4096)
    assert len(plan) == 10**9
    assert plan[-1].region[0] == slice(10**9 - 1, 10**9)
    part = plan.part(999, 1000)
    assert part[0].index == (999_000_000, 0)
    assert len(part) == len(plan[999_000_000:]) == 10**6
    assert plan.shared_pages == 4000 * 10**9 // 4096  # rows are shorter than pages
    assert Plan.from_json(plan.to_json()) == plan
    assert len(plan.to_json()) < 1000
    assert len(plan.explain()) + len(plan._repr_html_()) + len(repr(plan)) < 20_000
    seconds = time.perf_counter() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    assert seconds < 0.5  # 5 ms where nothing else runs


@pytest.mark.parametrize("order", ["C", "F"])
def test_auto_makes_contiguous_slabs_along_the_slowest_axis(order):
    with dask.config.set({"array.chunk-size": "1 MiB"}):
        found = plan(layout_of(1000, 500, 1000, order=order, offset=4096))
    assert all(chunk.contiguous for chunk in found.part(0, 100))
    axis = 0 if order == "C" else 2
    assert [n > 1 for n in found.numblocks].index(True) == axis or found.numblocks[axis] == 1000


def test_sizes_that_were_spelled_out_are_kept_for_reading_and_moved_for_writing():
    layout = layout_of(1000, 1000, offset=4096)
    assert plan(layout, (100, -1)).chunks[0] == (100,) * 10
    assert plan(layout, (100, -1)).alignment.outcome == "kept as asked"
    moved = plan(layout, (100, -1), writing=True)
    assert moved.chunks[0] == (128,) * 7 + (104,)
    assert moved.alignment.outcome == "aligned with coarser chunks"
    assert plan(layout, (100, -1), writing=True, align=None).chunks[0] == (100,) * 10
    assert plan(layout, (100, -1), align="page").chunks == moved.chunks
    assert plan(layout, (100, -1), align=2**13).chunks[0] == (128, 256, 256, 256, 104)


def test_sizes_that_we_choose_shrink_onto_pages_and_do_not_grow_for_reading():
    layout = layout_of(10_000, 1000)
    assert made(layout, "1 MiB", page=4096).chunks[0][:3] == (172, 256, 256)
    reading = made(layout, "100 kB", page=4096)
    assert reading.alignment.outcome == "not alignable"
    assert "align=4096" in reading.alignment.reason
    assert reading.grid.chunk_nbytes <= 100_000
    writing = made(layout, "200 kB", page=4096, writing=True)
    assert writing.alignment.outcome == "aligned with coarser chunks"
    assert made(layout, "100 kB", page=4096, writing=True).alignment.outcome == "not alignable"


def test_what_the_reason_says_to_write_has_the_effect_it_names():
    layout = layout_of(10_000, 1000)
    reason = made(layout, "100 kB", page=4096, writing=True).alignment.reason
    chunks, align = re.search(r"write chunks=(\(.*?\)), align=(\d+)", reason).groups()
    wanted = tuple(map(int, chunks.strip("()").split(",")))
    found = made(layout, wanted, align=int(align), page=4096)
    assert found.alignment.outcome == "aligned"


def test_one_row_that_is_larger_than_the_target_is_cut_inside():
    found = made(layout_of(4, 1024, 16, dtype="u1", offset=4096), "8 KiB", page=4096)
    assert found.chunks == ((1,) * 4, (512,) * 2, (16,))
    assert found.alignment.outcome == "aligned"
    assert "so axis 1 is cut as well" in found.explain()


def test_a_target_implies_writing_and_errors_begin_with_the_path(tmp_path):
    target = mm.create_npy(tmp_path / "out.npy", (1000, 1000), "f4")
    assert plan(target, (100, -1)).chunks[0][0] == 128
    with pytest.raises(PlanError, match=r"/out\.npy: chunks="):
        plan(target, (1, 2, 3))


def test_a_target_is_cut_as_it_was_meant_to_be(tmp_path):
    target = mm.create_npy(tmp_path / "out.npy", (1000, 1024), "f4", chunks=(100, -1))
    assert plan(target).chunks == plan(target, (100, -1)).chunks == ((100,) * 10, (1024,))
    assert plan(target, 500).chunks[0] == (500, 500)


def test_a_path_is_opened(tmp_path):
    pytest.importorskip("mmchunks.files.sources")
    np.save(tmp_path / "x.npy", np.zeros((10, 3)))
    assert plan(tmp_path / "x.npy", (4, -1)).chunks == ((4, 4, 2), (3,))


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"align": 0}, "whole number of bytes"),
        ({"align": 2.5}, "whole number of bytes"),
        ({"align": "often"}, "no number of bytes"),
        ({"halo": {2: 1}}, "no axis 2"),
        ({"halo": -1}, ">= 0, got -1"),
        ({"halo": {0: (1, 2, 3)}}, "one or two numbers"),
        ({"halo": "all"}, "one or two numbers"),
    ],
)
def test_knobs_that_say_nothing_are_refused(knobs, sentence):
    with pytest.raises(PlanError, match=sentence):
        made(layout_of(8, 6), "auto", **knobs)


def test_parts_and_slices_that_are_none_are_refused():
    found = made(layout_of(8, 6), 1)
    with pytest.raises(PlanError, match="part 3 of 3 is not there"):
        found.part(3, 3)
    with pytest.raises(PlanError, match="without a step"):
        found[::2]


@pytest.mark.parametrize(
    ("layout", "chunks", "said"),
    [
        (layout_of(10_000, 1024), "auto", ["rows of axis 0 are 4096 bytes", "starts at byte 128"]),
        (layout_of(10_000, 1024), "auto", ["no row boundary ever falls on a 4096-byte page"]),
        (layout_of(10_000, 1024), "auto", ["create_npy", "byte 4096"]),
        (layout_of(10_000, 1024, offset=4096), (100, 100), ["10.24 times", "100 pieces of 400"]),
        (layout_of(10_000, 1024, offset=4096), (100, 100), ["write chunks=(9, -1) for contiguous"]),
        (layout_of(10_000, 1000, offset=4096), (100, -1), ["write chunks=(128, -1)"]),
        (layout_of(10_000, 1000), (100, -1), ["write align=4096", "95 of 9,766 pages"]),
        (layout_of(), "auto", ["nothing is cut"]),
        (layout_of(0, 3), "auto", ["owns no bytes"]),
    ],
)
def test_explain_says_what_was_decided_and_what_to_write(layout, chunks, said):
    text = made(layout, chunks, page=4096, target_nbytes=2**20).explain()
    assert all(words in text for words in said), text


@given(plans())
def test_every_plan_can_be_explained_and_drawn(plan):
    assert all(line and not line.endswith(".") for line in plan.explain().splitlines())
    root = ET.fromstring(plan._repr_html_())
    drawn = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    chunks = [text for text in drawn if text.startswith("chunk")]
    assert len(chunks) <= 12
    assert bool(chunks) == bool(plan.layout.nbytes)
    assert repr(plan).startswith("<Plan: ")


def test_a_large_plan_is_drawn_with_an_ellipsis_and_a_small_one_without():
    assert "…" in made(layout_of(10**9), 10)._repr_html_()
    assert "…" not in made(layout_of(40), 10)._repr_html_()

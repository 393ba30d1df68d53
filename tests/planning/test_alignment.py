"""Where boundaries fall on pages, judged by trying every row and every byte."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mmchunks.files.layout import Layout
from mmchunks.planning.alignment import align_grid, is_aligned, page_boundaries
from mmchunks.planning.grammar import parse_chunks, slabs
from mmchunks.planning.grids import Grid
from mmchunks.planning.pagecounts import runs_on_pages, shared_pages, touched_pages
from mmchunks.planning.pictures import pieces

PAGES = [1, 2, 3, 8, 16, 30, 64, 100]


@st.composite
def grids(draw, max_size=400):
    """Small arrays with any chunks, in pages that are smaller still."""
    shape = tuple(draw(st.lists(st.integers(0, 9), max_size=4)))
    layout = Layout(
        shape=shape,
        dtype=np.dtype(draw(st.sampled_from(["u1", "V3", "f4", "f8", "V32", "V0"]))),
        order=draw(st.sampled_from(["C", "F"])),
        offset=draw(st.sampled_from([0, 1, 7, 8, 16, 64, 100])),
    )
    if draw(st.booleans()):
        return slabs(layout, draw(st.integers(1, max_size)))
    entries = []
    for length in shape:
        stops = sorted(draw(st.lists(st.integers(0, length), max_size=3)))
        sizes = np.diff([0, *stops, length]).tolist()
        entries.append(draw(st.sampled_from([draw(st.integers(1, 9)), -1, tuple(sizes)])))
    return parse_chunks(tuple(entries), layout, target_nbytes=max_size)


def owners(grid):
    """The slow judge: the number of the chunk that owns each byte of the data, in file order."""
    layout = grid.layout
    owner = np.full(layout.shape, -1)
    for number in range(grid.count):
        region = grid.region(grid.index(number))
        assert (owner[region] == -1).all()
        owner[region] = number
    return np.repeat(owner.ravel(order=layout.order), layout.itemsize)


def owners_of_pages(grid, page):
    found = {}
    for place, owner in enumerate(owners(grid), start=grid.layout.offset):
        found.setdefault(place // page, set()).add(owner)
    return found


@given(st.integers(0, 300), st.integers(1, 300), st.integers(1, 200))
def test_the_comb_holds_exactly_the_rows_that_start_on_a_page(offset, stride, page):
    judge = [k for k in range(3 * page) if (offset + k * stride) % page == 0]
    comb = page_boundaries(offset, stride, page)
    if comb is None:
        assert judge == []
    else:
        assert judge == list(range(comb.first, 3 * page, comb.period))
        assert 0 <= comb.first < comb.period


@pytest.mark.parametrize(
    ("stride", "offset", "page", "period_nbytes"),
    [
        (4000, 128, 4096, 512_000),
        (4000, 128, 65536, 8_192_000),
        (4096, 128, 4096, None),
        (4096, 4096, 4096, 4096),
        (4096, 4096, 2**21, 2**21),
        (4096, 2**21, 2**21, 2**21),
        (4092, 128, 4096, 4_190_208),
        (10**6, 128, 4096, 64_000_000),
        (224 * 224 * 3, 128, 4096, None),
        (224 * 224 * 3, 4096, 65536, 602_112 * 16),
        (721 * 1440 * 4, 128, 4096, 132_894_720),
        (1000, 128, 2**20, 2**20 // 8 * 1000),
    ],
)
def test_alignment_repeats_at_the_least_common_multiple(stride, offset, page, period_nbytes):
    comb = page_boundaries(offset, stride, page)
    assert (comb and comb.period * stride) == period_nbytes
    assert period_nbytes in {None, np.lcm(stride, page)}


def cut(chunks, *shape, offset=0):
    layout = Layout(shape=shape, dtype=np.dtype("u1"), offset=offset)
    return parse_chunks(chunks, layout, target_nbytes=1)


@given(grids(), st.sampled_from(PAGES))
@example(cut((1, 16), 3, 20), 16)  # cuts fall on pages in the first row only
@example(cut((2, 16), 4, 32), 16)  # strided, and yet no page is shared
@example(cut((1, 3), 2, 7, offset=5), 64)  # many boundaries in one page
def test_shared_pages_are_those_with_two_owners(grid, page):
    judge = sum(len(found) > 1 for found in owners_of_pages(grid, page).values())
    assert shared_pages(grid, page) == judge
    assert is_aligned(grid, page) == (judge == 0)


@given(grids(), st.sampled_from(PAGES))
@example(cut((2, 16), 4, 32), 16)
@example(cut((2, 8), 4, 32), 16)
@example(cut((2, 16), 4, 40), 16)  # the first row of every chunk looks aligned
def test_a_chunk_is_aligned_if_it_shares_no_page(grid, page):
    shared = set().union(*(o for o in owners_of_pages(grid, page).values() if len(o) > 1))
    for number in range(grid.count):
        runs = grid.layout[grid.region(grid.index(number))].runs
        assert runs_on_pages(grid.layout, runs, page) == (number not in shared)


@given(grids(), st.sampled_from(PAGES))
@example(cut((-1, 4), 4, 24), 16)  # one page lies between two runs, now and then
def test_a_chunk_touches_the_pages_of_its_bytes(grid, page):
    owner = owners(grid)
    places = np.arange(owner.size) + grid.layout.offset
    for number in range(grid.count):
        runs = grid.layout[grid.region(grid.index(number))].runs
        judge = np.unique(places[owner == number] // page).size
        found = touched_pages(runs, page)
        if len(runs.counts) <= 1:
            assert found == judge
        else:  # groups of runs: the first one stands for all, so a page a group at most
            groups = len(runs) // runs.counts[-1]
            assert abs(found - judge) <= groups * (1 + runs.counts[-1])


@given(grids(), st.sampled_from(PAGES), st.booleans(), st.sampled_from([100, 10_000]))
def test_alignment_ends_in_aligned_chunks_or_a_reason(grid, page, grow, limit):
    limit = max(limit, grid.chunk_nbytes)
    moved, alignment = align_grid(grid, page=page, grow=grow, limit_nbytes=limit)
    assert alignment.reason
    assert moved.layout == grid.layout
    assert moved.chunk_nbytes <= limit
    if alignment.outcome == "not alignable":
        assert moved == grid
        return
    assert all(len(found) == 1 for found in owners_of_pages(moved, page).values())
    assert (moved.count > 1) == (grid.count > 1) or moved == grid
    grown = moved.chunk_nbytes > grid.chunk_nbytes
    assert (alignment.outcome == "aligned with coarser chunks") == grown


@given(
    st.integers(2, 60), st.integers(1, 40), st.sampled_from([0, 1, 8, 64]), st.sampled_from(PAGES)
)
def test_single_rows_are_not_alignable_only_if_none_starts_on_a_page(length, row, offset, page):
    layout = Layout(shape=(length, row), dtype=np.dtype("u1"), offset=offset)
    grid = parse_chunks((1, -1), layout, target_nbytes=1)
    _, alignment = align_grid(grid, page=page, grow=True, limit_nbytes=layout.nbytes)
    on_pages = [k for k in range(1, length) if (offset + k * row) % page == 0]
    assert (alignment.outcome == "not alignable") == (on_pages == [])


@given(grids())
def test_the_pieces_of_a_file_have_one_owner_each(grid):
    found = [owner for span, owner in pieces(grid) for _ in range(span.nbytes)]
    np.testing.assert_array_equal(found, owners(grid))
    spans = [span for span, _ in pieces(grid)]
    assert all(a.stop == b.offset for a, b in itertools.pairwise(spans))


@given(grids())
def test_contiguous_grids_have_contiguous_chunks(grid):
    regions = [grid.region(grid.index(number)) for number in range(grid.count)]
    if grid.contiguous:
        assert all(grid.layout[region].contiguous for region in regions)
    elif all(size for cut in grid.cuts for size in cut.sizes()):
        assert not all(grid.layout[region].contiguous for region in regions)


@given(grids())
def test_numbers_and_indices_of_chunks_go_both_ways(grid):
    indices = [grid.index(number) for number in range(grid.count)]
    assert sorted(indices) == list(np.ndindex(grid.numblocks))
    assert [grid.number(index) for index in indices] == list(range(grid.count))


def test_pages_of_a_thousand_million_chunks_are_counted_at_once():
    layout = Layout(shape=(10**6, 10**6), dtype=np.dtype("V7"), offset=128)
    grid: Grid = parse_chunks((1, 1000), layout, target_nbytes=1)
    assert grid.count == 10**9
    assert shared_pages(grid, 4096) == 10**9 - 1 - _boundaries_on_pages(layout, 1000, 4096)


def _boundaries_on_pages(layout, step, page):
    """Count boundaries on pages by the residues of rows and of steps."""
    row, width = layout.shape[1] * layout.itemsize, step * layout.itemsize
    rows = np.bincount((layout.offset + np.arange(layout.shape[0]) * row) % page, minlength=page)
    steps = np.bincount(-np.arange(layout.shape[1] // step) * width % page, minlength=page)
    return int(rows @ steps) - (layout.offset % page == 0)

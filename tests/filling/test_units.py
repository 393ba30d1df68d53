"""Rows still to be done, judged by sets of row numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.filling.units import choose_unit_rows, granule, share
from mmchunks.planning.ranges import count, cut, missing

ranges = st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda pair: tuple(sorted(pair)))


def rows_of(parts):
    return [row for start, stop in parts for row in range(start, stop)]


@given(ranges, st.lists(ranges))
def test_missing_rows_are_those_that_no_range_did(rows, done):
    left = missing(rows, done)
    assert rows_of(left) == sorted(set(range(*rows)) - set(rows_of(done)))
    assert all(start < stop for start, stop in left)
    assert count(left) == len(rows_of(left))


@given(st.lists(ranges), st.integers(1, 70))
def test_cutting_keeps_the_rows_and_crosses_no_multiple(parts, unit_rows):
    units = list(cut(parts, unit_rows))
    assert rows_of(units) == rows_of(parts)
    assert all(start // unit_rows == (stop - 1) // unit_rows for start, stop in units)


@given(st.integers(0, 20_000), st.integers(1, 40))
def test_shares_are_disjoint_complete_and_fair(rows, parts):
    shares = [share(rows, (i, parts)) for i in range(parts)]
    assert rows_of(shares) == list(range(rows))
    sizes = [stop - start for start, stop in shares]
    assert max(sizes) - min(sizes) <= max(1, rows / parts / 4)


def test_large_shares_begin_on_pages_whatever_the_size_of_a_row():
    starts = [share(10**6, (i, 7))[0] for i in range(7)]
    assert all(start % granule(row_nbytes, 4096) == 0 for start in starts for row_nbytes in (1, 12))


@given(st.integers(1, 10**6), st.sampled_from([512, 4096, 65536]))
def test_a_granule_is_the_first_row_that_starts_on_a_page_again(row_nbytes, page):
    rows = granule(row_nbytes, page)
    assert rows * row_nbytes % page == 0
    assert not any(row * row_nbytes % page == 0 for row in range(1, min(rows, 2000)))


LIMITS = {"seconds": (0.5, 20.0), "nbytes": 2**26, "page": 4096}


@given(
    rows=st.integers(1, 10**7),
    row_nbytes=st.integers(0, 10**9),
    row_seconds=st.floats(0, 10**5),
)
def test_a_unit_is_within_its_limits_or_is_one_row(rows, row_nbytes, row_seconds):
    unit = choose_unit_rows(rows=rows, row_nbytes=row_nbytes, row_seconds=row_seconds, **LIMITS)
    assert 1 <= unit <= rows
    if unit > 1:
        assert unit * row_nbytes <= 2**26
        assert unit * row_seconds <= 20.0 * (1 + 1e-9)
        assert unit % granule(row_nbytes, 4096) == 0 or unit < granule(row_nbytes, 4096)


@pytest.mark.parametrize(
    ("rows", "row_nbytes", "row_seconds", "unit"),
    [
        (100_000, 48, 1e-5, 49_920),  # tiny: half a second each, on whole pages
        (1_000, 48, 3600.0, 1),  # hours: a row each, whatever the pages say
        (1_000, 2**40, 1.0, 1),  # a terabyte: likewise
        (10_000, 4096, 1.0, 10),  # a thousandth of the whole
        (10**6, 4096, 1.0, 20),  # but no more than the most
        (10**6, 2**20, 0.0, 64),  # what memory allows
    ],
)
def test_units_of_known_sweeps(rows, row_nbytes, row_seconds, unit):
    got = choose_unit_rows(rows=rows, row_nbytes=row_nbytes, row_seconds=row_seconds, **LIMITS)
    assert got == unit

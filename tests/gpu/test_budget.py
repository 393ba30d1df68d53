"""What fits on a device is known before the run: laws, and the numbers in the sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import DeviceError
from mmchunks.gpu.budget import DeviceBytes, fitting_nbytes, fitting_rows

counts = st.integers(0, 10**6)


@given(
    wanted=st.integers(1, 10**4),
    row=st.integers(1, 10**4),
    halo_rows=st.integers(0, 50),
    result_row=st.integers(0, 10**4),
    ring=st.integers(0, 10**5),
    tasks=st.integers(1, 4),
    budget=st.integers(1, 10**8),
)
def test_the_chosen_rows_fit_and_one_more_would_not(
    wanted, row, halo_rows, result_row, ring, tasks, budget
):
    def total(rows):
        return DeviceBytes(
            chunk=rows * row,
            halo=halo_rows * row,
            result=rows * result_row,
            ring=ring,
            tasks=tasks,
        ).total

    def choose():
        return fitting_rows(
            wanted,
            row=row,
            halo_rows=halo_rows,
            result_row=result_row,
            ring=ring,
            tasks=tasks,
            budget=budget,
        )

    if total(1) > budget:
        with pytest.raises(DeviceError, match=f"{total(1):,} bytes, and {budget:,} are there"):
            choose()
        return
    rows = choose()
    assert 1 <= rows <= wanted
    assert total(rows) <= budget
    assert rows == wanted or total(rows + 1) > budget


@given(
    wanted=st.integers(1, 10**6),
    least=st.integers(1, 1000),
    stored=st.integers(1, 16),
    beside=st.integers(0, 32),
    ring=st.integers(0, 10**4),
    tasks=st.integers(1, 4),
    budget=st.integers(1, 10**7),
)
def test_chosen_bytes_fit_or_are_the_least(wanted, least, stored, beside, ring, tasks, budget):
    def total(elements):
        return DeviceBytes(
            chunk=elements * stored, halo=0, result=elements * beside, ring=ring, tasks=tasks
        ).total

    chosen = fitting_nbytes(
        wanted,
        least=least,
        stored=stored,
        beside=beside,
        ring=ring,
        tasks=tasks,
        budget=budget,
    )
    assert chosen == wanted or least <= chosen < wanted
    if chosen > least:
        assert total(chosen // stored) <= budget
    if chosen < wanted:
        assert total(chosen // stored + 1) > budget


@given(chunk=counts, halo=counts, result=counts, ring=counts, tasks=st.integers(1, 4))
def test_a_need_is_refused_exactly_when_it_exceeds_the_budget(chunk, halo, result, ring, tasks):
    need = DeviceBytes(chunk=chunk, halo=halo, result=result, ring=ring, tasks=tasks)
    need.check(need.total)
    with pytest.raises(DeviceError, match=f"take {need.total:,} bytes"):
        need.check(need.total - 1)


def test_a_file_ten_times_the_device_fits_in_more_chunks_and_never_in_larger_ones():
    device, row = 10**9, 10**6
    rows = fitting_rows(
        10**4, row=row, halo_rows=10, result_row=row, ring=2**26, tasks=1, budget=device
    )
    assert rows * row * 2 + 10 * row + 2**26 <= device

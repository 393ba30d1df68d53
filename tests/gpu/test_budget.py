"""What fits on a device is known before the run: laws, and the numbers in the sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import DeviceError
from mmchunks.gpu.budget import DeviceBytes, fitting_nbytes

counts = st.integers(0, 10**6)


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

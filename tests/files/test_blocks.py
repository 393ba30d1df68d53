"""Views over bytes, judged by numpy."""

import numpy as np
from hypothesis import given

from mmchunks.files.blocks import dense, flattened, strided
from tests.files.test_layout import layouts_and_regions


def memory_of(layout):
    return np.random.default_rng(0).integers(0, 256, layout.stop, dtype="u1")


@given(layouts_and_regions())
def test_a_strided_view_is_what_numpy_selects(case):
    layout, region = case
    memory = memory_of(layout)
    judge = np.ndarray(layout.shape, layout.dtype, memory, layout.offset, order=layout.order)
    block = strided(memory[layout[region].span.offset :], layout[region])
    assert block.tobytes() == judge[(*region, ...)].tobytes()
    if block.size:
        assert np.shares_memory(block, memory)


@given(layouts_and_regions())
def test_a_dense_view_and_its_stream_are_inverse(case):
    layout, region = case
    memory = memory_of(layout)[: layout[region].nbytes]
    block = dense(memory, layout[region])
    assert block.flags[f"{layout.order}_CONTIGUOUS"]
    np.testing.assert_array_equal(flattened(block, layout), memory)

"""Dense bytes become arrays, judged by numpy, which knows all the types that a device does not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mmchunks.errors import DeviceError
from mmchunks.gpu.forms import Fields, device_form, field, swap, unpack

NUMBERS = ["?", "i1", "u1", *(o + k + s for o in "<>" for k in "iu" for s in "248")]
NUMBERS += [o + k for o in "<>" for k in ("f2", "f4", "f8", "c8", "c16", "M8[ns]", "m8[s]")]


def data_of(array, order):
    return np.frombuffer(array.tobytes(order), "u1").copy()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", NUMBERS)
@given(
    shape=hnp.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=5), seed=st.integers(0, 9)
)
def test_numbers_arrive_as_numpy_reads_them_in_the_machines_byte_order(dtype, order, shape, seed):
    dtype = np.dtype(dtype)
    raw = np.random.default_rng(seed).integers(0, 2, (*shape, dtype.itemsize), "u1")
    stored = raw.view(dtype)[..., 0] if dtype.itemsize > 1 else raw.view(dtype).reshape(shape)
    form = device_form(dtype)
    data = data_of(stored, order)
    swap(data, form.word, 7)
    array = unpack(data, shape, form, order)
    assert array.shape == shape
    assert array.dtype.isnative
    expected = stored.astype(dtype.newbyteorder("="))
    if dtype.kind in "mM":
        expected = expected.view("i8")
    np.testing.assert_array_equal(array, expected)
    assert np.shares_memory(array, data) or not array.size


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["S3", "U2", "V5", "g", "i4,f8"])
def test_what_a_device_cannot_count_arrives_as_its_bytes_along_one_more_axis(dtype, order):
    dtype = np.dtype(dtype)
    raw = np.arange(3 * 4 * dtype.itemsize).astype("u1")
    stored = raw.view(dtype).reshape(3, 4)
    array = unpack(data_of(stored, order), (3, 4), device_form(dtype), order)
    np.testing.assert_array_equal(array, raw.reshape(3, 4, dtype.itemsize))


RECORD = np.dtype([("a", "u1"), ("b", "<i4"), ("c", ">f8"), ("d", "<f4", (2, 2)), ("e", "S3")])
PADDED = np.dtype([("a", "u1"), ("b", "<i4"), ("c", ">f8"), ("d", "<f4", (2, 2))], align=True)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("dtype", "name"), [(d, n) for d in (RECORD, PADDED) for n in d.names], ids=str
)
def test_every_field_is_the_one_that_numpy_takes(dtype, name, order):
    raw = np.random.default_rng(0).integers(0, 100, 12 * dtype.itemsize, "u1")
    stored = raw.view(dtype).reshape(3, 4)
    block = unpack(data_of(stored, order), (3, 4), device_form(dtype), order)
    expected = stored[name]
    if expected.dtype.kind == "S":
        expected = np.ascontiguousarray(expected).view("u1").reshape(3, 4, 3)
    result = field(block, dtype, name, np)
    np.testing.assert_array_equal(result, expected)
    assert result.dtype.isnative
    np.testing.assert_array_equal(Fields(block, dtype, np)[name], expected)


def test_a_field_on_its_own_boundary_is_a_view_and_any_other_one_is_aligned():
    aligned = np.zeros((5, 8), "u1")
    assert np.shares_memory(field(aligned, np.dtype("i4,i4"), "f1", np), aligned)
    odd = field(np.zeros((5, 5), "u1"), np.dtype("u1,i4"), "f1", np)
    assert odd.flags.aligned
    assert odd.strides == (4,)


def test_swapping_a_field_leaves_the_block_alone():
    block = np.arange(8, dtype="u1").reshape(2, 4)
    field(block, np.dtype([("x", ">i4")]), "x", np)
    assert block.ravel().tolist() == list(range(8))


def test_a_field_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(DeviceError, match=r"no field 'z'.*'f0', 'f1'"):
        field(np.zeros((2, 8), "u1"), np.dtype("i4,i4"), "z", np)

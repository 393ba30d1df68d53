"""Samples of radio recordings: a slow reader of one number at a time is the judge."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import LayoutError
from mmchunks.files.layout import Layout
from mmchunks.files.raw import sample_type

NAMES = [
    form + number
    for form in "cr"
    for number in [
        *(f"{n}_{order}" for n in ("f32", "f64", "i16", "i32", "u16", "u32") for order in ("le", "be")),
        "i8",
        "u8",
    ]
]  # fmt: skip
CODES = {
    "f32": "f",
    "f64": "d",
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
}


def slow(name: str, data: bytes) -> list[complex]:
    """Read `data` with struct, number by number."""
    number, _, order = name[1:].partition("_")
    code = (">" if order == "be" else "<") + CODES[number]
    numbers = [value for (value,) in struct.iter_unpack(code, data)]
    if name[0] == "r":
        return numbers
    return [complex(i, q) for i, q in zip(numbers[::2], numbers[1::2], strict=True)]


@pytest.mark.parametrize("name", NAMES)
@given(data=st.binary(max_size=16 * 24))
def test_every_name_means_what_the_slow_reader_reads(name, data):
    samples = sample_type(name)
    data = data[: len(data) // samples.stored.itemsize * samples.stored.itemsize]
    with np.errstate(all="ignore"):
        result = samples.decode(np.frombuffer(data, samples.stored), np)
        expected = np.array(slow(name, data), dtype="c16").astype(
            samples.result if name[0] == "c" else "c16"
        )
    assert result.dtype == samples.result
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", NAMES)
def test_complex_names_become_complex64_except_for_doubles(name):
    result = sample_type(name).result
    assert result.isnative
    if name.startswith("c"):
        assert result == ("c16" if "f64" in name else "c8")


@pytest.mark.parametrize("name", NAMES)
def test_a_layout_counts_complete_samples(name):
    samples = sample_type(name)
    layout = Layout(shape=(7,), dtype=samples.stored)
    numbers = 2 if name[0] == "c" else 1
    bits = int("".join(c for c in name if c.isdigit()))
    assert layout.nbytes == 7 * numbers * bits // 8


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_strided_block_keeps_its_shape_and_its_order(order):
    stored = sample_type("ci16_le").stored
    block = np.zeros((6, 4), stored, order=order)
    block["i"], block["q"] = np.arange(24).reshape(6, 4), -np.arange(24).reshape(6, 4)
    result = sample_type("ci16_le").decode(block, np)
    np.testing.assert_array_equal(result, np.arange(24).reshape(6, 4) * (1 - 1j))
    assert result.flags.f_contiguous == (order == "F")
    part = sample_type("ci16_le").decode(block[1:5, 2:], np)
    np.testing.assert_array_equal(part, result[1:5, 2:])


def test_decoding_leaves_the_stored_block_alone():
    block = np.array([(1, 2)], sample_type("ci8").stored)
    sample_type("ci8").decode(block, np)[:] = 0
    assert block.tolist() == [(1, 2)]


@pytest.mark.parametrize("other", ["<i2", "f4", "u1", np.dtype("c8"), np.int16, None, "complex64"])
def test_what_is_no_such_name_is_left_to_numpy(other):
    assert sample_type(other) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [("ci16", '"ci16_le" or "ci16_be"'), ("cu8_le", "'cu8'"), ("cf16_le", "f32, f64"), ("ri64_le", "i8")],
)  # fmt: skip
def test_a_name_that_sigmf_does_not_have_is_refused_with_what_to_write(name, says):
    with pytest.raises(LayoutError, match=says):
        sample_type(name)

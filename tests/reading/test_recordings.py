"""Radio recordings by their SigMF names, through every raw function; a slow reader is the judge."""

from __future__ import annotations

import json
import pickle

import dask
import numpy as np
import pytest
from click.testing import CliRunner

import mmchunks as mm
from mmchunks.cli.commands import main
from mmchunks.errors import LayoutError
from mmchunks.files.raw import sample_type
from tests.files.test_samples import NAMES, slow

ROWS, COLUMNS, OFFSET = 60, 8, 6
INDEXES = [..., 5, (slice(3, 40), slice(1, None)), slice(None, None, -7), ([2, 50, 3], 4)]


@pytest.fixture(params=NAMES)
def recording(request, tmp_path):
    """A recording after six other bytes, its name, and its numbers, read slowly."""
    data = encoded(request.param, ROWS * COLUMNS)
    (tmp_path / "x.iq").write_bytes(b"header" + data)
    return tmp_path / "x.iq", request.param, np.array(slow(request.param, data))


def encoded(name, count):
    """Store small whole numbers, which every kind holds exactly."""
    number, _, order = name[1:].partition("_")
    dtype = np.dtype(f"{'>' if order == 'be' else '<'}{number[0]}{int(number[1:]) // 8}")
    numbers = np.random.default_rng(0).integers(0, 100, count * (1 + (name[0] == "c")))
    return (numbers - 50 * (number[0] != "u")).astype(dtype).tobytes()


def check(block, expected, name, array_type=np.ndarray):
    assert isinstance(block, array_type)
    assert (block.dtype, block.shape) == (sample_type(name).result, expected.shape)
    np.testing.assert_array_equal(block.get() if hasattr(block, "get") else block, expected)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_source_reads_numbers_and_counts_stored_bytes(recording, order):
    path, name, numbers = recording
    expected = numbers.reshape((ROWS, COLUMNS), order=order)
    source = mm.open_raw(path, name, (-1, COLUMNS), offset=OFFSET, order=order)
    samples = sample_type(name)
    assert (source.dtype, source.layout.dtype) == (samples.result, samples.stored)
    assert (source.shape, source.nbytes) == (
        expected.shape,
        expected.size * samples.stored.itemsize,
    )
    assert len(mm.plan(source, f"{source.nbytes // 4} B", align=None)) == 4
    for index in INDEXES[:-1]:
        check(source[index], expected[index], name)
    assert source[5, 3] == expected[5, 3]
    assert type(source[5, 3]) is samples.result.type
    np.testing.assert_array_equal(np.asarray(source), expected)
    assert pickle.loads(pickle.dumps(source)) == source


def test_without_a_shape_there_is_one_axis_to_the_end(recording):
    path, name, numbers = recording
    check(mm.open_raw(path, name, offset=OFFSET)[:], numbers, name)
    check(mm.load_raw(path, name, offset=OFFSET, device="cpu"), numbers, name)
    check(mm.from_raw(path, name, offset=OFFSET, device="cpu").compute(), numbers, name)


@pytest.mark.parametrize("io", ["auto", "mmap", "pread", "direct"])
@pytest.mark.filterwarnings("ignore:.*refuses O_DIRECT")
def test_blocks_of_every_way_are_decoded(recording, io):
    path, name, numbers = recording
    expected = numbers.reshape(ROWS, COLUMNS)
    options = {"offset": OFFSET, "io": io, "device": "cpu"}
    x = mm.from_raw(path, name, (ROWS, COLUMNS), (17, 3), **options)
    assert x.dtype == sample_type(name).result
    for index in INDEXES:
        with dask.config.set(scheduler="sync"):
            np.testing.assert_array_equal(x[index].compute(), expected[index])
    region = (slice(4, 30), slice(2, 5))
    check(mm.load_raw(path, name, (ROWS, COLUMNS), region, **options), expected[region], name)
    out = np.empty((26, 3), x.dtype)
    assert mm.load_raw(path, name, (ROWS, COLUMNS), region, out=out, **options) is out
    check(out, expected[region], name)
    stored = np.empty((26, 3), "V3")
    with pytest.raises(LayoutError, match=f'write np.empty.*"{x.dtype}"'):
        mm.load_raw(path, name, (ROWS, COLUMNS), region, out=stored, **options)


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_device_decodes_what_the_slow_reader_reads(cupy, recording, order):
    path, name, numbers = recording
    expected = numbers.reshape((ROWS, COLUMNS), order=order)
    options = {"offset": OFFSET, "order": order, "device": "gpu"}
    x = mm.from_raw(path, name, (ROWS, COLUMNS), (17, 3), **options)
    assert x.dtype == sample_type(name).result
    for index in INDEXES:
        with dask.config.set(scheduler="threads", num_workers=2):
            check(x[index].compute(), expected[index], name, cupy.ndarray)
    region = (slice(4, 30), slice(2, 5))
    out = cupy.empty((26, 3), x.dtype)
    assert mm.load_raw(path, name, (ROWS, COLUMNS), region, out=out, **options) is out
    check(out, expected[region], name, cupy.ndarray)
    data = memoryview(path.read_bytes())[OFFSET:]
    check(mm.to_device(data, name, device="gpu"), numbers, name, cupy.ndarray)


def test_a_buffer_is_decoded(recording):
    path, name, numbers = recording
    data = memoryview(path.read_bytes())[OFFSET:]
    check(mm.to_device(data, name, device="cpu"), numbers, name)
    if sample_type(name).stored.itemsize > 1:
        with pytest.raises(LayoutError, match="no whole number"):
            mm.to_device(data[:-1], name, device="cpu")


def test_names_that_differ_make_arrays_that_differ(tmp_path):
    path = tmp_path / "x.iq"
    path.write_bytes(encoded("ci16_le", 100))
    names = {mm.from_raw(path, name).name for name in ("ci16_le", "ci16_be", "cu16_le", "cf32_le")}
    names |= {mm.from_raw(path, dtype).name for dtype in ("c8", ">c8", "<f4")}
    assert len(names) == 7
    assert mm.from_raw(path, "ci16_le").name == mm.from_raw(path, "ci16_le").name


def test_a_stale_recording_is_noticed(tmp_path):
    path = tmp_path / "x.iq"
    path.write_bytes(encoded("ci16_le", 100))
    source = mm.open_raw(path, "ci16_le")
    path.write_bytes(encoded("ci16_le", 99))
    with pytest.raises(mm.StaleFileError, match=r"x\.iq"):
        source[:]


def test_a_wrong_name_is_told_with_the_path(tmp_path):
    path = tmp_path / "x.iq"
    path.write_bytes(bytes(9))
    with pytest.raises(LayoutError, match=r'x\.iq: .*write "ci16_le" or "ci16_be"'):
        mm.open_raw(path, "ci16")
    with pytest.raises(LayoutError, match=r"x\.iq: the file holds 9 bytes"):
        mm.open_raw(path, "ci16_le")


def test_the_command_line_knows_the_names(tmp_path):
    path = tmp_path / "x.iq"
    path.write_bytes(encoded("ci16_le", 4096))
    command = [str(path), "--dtype", "ci16_le"]
    told = CliRunner().invoke(main, ["info", *command, "--json"])
    facts = json.loads(told.output)
    assert (facts["dtype"], facts["samples"], facts["shape"]) == ("complex64", "ci16_le", [4096])
    told = CliRunner().invoke(main, ["info", *command])
    assert "stored as  ci16_le" in told.output
    told = CliRunner().invoke(main, ["plan", *command, "--chunks", "4 KiB", "--device", "cpu"])
    assert "4 of up to (1024,), 4,096 bytes" in told.output

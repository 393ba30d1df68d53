"""Regions of files onto a device, by every way; numpy is the judge."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from mmchunks.errors import DeviceError, StaleFileError
from mmchunks.files.raw import sample_type
from mmchunks.gpu import devices, gds, transfers
from mmchunks.reading import uploading
from mmchunks.reading.opening import open_npy, open_raw
from mmchunks.reading.uploading import gpu_block, gpu_bytes, gpu_way
from tests.conftest import forget_devices
from tests.fakecupy import make


@pytest.fixture(params=["C", "F"])
def file(request, tmp_path):
    array = np.random.default_rng(0).normal(size=(60, 50, 40)).astype(">f4")
    array = np.asarray(array, order=request.param)
    np.save(tmp_path / "x.npy", array)
    return open_npy(tmp_path / "x.npy"), array


REGIONS = [
    None,
    slice(0, 0),
    slice(3, 41),
    (slice(7, 8), slice(5, 6), slice(1, 3)),
    (slice(None), slice(2, 40), slice(5, 39)),
    (Ellipsis, slice(10, 30)),
]


@pytest.mark.parametrize("io", ["auto", "pread", "direct", "mmap", "gds"])
@pytest.mark.parametrize("index", REGIONS, ids=str)
@pytest.mark.filterwarnings("ignore:.*refuses O_DIRECT")
def test_every_region_arrives_by_every_way_asked_for(cupy, file, io, index):
    source, array = file
    region = source.layout.region(index)
    block = gpu_block(source, region, io=io, out=None)
    assert block.dtype == "=f4"
    np.testing.assert_array_equal(cupy.asnumpy(block), array[region])
    assert block.flags.c_contiguous if source.order == "C" else block.flags.f_contiguous
    out = cupy.empty(block.shape, "f4")
    assert gpu_block(source, region, io=io, out=out) is out
    np.testing.assert_array_equal(cupy.asnumpy(out), array[region])


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f8", "<c8"])
def test_bytes_of_this_host_arrive_as_what_they_are_said_to_be(cupy, dtype):
    memory = np.random.default_rng(0).integers(0, 99, 1600, "u1")
    block = gpu_bytes(memory, np.dtype(dtype), None)
    np.testing.assert_array_equal(cupy.asnumpy(block), memory.view(dtype))


@pytest.mark.parametrize("name", ["ci16_le", "ci8", "cu8", "cf32_be", "cf64_le", "ri16_be"])
def test_a_recording_is_decoded_on_the_device(cupy, tmp_path, name):
    samples = sample_type(name)
    raw = np.random.default_rng(0).integers(0, 60, 1000 * samples.stored.itemsize, "u1")
    raw.tofile(tmp_path / "x.iq")
    source = open_raw(tmp_path / "x.iq", name)
    region = source.layout.region(slice(10, 900))
    expected = samples.decode(raw.view(samples.stored), np)[10:900]
    for out in (None, cupy.empty((890,), samples.result)):
        block = gpu_block(source, region, io="pread", out=out)
        assert block.dtype == samples.result
        np.testing.assert_array_equal(cupy.asnumpy(block), expected)
        assert out is None or block is out
    with pytest.raises(DeviceError, match="make it"):
        gpu_block(source, region, io="pread", out=cupy.empty((890,), "u1"))
    block = gpu_bytes(raw, samples.stored, samples)
    np.testing.assert_array_equal(cupy.asnumpy(block)[10:900], expected)


def test_a_way_that_cannot_be_taken_leads_to_pread_and_says_why(cupy, file, monkeypatch):
    source, _ = file
    gaps = source.layout.region((slice(0, 5),) * 3)
    with source.opened() as fd:
        for io in ("direct", "mmap", "gds"):
            way = gpu_way(source, fd, gaps, io=io)
            assert way.io == "pread"
            assert way.reason == f'io="{io}" was asked for, but the region has gaps, which only pread gathers'  # fmt: skip
        monkeypatch.setattr(gds, "refusal", lambda: "cuFile finds no GPUDirect Storage")
        way = gpu_way(source, fd, source.layout.whole, io="gds")
        assert (way.io, "but cuFile finds no" in way.reason) == ("pread", True)
        monkeypatch.setattr(gds, "refusal", lambda: None)
        assert gpu_way(source, fd, source.layout.whole, io="gds").io == "gds"


def test_auto_tries_every_way_once_on_bytes_of_its_own(cupy, file, monkeypatch):
    source, array = file
    monkeypatch.setattr(uploading, "_TRIAL_NBYTES", 4096)
    monkeypatch.setattr(gds, "refusal", lambda: "kvikio is not installed")
    seen = []
    original = devices.seconds

    def seconds(action):
        took = original(action)
        seen.append(took)
        return {3: 0.5}.get(len(seen), 1.0)

    monkeypatch.setattr(devices, "seconds", seconds)
    for _ in range(3):
        block = gpu_block(source, source.layout.whole, io="auto", out=None)
        np.testing.assert_array_equal(cupy.asnumpy(block), array)
    assert len(seen) == 6
    with source.opened() as fd:
        way = gpu_way(source, fd, source.layout.whole, io="auto")
    assert (way.io, way.readers) == ("pread", 4)
    assert way.reason.startswith("pread x 4 won here: direct x 1 1.0000 s")


def test_a_region_too_small_to_try_takes_the_usual_way(cupy, file):
    source, _ = file
    with source.opened() as fd:
        assert "too small" in gpu_way(source, fd, source.layout.whole, io="auto").reason


def test_a_file_that_changed_is_not_read(cupy, file):
    source, array = file
    np.save(source.path, array[:10])
    with pytest.raises(StaleFileError):
        gpu_block(source, source.layout.whole, io="pread", out=None)


def test_a_file_that_changes_while_it_is_read_is_noticed(cupy, file, monkeypatch):
    source, array = file
    original = uploading.read_range

    def read_range(*arguments):
        original(*arguments)
        np.save(source.path, array + 1)

    monkeypatch.setattr(uploading, "read_range", read_range)
    with pytest.raises(StaleFileError):
        gpu_block(source, source.layout.whole, io="pread", out=None)


def test_where_the_device_addresses_pageable_memory_the_map_is_the_block(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", make(attributes=[88]))
    forget_devices()
    array = np.arange(1000.0)
    np.save(tmp_path / "x.npy", array)
    source = open_npy(tmp_path / "x.npy")
    monkeypatch.setattr(
        transfers, "upload", lambda *_, **__: pytest.fail("nothing is to be copied")
    )
    block = gpu_block(source, source.layout.region(slice(10, 900)), io="mmap", out=None)
    np.testing.assert_array_equal(block, array[10:900])
    forget_devices()


def test_gds_reads_the_middle_of_a_region(tmp_path, monkeypatch):
    asked = []

    class CuFile:
        def __init__(self, path, _):
            self.path = path

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def pread(self, data, size, offset):
            asked.append((size, offset % 4096))
            data[:] = np.fromfile(self.path, "u1", size, offset=offset)
            return SimpleNamespace(get=lambda: size)

    monkeypatch.setitem(sys.modules, "cupy", make())
    monkeypatch.setitem(sys.modules, "kvikio", SimpleNamespace(CuFile=CuFile))
    monkeypatch.setattr(gds, "refusal", lambda: None)
    forget_devices()
    array = np.arange(10_000.0)
    np.save(tmp_path / "x.npy", array)
    source = open_npy(tmp_path / "x.npy")
    block = gpu_block(source, source.layout.region(slice(100, 9000)), io="gds", out=None)
    np.testing.assert_array_equal(block, array[100:9000])
    assert asked == [(65_536, 0)]  # bytes 928 to 72,128 of the file hold 16 whole pages
    forget_devices()


def test_an_out_that_does_not_fit_is_refused(cupy, file):
    source, _ = file
    with pytest.raises(DeviceError, match="make it float32 of shape"):
        gpu_block(source, source.layout.whole, io="pread", out=cupy.empty((3,), "f4"))

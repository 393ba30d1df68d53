"""Blocks from a GPU into a file that is being filled; NumPy's own assignment is the judge."""

from __future__ import annotations

import dask
import numpy as np
import pytest

import mmchunks as mm
from mmchunks.errors import DeviceError
from mmchunks.gpu import transfers
from mmchunks.writing import targets

DTYPES = ["?", "u1", "<i2", ">i4", "<f4", ">f8", "<c8", ">c16"]
REGIONS = [..., 3, slice(2, 9), (slice(1, 12), slice(2, 5)), (slice(0, 0),), (4, 2)]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_assigned_from_a_gpu_is_in_the_file(cupy, tmp_path, dtype, order):
    target = mm.create_npy(tmp_path / "x.npy", (13, 7), dtype, order=order)
    judge = np.zeros((13, 7), dtype)
    for number, index in enumerate(REGIONS):
        values = np.arange(judge[index].size).reshape(judge[index].shape) + number
        for block in (values.astype(judge.dtype.newbyteorder("=")), np.asarray(values.T.copy()).T):
            if not np.can_cast(block.dtype, judge.dtype, "same_kind"):
                continue
            judge[index] = block
            target[index] = cupy.asarray(block)
            np.testing.assert_array_equal(np.load(target.path), judge)
    target[2:4] = cupy.asarray(np.array(1, judge.dtype.newbyteorder("=")))  # broadcast
    judge[2:4] = 1
    target.flush()
    np.testing.assert_array_equal(np.load(target.path), judge)


def test_a_large_block_comes_by_the_ring_in_slabs(cupy, tmp_path, monkeypatch):
    monkeypatch.setattr(targets, "_SLAB_NBYTES", 4096)
    slabs = []
    download = transfers.download

    def counted(block, *arguments):
        slabs.append(block.nbytes)
        download(block, *arguments)

    monkeypatch.setattr(transfers, "download", counted)
    array = np.random.default_rng(0).normal(size=(100, 100)).astype("f4")
    target = mm.create_npy(tmp_path / "x.npy", array.shape, ">f4")
    target[...] = cupy.asarray(array)
    np.testing.assert_array_equal(np.load(target.path), array)
    assert len(slabs) == 10
    assert max(slabs) <= 4096


def test_a_chunk_has_the_checksum_of_the_same_chunk_from_the_host(cupy, tmp_path, monkeypatch):
    ring = transfers.RingSpec(slots=2, slot_nbytes=4096)  # many pieces a chunk
    monkeypatch.setitem(transfers.download.__kwdefaults__, "ring", ring)
    array = np.random.default_rng(0).normal(size=(300, 100))
    target = mm.create_npy(tmp_path / "x.npy", array.shape, ">f8")
    from_device = target.write_chunk(slice(0, 300), cupy.asarray(array))
    np.testing.assert_array_equal(np.load(target.path), array)
    assert target.write_chunk(slice(0, 300), array) == from_device


def test_dates_are_written_as_the_integers_that_they_are_on_a_device(cupy, tmp_path):
    target = mm.create_npy(tmp_path / "x.npy", 5, ">M8[s]")
    target[1:] = cupy.asarray(np.arange(4))
    np.testing.assert_array_equal(np.load(target.path).view(">i8"), [0, 0, 1, 2, 3])


def test_what_a_device_cannot_say_is_refused(cupy, tmp_path):
    target = mm.create_npy(tmp_path / "x.npy", 5, "f4")
    with pytest.raises(TypeError, match=r"x\.npy: the file holds float32, the block is complex64"):
        target[:] = cupy.asarray(np.ones(5, "c8"))
    with pytest.raises(ValueError, match=r"a block of shape \(4,\) does not go into"):
        target[:] = cupy.asarray(np.ones(4, "f4"))
    text = mm.create_npy(tmp_path / "t.npy", 5, "S3")
    with pytest.raises(DeviceError, match=r"no numbers of type \|S3; bring the block to the CPU"):
        text[:] = cupy.asarray(np.ones(5, "u1"))


def test_a_lazy_array_goes_from_file_to_gpu_to_file(cupy, tmp_path):
    array = np.arange(70_000, dtype=">f4").reshape(1000, 70)
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy", chunks=(300, -1), device="gpu")
    with dask.config.set(scheduler="threads", num_workers=2):
        mm.to_npy(x + 1, tmp_path / "y.npy", progress=False)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array + 1)

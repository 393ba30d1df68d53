"""Lazy arrays whose blocks are made on a GPU: what they promise is what arrives, and it fits."""

from __future__ import annotations

import sys

import dask
import numpy as np
import pytest

import mmchunks as mm
from mmchunks.errors import DeviceError, LayoutError, PlanError
from mmchunks.gpu import devices, ring, transfers
from mmchunks.reading import rationing
from tests.conftest import forget_devices
from tests.fakecupy import make

NUMBERS = ["?", "i1", "u1", *(o + k + s for o in "<>" for k in "iu" for s in "248")]
NUMBERS += [o + k for o in "<>" for k in ("f2", "f4", "f8", "c8", "c16")]
OTHERS = [">M8[ns]", "<m8[s]", "S3", ">U2", "V5", "u1,<i4,>f8"]
RECORD = np.dtype(
    [("n", "u1"), ("t", ">M8[s]"), ("v", ">f4", (2, 3)), ("w", "S4", (2,)), ("k", "<i8")]
)


def sample(dtype, shape, order="C"):
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(0)
    if dtype.kind in "fc":
        values = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.kind == "c" else 0)
        return np.asarray(values.astype(dtype), order=order)
    raw = rng.integers(0, 2 if dtype == "?" else 100, (*shape, dtype.itemsize), "u1")
    return np.asarray(np.ndarray(shape, dtype, raw.tobytes()), order=order)


def on_device(array):
    """What a device makes of an array, element by element."""
    if array.dtype.kind in "mM":
        return array.astype(array.dtype.newbyteorder("=")).view("i8")
    if array.dtype.kind in "SUV":
        raw = np.frombuffer(array.tobytes(), "u1")
        return raw.reshape(*array.shape, array.dtype.itemsize)
    return array.astype(array.dtype.newbyteorder("="))


def check(cupy, lazy, expected):
    """Judge everything that a lazy array says of itself, and what it computes."""
    assert (lazy.dtype, lazy.shape) == (expected.dtype, expected.shape)
    assert (lazy._meta.dtype, lazy._meta.ndim) == (expected.dtype, expected.ndim)
    with dask.config.set(scheduler="threads", num_workers=2):
        block = lazy.compute()
    if lazy.ndim:  # the fake one's single elements are NumPy's scalars
        assert isinstance(lazy._meta, cupy.ndarray)
        assert isinstance(block, cupy.ndarray)
    assert block.dtype == expected.dtype
    np.testing.assert_array_equal(block.get() if lazy.ndim else block.item(), expected)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [*NUMBERS, *OTHERS])
def test_every_dtype_is_said_to_be_what_arrives(cupy, tmp_path, dtype, order):
    array = sample(dtype, (23, 7), order)
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy", chunks=(10, 4), device="gpu")
    expected = on_device(array)
    assert x.chunks[:2] == ((10, 10, 3), (4, 3))
    assert x.chunks[2:] == tuple((n,) for n in expected.shape[2:])
    check(cupy, x, expected)
    for index in (3, (slice(2, 9), -1), [20, 4, 5], slice(None, None, -3)):
        check(cupy, x[index], expected[index])


@pytest.mark.parametrize("dtype", ["<f4", "S3"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0)])
def test_empty_arrays_and_single_elements_arrive(cupy, tmp_path, dtype, shape):
    array = sample(dtype, shape)
    np.save(tmp_path / "x.npy", array)
    check(cupy, mm.from_npy(tmp_path / "x.npy", device="gpu"), on_device(array))


@pytest.mark.parametrize("field", RECORD.names)
def test_fields_arrive_as_what_the_device_can_count(cupy, tmp_path, field):
    array = sample(RECORD, (20,))
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy", chunks=7, device="gpu")
    expected = on_device(array[field])
    for lazy in (x[field], mm.from_npy(tmp_path / "x.npy", chunks=7, device="gpu", field=field)):
        assert lazy.chunks[0] == (7, 7, 6)
        check(cupy, lazy, expected)
        check(cupy, lazy[5:9], expected[5:9])
        check(cupy, lazy[[17, 2]], expected[[17, 2]])


def test_rows_far_apart_are_joined_on_the_device(cupy, tmp_path):
    array = sample(">f4", (50, 40_000))
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy", device="gpu", io="pread")
    check(cupy, x[[3, 40, 41, 1]], on_device(array)[[3, 40, 41, 1]])


def test_what_is_computed_stays_on_the_device(cupy, tmp_path):
    array = sample(">i4", (100, 10))
    np.save(tmp_path / "x.npy", array)
    x = mm.from_npy(tmp_path / "x.npy", chunks=30, device="gpu")
    check(cupy, x.map_blocks(lambda block: block + 1, dtype=x.dtype), on_device(array) + 1)


@pytest.mark.parametrize("dtype", ["<f4", ">M8[s]", "S3"])
def test_load_brings_a_region_and_fills_out(cupy, tmp_path, dtype):
    array = sample(dtype, (20, 30), "F")
    np.save(tmp_path / "x.npy", array)
    region, expected = (slice(3, 17), slice(5, None)), on_device(array[3:17, 5:])
    block = mm.load(tmp_path / "x.npy", region, device="gpu")
    assert isinstance(block, cupy.ndarray)
    np.testing.assert_array_equal(cupy.asnumpy(block), expected)
    for device in ("gpu", "auto"):  # auto: where out lies
        out = cupy.empty(expected.shape, expected.dtype)
        with dask.config.set({"array.backend": "numpy"}):
            assert mm.load(tmp_path / "x.npy", region, device=device, out=out) is out
        np.testing.assert_array_equal(cupy.asnumpy(out), expected)
    with pytest.raises(DeviceError, match="make it"):
        mm.load(tmp_path / "x.npy", region, device="gpu", out=cupy.empty((2,), "u1"))
    with pytest.raises(PlanError, match="io must be"):
        mm.load(tmp_path / "x.npy", region, device="gpu", io="mmpa")
    host = np.empty(array[region].shape, dtype, order="F")
    assert mm.load(tmp_path / "x.npy", region, out=host) is host  # auto, beside a GPU


def test_a_buffer_is_shown_to_the_device(cupy):
    array = sample(">i2", (30,))
    block = mm.to_device(array.data.cast("B"), ">i2", device="gpu")
    assert isinstance(block, cupy.ndarray)
    np.testing.assert_array_equal(cupy.asnumpy(block), array)


# What fits: a fake device of a known size.


@pytest.fixture
def device(monkeypatch):
    """Install a fake device of a megabyte, whose ring is small."""

    def install(**traits):
        module = make(**traits)
        monkeypatch.setitem(sys.modules, "cupy", module)
        small = ring.RingSpec(slots=2, slot_nbytes=2**14)
        monkeypatch.setattr(ring, "RING", small)
        monkeypatch.setitem(transfers.upload.__kwdefaults__, "ring", small)
        forget_devices()
        return module

    yield install
    forget_devices()


@pytest.mark.parametrize("dtype", ["<f8", ">f8"])
@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_file_ten_times_the_device_goes_through_it(device, tmp_path, dtype, num_workers):
    fake = device(total=2**20)
    array = np.arange(10 * 2**17, dtype=dtype).reshape(-1, 256)
    np.save(tmp_path / "x.npy", array)
    with dask.config.set(scheduler="threads", num_workers=num_workers):
        x = mm.from_npy(tmp_path / "x.npy", device="gpu")
        sums = x.map_blocks(lambda block: block.sum(axis=1).get(), drop_axis=1, dtype="f8")
        seen = []
        for _ in range(3):
            np.testing.assert_array_equal(sums.compute(), array.sum(axis=1))
            seen.append(fake.memory.live)
    assert seen == [0, 0, 0]
    assert 2**16 < fake.memory.peak <= 2**20 // 2  # half is left for what is computed


@pytest.mark.gpu
def test_a_file_ten_times_the_memory_goes_through_a_real_device(tmp_path):
    if devices.count() == 0:
        pytest.skip("no CUDA device answers")
    cupy = devices.cupy_module()
    array = np.arange(80 * 2**20, dtype=">f8").reshape(-1, 1024)
    np.save(tmp_path / "x.npy", array)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=64 * 2**20)
    try:
        with dask.config.set(scheduler="threads", num_workers=2):
            x = mm.from_npy(tmp_path / "x.npy", device="gpu")
            sums = x.map_blocks(lambda block: block.sum(axis=1).get(), drop_axis=1, dtype="f8")
            used = []
            for _ in range(3):
                np.testing.assert_allclose(sums.compute(), array.sum(axis=1))
                used.append(pool.used_bytes())
        assert used[0] == used[1] == used[2]
    finally:
        pool.set_limit(size=0)


def test_chosen_chunks_fit_and_follow_the_memory_that_is_said(device, tmp_path):
    device()
    np.save(tmp_path / "x.npy", np.zeros((4096, 256)))
    path = tmp_path / "x.npy"

    def largest(**options):
        plan = mm.from_npy(path, device="gpu", **options).chunks
        return 8 * max(plan[0]) * max(plan[1])

    with dask.config.set(scheduler="sync"):
        assert largest() == 8 * 2**20  # all of it: plenty is free
        assert 2**18 <= largest(device_memory="1 MiB") <= 2**19
        assert largest(device_memory=2**20) == largest(device_memory="1 MiB")
        assert largest(device_memory=2**20, chunks=(16, "auto")) <= 2**19
    with dask.config.set(scheduler="threads", num_workers=4):
        assert largest(device_memory="1 MiB") <= 2**17
    with dask.config.set(scheduler="sync"):  # the CPU does not care
        assert mm.from_npy(path, device="cpu", device_memory=1).npartitions == 1


def test_chunks_that_cannot_fit_are_refused_before_the_run(device, tmp_path):
    device(total=2**20)
    path = tmp_path / "x.npy"
    np.save(path, np.zeros((4096, 256)))
    with dask.config.set(scheduler="threads", num_workers=4):
        mm.from_npy(path, chunks=(100, -1), device="gpu")
        says = (
            r"x\.npy: 4 tasks at once take 3,276,800 bytes .*chunk of 819,200.* 1,048,576 are there"
        )
        with pytest.raises(DeviceError, match=says):
            mm.from_npy(path, chunks=(400, -1), device="gpu")
        mm.from_npy(path, chunks=(400, -1), device="gpu", device_memory=3_276_800)
        np.save(tmp_path / "big.npy", np.zeros((4096, 256), ">f8"))
        with pytest.raises(DeviceError, match="a ring of 65,536"):  # to turn numbers around in
            mm.from_npy(tmp_path / "big.npy", (400, -1), device="gpu", device_memory=3_276_800)
        with pytest.raises(DeviceError, match="take"):
            mm.from_npy(path, device="gpu", device_memory=100)
        with pytest.raises(PlanError, match="'much' is no number of bytes"):
            mm.from_npy(path, device="gpu", device_memory="much")
    with dask.config.set(scheduler="sync"):
        mm.from_npy(path, chunks=(400, -1), device="gpu")


def test_windows_are_rationed_with_their_halos_and_results(device, tmp_path):
    device(total=2**20)
    array = np.arange(4096.0 * 256).reshape(4096, 256)
    np.save(tmp_path / "x.npy", array)
    with dask.config.set(scheduler="threads", num_workers=2):
        means = mm.sliding_window(tmp_path / "x.npy", 9, device="gpu")
        rows = max(means.chunks[0]) + 8
        assert 2**16 <= rows * 256 * 8 <= 2**18
        says = r"chunk of 1,024,000, a halo of 16,384 and a result of 1,024,000"
        with pytest.raises(DeviceError, match=says):
            mm.sliding_window(tmp_path / "x.npy", 9, device="gpu", chunks=(500, -1))
        mm.sliding_window(tmp_path / "x.npy", 9, device="cpu", chunks=(500, -1))


def test_decoded_samples_and_fields_are_counted_beside_their_chunk(device, tmp_path):
    device()
    np.zeros(2**20, "u1").tofile(tmp_path / "x.iq")
    with dask.config.set(scheduler="sync"):
        mm.from_raw(tmp_path / "x.iq", "u1", chunks=-1, device="gpu", device_memory="2 MiB")
        with pytest.raises(DeviceError, match=r"a chunk of 1,048,576, .* result of 5,242,880"):
            mm.from_raw(tmp_path / "x.iq", "cu8", chunks=-1, device="gpu", device_memory="5 MB")
        options = {"device": "gpu", "device_memory": "1400 kB", "chunks": -1}
        pair = [("a", "u1"), ("b", "u1")]
        mm.from_raw(tmp_path / "x.iq", pair, **options)
        with pytest.raises(DeviceError, match="result of 524,288"):
            mm.from_raw(tmp_path / "x.iq", pair, field="a", **options)


def test_the_limit_of_the_pool_is_a_limit(device):
    fake = device(total=2**20, limit=1000)
    held = fake.empty((100,), "u1")
    assert devices.memory().free == 900
    assert rationing.device_nbytes(None) == 900
    del held


def test_a_field_of_samples_is_refused(device, tmp_path):
    device()
    np.zeros(100, "u1").tofile(tmp_path / "x.iq")
    with pytest.raises(LayoutError, match="no field 'i' in complex64"):
        mm.from_raw(tmp_path / "x.iq", "cu8", field="i", device="gpu")

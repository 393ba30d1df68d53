"""Arrays onto a device and back: on a fake one that copies late, and on a real one where there is.

The fake one runs everywhere; what it cannot know (CUDA itself) is asked of a GPU, case by case.
"""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import dask
import numpy as np
import pytest

from mmchunks.errors import DeviceError
from mmchunks.files.raw import sample_type
from mmchunks.gpu import devices, gds, ring, transfers
from mmchunks.gpu.forms import Fields
from mmchunks.gpu.ring import RingSpec
from tests.conftest import forget_devices
from tests.fakecupy import make

SMALL = RingSpec(slots=2, slot_nbytes=64)


@pytest.fixture
def fake(monkeypatch):
    """Install a fake CuPy, made to order."""

    def install(**traits):
        module = make(**traits)
        monkeypatch.setitem(sys.modules, "cupy", module)
        forget_devices()
        return module

    yield install
    forget_devices()


def real_cupy():
    cupy = pytest.importorskip("cupy")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0
    if count == 0:
        pytest.skip("no CUDA device answers")
    return cupy


@pytest.fixture(params=["fake", pytest.param("gpu", marks=pytest.mark.gpu)])
def cupy(request, fake):
    if request.param == "fake":
        return fake()
    forget_devices()
    return real_cupy()


def stream_of(stored, order):
    """Read from the dense bytes of an array, as a file would be read."""
    data = stored.tobytes(order)

    def fill(start, memory):
        memory[:] = data[start : start + len(memory)]

    return len(data), fill


def send(stored, order="C", **options):
    options = {"ring": SMALL} | options
    nbytes, fill = stream_of(stored, order)
    return transfers.upload(nbytes, fill, stored.shape, stored.dtype, order, **options)


def sample(dtype, shape, order="C"):
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(0)
    if dtype.kind in "fc":
        values = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.kind == "c" else 0)
        return np.asarray(values.astype(dtype), order=order)
    raw = rng.integers(0, 2 if dtype == "?" else 100, (*shape, dtype.itemsize), "u1")
    return np.asarray(np.ndarray(shape, dtype, raw.tobytes()), order=order)


NUMBERS = ["?", "i1", "u1", *(o + k + s for o in "<>" for k in "iu" for s in "248")]
NUMBERS += [o + k for o in "<>" for k in ("f2", "f4", "f8", "c8", "c16")]


@pytest.mark.parametrize("readers", [1, 3])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_every_number_arrives_as_numpy_has_it(cupy, dtype, order, readers):
    for shape in [(), (0, 3), (1,), (7, 11), (3, 4, 5)]:
        stored = sample(dtype, shape)
        block = send(stored, order, readers=readers)
        assert block.shape == shape
        assert block.dtype == stored.dtype.newbyteorder("=")
        assert block.flags.c_contiguous if order == "C" else block.flags.f_contiguous
        np.testing.assert_array_equal(cupy.asnumpy(block), stored)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["S3", "V5", "U2", "u1,<i4,>f8"])
def test_what_a_device_cannot_count_arrives_as_bytes(cupy, dtype, order):
    stored = sample(dtype, (5, 7))
    block = cupy.asnumpy(send(stored, order))
    raw = np.frombuffer(stored.tobytes(), "u1").reshape(5, 7, stored.dtype.itemsize)
    np.testing.assert_array_equal(block, raw)


def test_fields_and_samples_are_decoded_on_the_device(cupy):
    stored = sample([("a", "u1"), ("b", ">i4"), ("c", "<f8")], (5, 7))
    fields = Fields(send(stored), stored.dtype, cupy)
    for name in stored.dtype.names:
        np.testing.assert_array_equal(cupy.asnumpy(fields[name]), stored[name])
    for name in ["ci16_le", "ci32_be", "cu8", "ci8"]:
        samples = sample_type(name)
        stored = sample(samples.stored, (30,))
        block = samples.decode(Fields(send(stored), stored.dtype, cupy), cupy)
        assert block.dtype == "c8"
        np.testing.assert_array_equal(cupy.asnumpy(block), samples.decode(stored, np))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "S3"])
def test_out_is_filled_whatever_its_own_order(cupy, dtype, order):
    stored = sample(dtype, (6, 10))
    expected = cupy.asnumpy(send(stored, order))
    for made in "CF":
        out = cupy.asarray(np.zeros(expected.shape, expected.dtype))
        out = out if made == "C" else cupy.asarray(np.zeros_like(expected.T)).T
        if dtype == "S3" and made == "F":
            out = cupy.asarray(np.zeros((10, 6, 3), "u1")).transpose(1, 0, 2)
        assert send(stored, order, out=out) is out
        np.testing.assert_array_equal(cupy.asnumpy(out), expected)
    part = cupy.asarray(np.zeros((8, *expected.shape[1:]), expected.dtype))
    send(stored, order, out=part[1:7])
    np.testing.assert_array_equal(cupy.asnumpy(part)[1:7], expected)
    assert not cupy.asnumpy(part)[[0, 7]].any()


def test_out_that_does_not_fit_is_refused_with_what_would(cupy):
    stored = sample(">i2", (4, 3))
    with pytest.raises(DeviceError, match=r"out is a ndarray; device=.gpu. fills a cupy.ndarray"):
        send(stored, out=np.zeros((4, 3), "i2"))
    with pytest.raises(DeviceError, match=r"make it int16 of shape \(4, 3\)"):
        send(stored, out=cupy.asarray(np.zeros((3, 4), "i2")))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_a_block_goes_back_into_a_file_in_the_files_order_and_byte_order(cupy, dtype, order):
    for shape in [(), (0, 3), (7, 11), (3, 4, 5)]:
        stored = sample(dtype, shape)
        block = cupy.asarray(stored.astype(stored.dtype.newbyteorder("=")))
        for given in (block, block.T.copy().T):
            written = bytearray()

            def write(start, memory, written=written):
                assert start == len(written)
                written.extend(memory)

            transfers.download(given, stored.dtype, order, write, ring=SMALL)
            assert bytes(written) == stored.tobytes(order)
            np.testing.assert_array_equal(cupy.asnumpy(given), stored)  # and is left alone


def test_a_stream_of_the_users_waits_for_the_copies(cupy):
    stored = sample("f8", (500,))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        block = send(stored) * 2
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(block), stored * 2)


def test_an_error_while_reading_comes_through_and_the_ring_goes_on(cupy):
    def fill(start, memory):
        msg = "x.npy: the file was truncated"
        raise OSError(msg)

    for readers in (1, 3):
        with pytest.raises(OSError, match="truncated"):
            transfers.upload(500, fill, (500,), np.dtype("u1"), "C", readers=readers, ring=SMALL)
        stored = sample("u1", (500,))
        np.testing.assert_array_equal(cupy.asnumpy(send(stored, readers=readers)), stored)


def test_memory_of_the_device_is_told(cupy):
    there = devices.memory()
    assert 0 < there.free <= there.total


def test_the_time_of_an_upload_is_measured(cupy):
    assert devices.seconds(lambda: send(sample("f4", (1000,)))) > 0


# What a GPU does behind one's back, on the fake one.


def test_our_stream_waits_for_the_users_before_the_first_copy_and_theirs_for_ours_after(fake):
    cupy = fake()
    send(sample("u1", (200,)))
    ours = next(entry[1] for entry in cupy.log if entry[0] == "copy")
    assert ours != 0
    assert cupy.log[0] == ("wait", ours, 0)
    assert cupy.log[-1] == ("wait", 0, ours)
    assert [entry for entry in cupy.log if entry[0] == "copy"] == [
        ("copy", ours, 64), ("copy", ours, 64), ("copy", ours, 64), ("copy", ours, 8)
    ]  # fmt: skip


def test_no_copy_is_under_way_when_an_error_comes_out(fake):
    cupy = fake()

    def fill(start, memory):
        if start:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transfers.upload(500, fill, (500,), np.dtype("u1"), "C", ring=SMALL)
    assert cupy.log[-1][0] == "synchronize"
    with pytest.raises(KeyboardInterrupt):
        transfers.download(cupy.asarray(np.ones(500, "u1")), np.dtype("u1"), "C", fill, ring=SMALL)
    assert cupy.log[-1][0] == "synchronize"


def test_a_ring_is_made_once_for_a_device(fake):
    cupy = fake()
    for _ in range(3):
        send(sample("u1", (200,)))
    assert len(cupy.locked) == SMALL.slots


def test_too_little_page_locked_memory_is_said_once_and_pageable_memory_serves(fake):
    cupy = fake(pinned_nbytes=100)
    stored = sample(">f8", (500,))
    with pytest.warns(RuntimeWarning, match="page-locked memory was refused") as said:
        block = send(stored)
    assert len(said) == 1
    np.testing.assert_array_equal(cupy.asnumpy(block), stored)
    send(stored, ring=RingSpec(slots=3, slot_nbytes=64))


def test_out_of_memory_is_a_sentence_with_the_numbers(fake):
    fake(total=1000)
    with pytest.raises(DeviceError, match="takes 2,000 bytes, and the GPU has 1,000 free of 1,000"):
        send(sample("u1", (2000,)))


def test_plain_workers_use_the_gpu_of_their_rank_and_refuse_when_there_is_none(fake, monkeypatch):
    cupy = fake(devices=2)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    block = send(sample("f4", (100,)), readers=3)
    assert block.device.id == 1
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(DeviceError, match="out lies on GPU 1, this process computes on GPU 0"):
        send(sample("f4", (100,)), out=block)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(DeviceError, match="at most 2 workers"):
        devices.place()
    assert cupy.cuda.runtime.getDevice() == 0


def test_the_name_of_the_dask_worker_decides_too_and_dask_cuda_has_decided(fake, monkeypatch):
    fake(devices=4)
    worker = SimpleNamespace(name=3)
    monkeypatch.setitem(
        sys.modules, "distributed.worker", SimpleNamespace(get_worker=lambda: worker)
    )
    assert devices.place() == 3
    monkeypatch.setitem(sys.modules, "dask_cuda.initialize", SimpleNamespace())
    assert devices.place() == 0


def test_outside_of_a_task_there_is_no_worker(fake, monkeypatch):
    def get_worker():
        raise ValueError

    fake(devices=4)
    monkeypatch.setitem(sys.modules, "distributed.worker", SimpleNamespace(get_worker=get_worker))
    assert devices.place() == 0


def test_a_forked_process_is_refused(fake, monkeypatch):
    fake()
    devices.place()
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(DeviceError, match=r"forked .* start workers with"):
        devices.place()


def test_without_cupy_the_cpu_is_chosen_and_a_gpu_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    forget_devices()
    assert devices.count() == 0
    assert devices.chosen_device("auto") == "cpu"
    with pytest.raises(DeviceError, match=r"mmchunks\[cuda13\]"):
        devices.chosen_device("gpu")
    with pytest.raises(DeviceError, match=r"mmchunks\[cuda13\]"):
        devices.place()


def test_without_a_device_the_cpu_is_chosen_and_a_gpu_refused(fake):
    fake(devices=0)
    assert devices.chosen_device("auto") == "cpu"
    with pytest.raises(DeviceError, match="none answers"):  # noqa: SIM117
        with dask.config.set({"array.backend": "cupy"}):
            devices.chosen_device("auto")
    with pytest.raises(DeviceError, match="none answers"):
        devices.place()


def test_with_a_device_it_is_chosen(fake, monkeypatch):
    fake()
    assert [devices.chosen_device(asked) for asked in ("auto", "gpu", "cpu")] == [
        "gpu",
        "gpu",
        "cpu",
    ]
    monkeypatch.setattr(devices, "chosen_backend", lambda: "numpy")  # as in a configuration file
    assert devices.chosen_device("auto") == "cpu"


def test_text_is_not_written_from_a_device(fake):
    cupy = fake()
    with pytest.raises(DeviceError, match=r"no numbers of type \|S3"):
        transfers.download(cupy.asarray(np.zeros(3)), np.dtype("S3"), "C", lambda *_: None)


# Maps that a device reaches by itself.


def test_a_device_that_addresses_pageable_memory_is_given_the_map_itself(fake):
    fake(attributes=[88])
    array = np.arange(12.0).reshape(3, 4)[:, 1:]
    block = devices.addressable(array)
    np.testing.assert_array_equal(block, array)
    array[1, 1] = -1
    assert block[1, 1] == -1
    for other in (array.astype(">f8"), np.zeros(3, "S2"), np.zeros(9, "u1")[1:].view("f8")):
        with pytest.raises(DeviceError, match="cannot use"):
            devices.addressable(other)
    fake()
    with pytest.raises(DeviceError, match="does not address pageable memory"):
        devices.addressable(array)


# GPUDirect Storage


@pytest.mark.parametrize("offset", [0, 10, 4096, 5000])
@pytest.mark.parametrize("nbytes", [0, 100, 4096, 20_000])
def test_gds_reads_the_whole_pages_and_the_ring_the_edges(
    fake, monkeypatch, tmp_path, offset, nbytes
):
    cupy = fake()
    content = np.random.default_rng(0).integers(0, 256, 30_000, "u1")
    path = tmp_path / "x.bin"
    content.tofile(path)
    asked = []

    class CuFile:
        def __init__(self, path, _):
            self.path = path

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def pread(self, data, size, offset):
            assert offset % 4096 == size % 4096 == 0
            asked.append(size)
            data[:] = np.fromfile(self.path, "u1", size, offset=offset)
            return SimpleNamespace(get=lambda: size)

    monkeypatch.setitem(sys.modules, "kvikio", SimpleNamespace(CuFile=CuFile))
    stored = content[offset : offset + nbytes]
    filled = []
    length, fill = stream_of(stored, "C")

    def counted(start, memory):
        filled.append(len(memory))
        fill(start, memory)

    direct = gds.plan_direct(str(path), offset, nbytes, 4096)
    block = transfers.upload(
        length, counted, (nbytes,), stored.dtype, "C", direct=direct, ring=SMALL
    )
    np.testing.assert_array_equal(cupy.asnumpy(block), stored)
    assert sum(asked) + sum(filled) == nbytes
    assert sum(filled) < 2 * 4096


def test_fewer_bytes_by_gds_than_asked_are_an_error(fake, monkeypatch):
    class CuFile:
        __init__ = __exit__ = lambda *_: None
        __enter__ = lambda self: self
        pread = lambda *_: SimpleNamespace(get=lambda: 7)

    fake()
    monkeypatch.setitem(sys.modules, "kvikio", SimpleNamespace(CuFile=CuFile))
    direct = gds.plan_direct("x.bin", 0, 8192, 4096)
    with pytest.raises(DeviceError, match=r"x\.bin: 8,192 bytes were asked for, 7 came"):
        transfers.upload(8192, lambda *_: None, (8192,), np.dtype("u1"), "C", direct=direct)


@pytest.mark.parametrize(
    ("compat", "available", "says"),
    [(True, True, "compatibility mode"), (False, False, "nvidia-fs"), (False, True, None)],
)
def test_gds_is_refused_with_its_reason(monkeypatch, compat, available, says):
    defaults = SimpleNamespace(is_compat_mode_preferred=lambda: compat)
    driver = SimpleNamespace(get=lambda _: available)
    kvikio = SimpleNamespace(defaults=defaults, cufile_driver=driver)
    for name, module in [("", kvikio), (".defaults", defaults), (".cufile_driver", driver)]:
        monkeypatch.setitem(sys.modules, f"kvikio{name}", module)
    why = gds.refusal()
    assert why is None if says is None else says in why


def test_gds_without_kvikio_or_a_driver_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "kvikio", None)
    monkeypatch.setitem(sys.modules, "kvikio.cufile_driver", None)
    assert "mmchunks[cuda13]" in gds.refusal()

    def refuse():
        msg = "libcufile.so not found"
        raise RuntimeError(msg)

    defaults = SimpleNamespace(is_compat_mode_preferred=refuse)
    for name in ["kvikio", "kvikio.defaults", "kvikio.cufile_driver"]:
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(defaults=defaults))
    assert "libcufile.so" in gds.refusal()


# Asked of a GPU only.


ONE_OF_TWO = """
import sys
import numpy as np
from mmchunks.gpu import ring, transfers

stored = np.random.default_rng(int(sys.argv[1])).integers(0, 100, 10**6)
data = memoryview(stored.view("u1"))


def fill(start, memory):
    memory[:] = data[start : start + len(memory)]


for _ in range(20):
    block = transfers.upload(stored.nbytes, fill, stored.shape, stored.dtype, "C", readers=2)
    assert int(block.sum()) == int(stored.sum())
"""


@pytest.mark.gpu
def test_two_processes_share_one_gpu():
    real_cupy()
    running = [subprocess.Popen([sys.executable, "-c", ONE_OF_TWO, seed]) for seed in "12"]
    assert [process.wait(120) for process in running] == [0, 0]


@pytest.mark.gpu
def test_more_than_the_gpu_has_is_refused_and_what_fits_still_comes():
    cupy = real_cupy()
    forget_devices()
    total = devices.memory().total
    with pytest.raises(DeviceError, match="free of"):
        transfers.upload(2 * total, lambda *_: None, (2 * total,), np.dtype("u1"), "C")
    stored = sample("f4", (10**6,))
    np.testing.assert_array_equal(cupy.asnumpy(send(stored, ring=ring.RING)), stored)


@pytest.mark.gpu
def test_ten_times_the_ring_and_more_passes_through_without_growing():
    cupy = real_cupy()
    forget_devices()
    stored = sample("f4", (2**22,))
    for _ in range(3):
        send(stored, ring=ring.RING)
    cupy.cuda.runtime.deviceSynchronize()
    before = devices.memory().free
    for _ in range(50):
        send(stored, ring=ring.RING)
    cupy.cuda.runtime.deviceSynchronize()
    assert devices.memory().free >= before - 2**21

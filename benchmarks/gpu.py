"""Does the GPU half of mmchunks keep its promises on this machine, and how fast is it?

    python benchmarks/gpu.py [--nbytes "4 GiB"] [--dir /scratch] [--seconds 420] [--json]

Needs CuPy and no network, and ends within eight minutes. Checks come first, then figures (GB/s of
one file onto the device, cold and warm), the table last. Without a GPU the same checks run on a
CuPy of NumPy arrays that copies late, nothing is measured, and the exit status is still 0.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import mmap
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
from dask.utils import parse_bytes
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import mmchunks
from mmchunks.errors import DeviceError
from mmchunks.files.preading import read_range
from mmchunks.files.raw import sample_type
from mmchunks.gpu import devices, gds, ring, transfers
from mmchunks.gpu.forms import Fields
from mmchunks.gpu.ring import RingSpec
from mmchunks.reading.opening import open_npy
from mmchunks.reading.uploading import gpu_block

PAGE = 4096
PIECE = ring.RING.slot_nbytes
SMALL = RingSpec(slots=2, slot_nbytes=4096)


def public(name):
    """A public name of mmchunks, or None while it is not there."""
    try:
        return getattr(mmchunks, name)
    except AttributeError:
        return None


def fake_cupy():
    spec = importlib.util.spec_from_file_location("fakecupy", HERE.parent / "tests/fakecupy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.make()


# Checks: each raises if a promise is broken.


def send(stored, order="C", **options):
    data = stored.tobytes(order)

    def fill(start, memory):
        memory[:] = data[start : start + len(memory)]

    options = {"ring": SMALL} | options
    return transfers.upload(len(data), fill, stored.shape, stored.dtype, order, **options)


def random(dtype, shape):
    raw = np.random.default_rng(0).integers(0, 64, (*shape, np.dtype(dtype).itemsize), "u1")
    return np.ndarray(shape, dtype, raw.tobytes())


NUMBERS = ["i1", "u1", *(o + k + s for o in "<>" for k in "iu" for s in "248")]
NUMBERS += [o + k for o in "<>" for k in ("f2", "f4", "f8", "c8", "c16")]


def check_numbers(cupy):
    for dtype in NUMBERS:
        for shape in [(), (0, 3), (10_007,), (41, 30, 20)]:
            for order in "CF":
                for readers in (1, 3):
                    stored = random(dtype, shape)
                    block = send(stored, order, readers=readers)
                    np.testing.assert_array_equal(cupy.asnumpy(block), stored)


def check_fields_and_samples(cupy):
    stored = random([("a", "u1"), ("b", ">i4"), ("c", "<f8")], (500,))
    fields = Fields(send(stored), stored.dtype, cupy)
    for name in stored.dtype.names:
        np.testing.assert_array_equal(cupy.asnumpy(fields[name]), stored[name])
    for name in ("ci16_le", "ci16_be", "cu8", "ci32_le"):
        samples = sample_type(name)
        stored = random(samples.stored, (5000,))
        block = samples.decode(Fields(send(stored), stored.dtype, cupy), cupy)
        np.testing.assert_array_equal(cupy.asnumpy(block), samples.decode(stored, np))


def check_download(cupy):
    for dtype in NUMBERS:
        for order in "CF":
            stored, written = random(dtype, (70, 110)), bytearray()
            block = cupy.asarray(stored.astype(stored.dtype.newbyteorder("=")))
            transfers.download(
                block, stored.dtype, order, lambda _, memory, to=written: to.extend(memory), ring=SMALL
            )  # fmt: skip
            assert bytes(written) == stored.tobytes(order)


def check_another_stream(cupy):
    stored = random("<i4", (200_000,))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        block = send(stored, ring=ring.RING) + 1
    stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(block), stored + 1)


def check_out_of_memory(_):
    too_much = 2 * devices.memory().total
    try:
        transfers.upload(too_much, lambda *_: None, (too_much,), np.dtype("u1"), "C")
    except DeviceError:
        send(random("u1", (1000,)))
        return
    msg = "twice the memory of the device was granted"
    raise AssertionError(msg)


def ask_a_real_one(cupy):
    if not hasattr(cupy, "__version__"):
        msg = "asks for a real GPU"
        raise NotImplementedError(msg)


def check_steady_memory(cupy):
    ask_a_real_one(cupy)
    stored = random("<f4", (2**20,))
    for _ in range(3):
        send(stored, ring=ring.RING)
    before = devices.memory().free
    for _ in range(60):
        send(stored, ring=ring.RING)
    assert devices.memory().free >= before - 2**21


def check_regions(cupy):
    regions = [slice(3, 41), (slice(None), slice(5, 9)), (slice(7, 8),) * 3, slice(0, 0)]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "x.npy")
        for dtype in ("<f4", ">f8", "<c8"):
            for order in "CF":
                array = np.asarray(random(dtype, (50, 60, 7)), order=order)
                np.save(path, array)
                source = open_npy(path)
                for index in regions:
                    region = source.layout.region(index)
                    for io in ("pread", "direct", "mmap", "gds", "auto"):
                        block = gpu_block(source, region, io=io, out=None)
                        np.testing.assert_array_equal(cupy.asnumpy(block), array[index])


def check_public_ways(cupy):
    """From files to lazy arrays on the device, and from the device to files."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "x.npy")
        for dtype in (">f4", "<c8", ">M8[s]", "S3", "u1,>i4"):
            array = random(dtype, (50, 60))
            np.save(path, array)
            x = mmchunks.from_npy(path, chunks=(20, 32), device="gpu")
            block = cupy.asnumpy(x[3:, [50, 2]].compute())
            assert block.dtype == x.dtype
            stored = array[3:, [50, 2]]
            native = stored.astype(stored.dtype.newbyteorder("="))
            raw = np.frombuffer((native if x.dtype != "u1" else stored).tobytes(), x.dtype)
            np.testing.assert_array_equal(block, raw.reshape(block.shape))
        pairs = random("<i2", (5000, 2))
        pairs.tofile(path)
        numbers = mmchunks.load_raw(path, "ci16_le", device="gpu")
        np.testing.assert_array_equal(cupy.asnumpy(numbers), pairs[:, 0] + 1j * pairs[:, 1])
        for order in "CF":
            target = mmchunks.create_npy(path, (70, 110), ">f4", order=order, overwrite=True)
            target[5:, 3:9] = cupy.asarray(np.ones((65, 6), "f4"))
            target[:3] = cupy.asarray(np.arange(110.0))
            judge = np.zeros((70, 110))
            judge[5:, 3:9], judge[:3] = 1, np.arange(110)
            np.testing.assert_array_equal(np.load(path), judge)


def check_ten_times_the_memory(cupy):
    """A file goes through a pool of a tenth of its size, thrice, and leaves nothing there."""
    ask_a_real_one(cupy)
    pool, array = cupy.get_default_memory_pool(), np.arange(80 * 2**20, dtype=">f8")
    pool.free_all_blocks()
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "x.npy", array)
        pool.set_limit(size=pool.used_bytes() + 2**26)
        try:
            used = []
            for _ in range(3):
                x = mmchunks.from_npy(Path(folder) / "x.npy", device="gpu")
                assert float(x.sum().compute()) == float(array.sum())
                used.append(pool.used_bytes())
            assert len(set(used)) == 1, used
        finally:
            pool.set_limit(size=0)


def _sum(seed, answers):
    stored = np.random.default_rng(seed).integers(0, 99, 10**6)
    answers.put(int(send(stored, ring=ring.RING).sum()) - int(stored.sum()))


def check_two_processes(cupy):
    ask_a_real_one(cupy)
    spawn = multiprocessing.get_context("spawn")
    answers = spawn.Queue()
    processes = [spawn.Process(target=_sum, args=(seed, answers)) for seed in (1, 2)]
    for process in processes:
        process.start()
    assert [answers.get(timeout=60) for _ in processes] == [0, 0]
    for process in processes:
        process.join(30)


CHECKS = {
    "numbers, orders, byte orders": check_numbers,
    "fields and radio samples": check_fields_and_samples,
    "device to file": check_download,
    "a stream other than the default": check_another_stream,
    "out of memory": check_out_of_memory,
    "memory holds steady": check_steady_memory,
    "regions of a file": check_regions,
    "lazy arrays, recordings, targets": check_public_ways,
    "a file ten times the memory": check_ten_times_the_memory,
    "two processes on one GPU": check_two_processes,
}


def run_checks(cupy):
    """Run every check; a row says "ok", "failed" or "not asked", and why."""
    rows = []
    for name, check in CHECKS.items():
        try:
            check(cupy)
        except NotImplementedError as error:
            rows.append({"check": name, "result": "not asked", "why": str(error)})
        except Exception as error:  # noqa: BLE001  a report is to name every failure
            rows.append({"check": name, "result": "failed", "why": f"{type(error).__name__}: {error}"})  # fmt: skip
        else:
            rows.append({"check": name, "result": "ok", "why": ""})
    return rows


# Figures: each way brings the whole file onto the device, or as far as its name says.


def make_file(folder, nbytes):
    path = Path(folder) / "gpu.npy"
    shape = (nbytes // 2**20, 2**18)
    block = np.random.default_rng(0).random((64, 2**18), "f4")
    with path.open("wb") as file:
        head = np.lib.format
        head.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        for start in range(0, shape[0], 64):
            file.write(block[: shape[0] - start].tobytes())
        file.flush()
        os.fsync(file.fileno())
    return str(path)


def drop(path):
    """Take a file out of the page cache."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def ring_of_preads(path, readers):
    source = open_npy(path)
    layout = source.layout
    with source.opened() as fd:
        return transfers.upload(
            layout.nbytes,
            partial(read_range, fd, layout[layout.whole].runs),
            layout.shape,
            layout.dtype,
            "C",
            readers=readers,
        )


def whole(path, io):
    reason = gds.refusal() if io == "gds" else None
    if reason:  # it would fall back, and the figure would be another way's
        raise DeviceError(reason)
    source = open_npy(path)
    return gpu_block(source, source.layout.whole, io=io, out=None)


def registered_map(cupy, path):
    array = np.load(path, mmap_mode="r")
    block = cupy.empty(array.shape, array.dtype)
    runtime, stream = cupy.cuda.runtime, cupy.cuda.get_current_stream()
    runtime.hostRegister(array.ctypes.data, array.nbytes, 8)  # 8: read-only
    try:
        runtime.memcpyAsync(block.data.ptr, array.ctypes.data, array.nbytes, 1, stream.ptr)
        stream.synchronize()
    finally:
        runtime.hostUnregister(array.ctypes.data)
    return block


def kvikio_read(cupy, path):
    import kvikio

    block = cupy.empty(Path(path).stat().st_size, "u1")
    with kvikio.CuFile(path, "r") as file:
        file.read(block)
    return block


def host_reads(path, direct):
    """Read the file into one reused buffer, and nowhere else."""
    buffer = mmap.mmap(-1, PIECE)
    fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    try:
        start = 0
        while got := os.preadv(fd, [buffer], start):
            start += got
            if got % PAGE:
                break
    finally:
        os.close(fd)


def copies(cupy, nbytes):
    """Copy as many bytes out of page-locked memory, and read nothing."""
    host = np.frombuffer(cupy.cuda.alloc_pinned_memory(PIECE), "u1", PIECE)
    block = cupy.empty(PIECE, "u1")
    stream = cupy.cuda.Stream(non_blocking=True)
    for _ in range(nbytes // PIECE):
        cupy.cuda.runtime.memcpyAsync(block.data.ptr, host.ctypes.data, PIECE, 1, stream.ptr)
    stream.synchronize()


def ways(cupy, path):
    """Every way to measure, by name. The first three are ceilings, not ways."""
    nbytes = Path(path).stat().st_size
    found = {
        "page-locked copies alone": lambda: copies(cupy, max(nbytes, PIECE)),
        "host reads alone, buffered": lambda: host_reads(path, direct=False),
        "host reads alone, O_DIRECT": lambda: host_reads(path, direct=True),
        "cupy.load": lambda: cupy.load(path),
        "cupy.asarray(memmap)": lambda: cupy.asarray(np.load(path, mmap_mode="r")),
        "kvikio.CuFile.read": lambda: kvikio_read(cupy, path),
        "registered map": lambda: registered_map(cupy, path),
    }
    for readers in (1, 2, 4):
        found[f"ring, pread x {readers}"] = lambda n=readers: ring_of_preads(path, n)
    for io in ("pread", "direct", "mmap", "gds", "auto"):
        found[f'io="{io}"'] = lambda io=io: whole(path, io)
    window = public("sliding_window")
    if window:
        found["sliding_window, 30 rows"] = lambda: window(
            path, 30, "mean", step=10, device="gpu"
        ).compute()
    return found


def measure(cupy, path, deadline, rounds):
    """GB/s of every way, cold and warm, medians of interleaved rounds; None is not measured."""
    figures = {}
    nbytes = Path(path).stat().st_size
    everything = ways(cupy, path)
    took = {name: {"cold": [], "warm": []} for name in everything}
    why = {}
    for _ in range(rounds):
        for name, way in everything.items():
            for kind in ("cold", "warm"):
                if name in why or time.monotonic() > deadline:
                    continue
                if kind == "cold":
                    drop(path)
                else:
                    host_reads(path, direct=False)
                try:
                    took[name][kind].append(devices.seconds(way))
                except Exception as error:  # noqa: BLE001  one way says nothing of the others
                    why[name] = f"{type(error).__name__}: {error}"
                cupy.get_default_memory_pool().free_all_blocks()
    for name, times in took.items():
        figures[name] = {
            kind: nbytes / statistics.median(times[kind]) / 1e9 if times[kind] else None
            for kind in ("cold", "warm")
        } | {"why": why.get(name, "")}
    return figures


def goals(figures):
    """The three promises about speed, each only if everything in it was measured."""

    def best(kind, *starts):
        values = [f[kind] for name, f in figures.items() if name.startswith(starts) and f[kind]]
        return max(values, default=None)

    ours = ("io=", "ring,")
    rows = [
        ("warm, of the smaller ceiling", best("warm", *ours), 0.9, [best("warm", "page-locked"), best("warm", "host reads")]),
        ("warm, of cupy.load", best("warm", *ours), 3.0, [best("warm", "cupy.load")]),
        ("cold, of the raw disk", best("cold", *ours), 0.9, [best("cold", "host reads")]),
    ]  # fmt: skip
    return {
        name: {"ratio": value / min(against), "goal": goal}
        for name, value, goal, against in rows
        if value and all(against)
    }


def describe(cupy):
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(devices.place())
    return {
        "gpu": properties["name"].decode(),
        "cupy": cupy.__version__,
        "cuda": runtime.runtimeGetVersion(),
        "gds": gds.refusal() or "works",
        "total": devices.memory().total,
    }


def show(console, report):
    checks = Table("check", "result", "why", title=f"checks on {report['on']}")
    for row in report["checks"]:
        checks.add_row(row["check"], row["result"], row["why"])
    console.print(checks)
    if not report["figures"]:
        console.print("No GPU answers here: nothing was measured.")
        return
    console.print(report["machine"])
    table = Table("way", "cold GB/s", "warm GB/s", "why not", title=f"{report['nbytes']:,} bytes")
    for name, figure in report["figures"].items():
        cells = [f"{figure[k]:.2f}" if figure[k] else "not measured" for k in ("cold", "warm")]
        table.add_row(name, *cells, figure["why"])
    for name, goal in report["goals"].items():
        table.add_row(name, "", f"{goal['ratio']:.2f} x", f"goal {goal['goal']} x")
    console.print(table)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nbytes", type=parse_bytes, default="4 GiB", help="size of the file")
    parser.add_argument("--dir", default=None, help="folder on the disk to measure")
    parser.add_argument("--seconds", type=float, default=420, help="time for all of it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the report as the last line")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + options.seconds
    real = devices.count() > 0
    if not real:
        sys.modules["cupy"] = fake_cupy()
        devices.count.cache_clear()
    cupy = devices.cupy_module()
    report = {
        "on": "the GPU" if real else "a CuPy of NumPy arrays (no GPU answers here)",
        "nbytes": options.nbytes,
        "checks": run_checks(cupy),
        "machine": describe(cupy) if real else {},
        "figures": {},
        "goals": {},
    }
    if real:
        with tempfile.TemporaryDirectory(dir=options.dir) as folder:
            fitting = devices.memory().free // 3 // 2**20 * 2**20
            report["nbytes"] = min(options.nbytes, fitting)
            path = make_file(folder, report["nbytes"])
            report["figures"] = measure(cupy, path, deadline, options.rounds)
            report["goals"] = goals(report["figures"])
    show(Console(width=None if sys.stdout.isatty() else 140), report)
    if options.json:
        print(json.dumps(report))
    return int(any(row["result"] == "failed" for row in report["checks"]))


if __name__ == "__main__":
    sys.exit(main())

"""How fast does a sweep fill a file? Beside raw writes of the same bytes, and what people use.

    python benchmarks/fill.py [--nbytes "8 GiB"] [--rounds 3] [--dir /scratch] [--json]

Every way lets two processes (threads, where it knows no processes) compute the same rows and write
them. The clock stops when all bytes are on stable storage: what a way leaves in the page cache is
flushed at its end. Rounds are interleaved in shuffled order, because disks drift: read the ratios.
Told besides: what each of 100,000 tiny scenarios costs, and the memory that a worker needs.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import mmap
import multiprocessing
import os
import random
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import dask
import dask.array as da
import numpy as np
from dask.utils import parse_bytes

from mmchunks.filling.storing import to_npy
from mmchunks.filling.sweeping import sweep
from mmchunks.writing.targets import create_npy

WORKERS = 2
CHUNK = 64  # rows


def row(number, columns, *, out):
    """Compute one row, as fast as memory allows."""
    assert out.size == columns
    out[:] = number


def tiny(number):
    return number


def chunk(start, columns):
    """Compute the rows of one chunk, as an array of its own."""
    return np.repeat(np.arange(start, start + CHUNK, dtype="f4")[:, None], columns, axis=1)


@functools.lru_cache(maxsize=1)
def room(columns):
    """Memory for one chunk, on a page boundary, that this process uses again and again."""
    return np.frombuffer(mmap.mmap(-1, CHUNK * columns * 4), "f4").reshape(CHUNK, columns)


def shares(pool, work, rows, *args):
    """Let each process do `work` for its half of the chunks."""
    starts = range(0, rows, CHUNK)
    halves = [starts[i * len(starts) // WORKERS : (i + 1) * len(starts) // WORKERS] for i in (0, 1)]
    for future in [pool.submit(work, half, *args) for half in halves]:
        future.result()


def raw_part(starts, path, columns, flags):
    fd, block = os.open(path, os.O_RDWR | flags), room(columns)
    for start in starts:
        for number, out in enumerate(block, start=start):
            row(number, columns, out=out)
        os.pwrite(fd, block.reshape(-1).view("u1").data, 4096 + start * columns * 4)
        os.fdatasync(fd)
    os.close(fd)


def raw_direct(pool, path, rows, columns):
    """The bound: whole chunks past the page cache, each flushed."""
    create_npy(path, (rows, columns), "f4")
    shares(pool, raw_part, rows, path, columns, os.O_DIRECT)


def raw_cached(pool, path, rows, columns):
    """Whole chunks through the page cache, each flushed."""
    create_npy(path, (rows, columns), "f4")
    shares(pool, raw_part, rows, path, columns, 0)


def ours_sweep(pool, path, rows, columns):
    scenarios = {"number": range(rows), "columns": [columns]}
    options = {"into": True, "shape": columns, "dtype": "f4", "progress": False}
    sweep(row, scenarios, path, executor=pool, **options)


def ours_to_npy(pool, path, rows, columns):
    with dask.config.set(scheduler="processes", pool=pool):
        to_npy(dask_array(rows, columns), path, progress=False)


def memmap_part(starts, path, shape):
    array = np.memmap(path, "f4", "r+", shape=shape)
    for start in starts:
        for number in range(start, start + CHUNK):
            row(number, shape[1], out=array[number])
    array.flush()


def memmap_pool(pool, path, rows, columns):
    """A memmap that every process opens and fills its half of."""
    np.memmap(path, "f4", "w+", shape=(rows, columns))
    shares(pool, memmap_part, rows, path, (rows, columns))


def joblib_memmap(_pool, path, rows, columns):
    """The pattern of joblib's documentation: a memmap as output that workers write into."""
    import joblib

    out = np.memmap(path, "f4", "w+", shape=(rows, columns))
    numbers = np.array_split(np.arange(rows), rows // CHUNK)
    joblib.Parallel(WORKERS)(joblib.delayed(joblib_part)(out, part) for part in numbers)
    out.flush()


def joblib_part(out, numbers):
    for number in numbers:
        row(number, out.shape[1], out=out[number])


def dask_array(rows, columns):
    """The rows as a dask array whose chunks are computed, not read."""
    starts = da.arange(0, rows, CHUNK, chunks=1, dtype="i8")
    return starts.map_blocks(
        lambda block: chunk(int(block[0]), columns),
        dtype="f4",
        new_axis=1,
        chunks=((CHUNK,) * (rows // CHUNK), (columns,)),
        meta=np.empty((0, 0), "f4"),
    )


def da_store(_pool, path, rows, columns):
    """Threads: a memmap goes to other processes as a copy of its bytes."""
    out = np.memmap(path, "f4", "w+", shape=(rows, columns))
    with dask.config.set(scheduler="threads", num_workers=WORKERS):
        da.store(dask_array(rows, columns), out, lock=False)
    out.flush()


def da_to_zarr(pool, path, rows, columns):
    """A chunk a file, not compressed."""
    with dask.config.set(scheduler="processes", pool=pool):
        da.to_zarr(dask_array(rows, columns), path, compressors=None)
    flush_all(path)


def da_to_npy_stack(pool, path, rows, columns):
    """A chunk a file."""
    with dask.config.set(scheduler="processes", pool=pool):
        da.to_npy_stack(path, dask_array(rows, columns))
    flush_all(path)


def flush_all(folder):
    """Wait until every file of a folder is on stable storage."""
    for path in Path(folder).rglob("*"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


WAYS = [
    raw_direct,
    raw_cached,
    ours_sweep,
    ours_to_npy,
    memmap_pool,
    joblib_memmap,
    da_store,
    da_to_zarr,
    da_to_npy_stack,
]
NEEDS = {joblib_memmap: "joblib", da_to_zarr: "zarr"}


def processes():
    return ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn"))


def remove(path):
    for entry in path.parent.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def rates(folder, nbytes, rounds):
    """Give the rates of every way in bytes a second, a list of rounds each."""
    columns = max(1024, min(2**18, nbytes // (CHUNK * 4 * 2 * WORKERS) // 1024 * 1024))
    rows = max(1, nbytes // (columns * 4 * CHUNK)) * CHUNK
    ways = [way for way in WAYS if way not in NEEDS or importlib.util.find_spec(NEEDS[way])]
    found = {way.__name__: [] for way in ways}
    with processes() as pool:
        list(pool.map(room, [columns] * 2 * WORKERS))  # start them, imports and all
        for _ in range(rounds):
            for way in random.sample(ways, len(ways)):
                path = Path(folder, "out.npy")
                began = time.perf_counter()
                way(pool, str(path), rows, columns)
                found[way.__name__].append(rows * columns * 4 / (time.perf_counter() - began))
                remove(path)
    return found


def overhead(folder, count):
    """Give the milliseconds that each of many tiny scenarios costs, by how it is asked for."""
    path = Path(folder, "tiny.npy")
    found = {}
    with processes() as pool:
        list(pool.map(tiny, range(2 * WORKERS)))
        for name, scenarios in {
            "product": {"number": range(count)},
            "dicts": [{"number": number} for number in range(count)],
        }.items():
            began = time.perf_counter()
            sweep(tiny, scenarios, path, executor=pool, progress=False)
            found[name] = (time.perf_counter() - began) / count * 1e3
            remove(path)
    return found


def peak_nbytes(_):
    """Give the peak of this process; what getrusage says of it begins with its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def worker_nbytes(folder, nbytes):
    """Give how much memory a worker took for the sweep, above what it needs to be there."""
    columns, path = 2**18, Path(folder, "out.npy")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        ours_sweep(pool, str(path), CHUNK, 1)
        remove(path)
        before = pool.submit(peak_nbytes, 0).result()
        ours_sweep(pool, str(path), max(1, nbytes // (columns * 4)), columns)
        remove(path)
        return pool.submit(peak_nbytes, 0).result() - before


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nbytes", default="1 GiB", type=parse_bytes)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--tiny", default=100_000, type=int, help="how many tiny scenarios")
    parser.add_argument("--dir", help="folder to write in; else that for temporary files")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        found = rates(folder, options.nbytes, options.rounds)
        tinies = overhead(folder, options.tiny)
        memory = worker_nbytes(folder, options.nbytes)
    bound = found["raw_direct"]
    report = {
        "ways": {
            name: {
                "bytes_per_second": statistics.median(mine),
                "share_of_raw": statistics.median(a / b for a, b in zip(mine, bound, strict=True)),
            }
            for name, mine in found.items()
        },
        "milliseconds_per_tiny_scenario": tinies,
        "worker_nbytes": memory,
    }
    if options.json:
        print(json.dumps(report, indent=1))
        return
    print("\n".join(table(report)))


def table(report):
    """Write a report in lines, those of a table last."""
    for name, milliseconds in report["milliseconds_per_tiny_scenario"].items():
        yield f"{milliseconds:.3f} ms for each of many tiny scenarios, given as {name}"
    yield f"{report['worker_nbytes'] / 2**20:.0f} MiB of memory a worker, above an idle one's"
    yield f"{'way':16} {'GB/s':>6} {'of raw':>7}"
    for name, entry in sorted(report["ways"].items(), key=lambda item: -item[1]["share_of_raw"]):
        yield f"{name:16} {entry['bytes_per_second'] / 1e9:6.2f} {entry['share_of_raw']:7.2f}"


if __name__ == "__main__":
    main()

"""Sum one huge float32 file: mmchunks beside everything that people use for it today.

Every measurement runs in a process of its own, cold (file evicted from the page cache) and warm,
all variants once a round in shuffled order, because disks and machines drift: read the ratios.

    python benchmarks/sums.py --nbytes 8GiB --rounds 3 [--json]

Columns: median seconds of the compute (imports, graph building and cluster start not counted),
GB/s, share of the round's best raw read, seconds to build the graph, and the peak of anonymous
memory (what is not file pages) of the hungriest process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from harness import PeakMemory, evict, run_alone

CHUNK_NBYTES = 64 * 2**20
ROW = 4096  # elements


# --- raw reads: the bytes, and nothing done with them -------------------------------------------


def read_all(path, *, threads, piece, direct=False):
    """Read the whole file with `threads` streams into one reused buffer each."""
    import mmap

    size = os.path.getsize(path)
    fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    buffers = threading.local()

    def read(offset):
        if not hasattr(buffers, "mine"):
            buffers.mine = mmap.mmap(-1, piece)
        os.preadv(fd, [buffers.mine], offset)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, range(0, size, piece)))
    os.close(fd)


def raw(threads, piece, direct=False):
    def build(path, _folder):
        return lambda: read_all(path, threads=threads, piece=piece, direct=direct)

    return build


# --- sums ---------------------------------------------------------------------------------------


def memmap_sum(path, _folder):
    x = np.load(path, mmap_mode="r")
    return x.sum


def ours(io):
    def build(path, _folder):
        import mmchunks as mm

        rows = CHUNK_NBYTES // (4 * ROW)
        return mm.from_npy(path, chunks=(rows, -1), io=io, device="cpu").sum().compute

    return build


def from_array(path, _folder):
    import dask.array as da

    x = np.load(path, mmap_mode="r")
    return da.from_array(x, chunks=(CHUNK_NBYTES // (4 * ROW), -1), name=False).sum().compute


def _load_block(path, shape, dtype, offset, rows):
    data = np.memmap(path, mode="r", shape=shape, dtype=dtype, offset=offset)
    return data[rows]


def recipe(path, _folder):
    """Build it as dask's documentation does: one delayed memmap a block, concatenated."""
    import dask
    import dask.array as da

    x = np.load(path, mmap_mode="r")
    shape, dtype, offset = x.shape, x.dtype, x.offset
    load = dask.delayed(_load_block)
    blocks = []
    step = CHUNK_NBYTES // (4 * ROW)
    for start in range(0, shape[0], step):
        rows = slice(start, min(start + step, shape[0]))
        block = load(path, shape, dtype, offset, rows)
        blocks.append(da.from_delayed(block, (rows.stop - rows.start, *shape[1:]), dtype))
    return da.concatenate(blocks).sum().compute


def npy_stack(_path, folder):
    import dask.array as da

    return da.from_npy_stack(folder / "stack").sum().compute


def zarr(_path, folder):
    import dask.array as da

    return da.from_zarr(str(folder / "x.zarr")).sum().compute


VARIANTS = {
    "raw preadv 1 x 4 MiB": raw(1, 4 << 20),
    "raw preadv 1 x 16 MiB": raw(1, 16 << 20),
    "raw preadv 2 x 4 MiB": raw(2, 4 << 20),
    "raw preadv 2 x 16 MiB": raw(2, 16 << 20),
    "raw O_DIRECT 1 x 16 MiB": raw(1, 16 << 20, direct=True),
    "raw O_DIRECT 2 x 16 MiB": raw(2, 16 << 20, direct=True),
    "np.load(mmap).sum(), 1 core": memmap_sum,
    "mmchunks auto": ours("auto"),
    "mmchunks mmap": ours("mmap"),
    "mmchunks pread": ours("pread"),
    "mmchunks direct": ours("direct"),
    "da.from_array(memmap)": from_array,
    "dask's memmap recipe": recipe,
    "da.from_npy_stack": npy_stack,
    "da.from_zarr, uncompressed": zarr,
}
ALONE = [name for name in VARIANTS if name.startswith(("raw", "np."))]
# Each process gets its own copy of the whole array that way: it would take the machine down.
NOT_ON_A_CLUSTER = {*ALONE, "da.from_array(memmap)"}


def prepare(folder, nbytes, names):
    """Write the file, and the same numbers in the forms that the peers read."""
    rows = max(nbytes // (4 * ROW), 4)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (rows, ROW))
    step = CHUNK_NBYTES // (4 * ROW)
    rng = np.random.default_rng(0)
    for start in range(0, rows, step):
        x[start : start + step] = rng.random((1, ROW), np.float32)
    x.flush()
    if "da.from_npy_stack" in names:
        import pickle

        (folder / "stack").mkdir()
        sizes = tuple(min(step, rows - start) for start in range(0, rows, step))
        for i in range(len(sizes)):
            np.save(folder / "stack" / f"{i}.npy", x[i * step : (i + 1) * step])
        chunks = (sizes, (ROW,))
        with open(folder / "stack" / "info", "wb") as info:
            pickle.dump({"chunks": chunks, "dtype": x.dtype, "axis": 0}, info)
    if "da.from_zarr, uncompressed" in names:
        import zarr as z

        store = z.create_array(
            str(folder / "x.zarr"),
            shape=x.shape,
            dtype=x.dtype,
            chunks=(step, ROW),
            compressors=None,
        )
        for start in range(0, rows, step):
            store[start : start + step] = x[start : start + step]
    os.sync()


def fill_cache(folder):
    for file in folder.rglob("*"):
        if file.is_file():
            read_all(file, threads=1, piece=16 << 20)


def import_all():
    """Imports are paid once a process, whoever reads; they are not what is compared."""
    import dask
    import dask.array

    import mmchunks.reading.lazy

    dask.config.set(num_workers=os.cpu_count())
    assert dask.array
    assert mmchunks.reading.lazy


def measure(name, where, folder):
    """Run one variant in this process, and print what it took as JSON."""
    pids = [os.getpid()]
    client = None
    if where == "cluster":
        from distributed import Client, LocalCluster

        client = Client(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0"))
        pids += [worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()]
        client.run(import_all)
    import_all()
    start = time.perf_counter()
    compute = VARIANTS[name](str(folder / "x.npy"), folder)
    built = time.perf_counter()
    with PeakMemory(pids) as memory:
        compute()
        done = time.perf_counter()
    if client:
        client.close()
    print(json.dumps({"build": built - start, "seconds": done - built, "anonymous": memory.peak}))


def run(name, where, folder):
    return run_alone(__file__, "--one", name, "--where", where, "--folder", folder)


def compare(folder, nbytes, rounds, names, clusters):
    cases = [
        (name, where, state)
        for name in names
        for where in ("here", "cluster")
        for state in ("cold", "warm")
        if where == "here" or (clusters and name not in NOT_ON_A_CLUSTER)
    ]
    results = {case: [] for case in cases}
    for _ in range(rounds):
        for state in ("cold", "warm"):
            if state == "warm":
                fill_cache(folder)
            todo = [case for case in cases if case[2] == state]
            random.shuffle(todo)
            for case in todo:
                if state == "cold":
                    evict(folder)
                results[case].append(run(case[0], case[1], folder))
    rows = []
    for (name, where, state), measured in results.items():
        errors = [result["error"] for result in measured if "error" in result]
        row = {"variant": name, "where": where, "state": state}
        if errors:
            rows.append({**row, "error": errors[0]})
            continue
        best = [
            min(results[raw, "here", state][i]["seconds"] for raw in names if raw.startswith("raw"))
            for i in range(rounds)
        ]
        rows.append(
            {
                **row,
                "seconds": statistics.median(result["seconds"] for result in measured),
                "of_best_raw": statistics.median(
                    b / result["seconds"] for b, result in zip(best, measured, strict=True)
                ),
                "build": statistics.median(result["build"] for result in measured),
                "anonymous": max(result["anonymous"] for result in measured),
                "gb_per_s": nbytes / 1e9 / statistics.median(r["seconds"] for r in measured),
            }
        )
    return rows


def table(rows):
    names = ("variant", "where", "state", "s", "GB/s", "of best raw", "build s", "anon MiB")
    lines = ["{:30s} {:8s} {:5s} {:>7s} {:>6s} {:>11s} {:>8s} {:>9s}".format(*names)]
    for row in rows:
        head = f"{row['variant']:30s} {row['where']:8s} {row['state']:5s} "
        lines.append(
            head + f"failed: {row['error']}"
            if "error" in row
            else head + f"{row['seconds']:7.2f} {row['gb_per_s']:6.2f} {row['of_best_raw']:11.2f} "
            f"{row['build']:8.2f} {row['anonymous'] / 2**20:9.0f}"
        )
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nbytes", default="256MiB", help="size of the file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder otherwise")
    parser.add_argument("--only", nargs="*", help="variants to run (raw reads always are)")
    parser.add_argument("--no-cluster", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--where", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        measure(options.one, options.where, options.folder)
        return None
    from dask.utils import parse_bytes

    nbytes = parse_bytes(options.nbytes)
    names = [n for n in VARIANTS if not options.only or n.startswith("raw") or n in options.only]
    folder = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        prepare(folder, nbytes, names)
        rows = compare(folder, nbytes, options.rounds, names, not options.no_cluster)
    finally:
        shutil.rmtree(folder)
    print(json.dumps(rows) if options.json else table(rows))
    return rows


if __name__ == "__main__":
    main()

"""Average sliding windows over one huge float32 file: mmchunks beside dask's and xarray's ways.

    python benchmarks/sliding.py --nbytes 8GiB [--windows 10 1000 100000] [--steps 1 100] [--json]

Each way runs in a process of its own, on a cluster of two worker processes, and is given a time
limit. Printed are seconds of the compute, tasks of the graph, bytes sent between workers, and the
peak of a worker's anonymous memory. All ways end in the same sum, so that no result travels.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from harness import PeakMemory, run_alone

ROW = 1024  # elements
CHUNK_NBYTES = 128 * 2**20


def lazy(path):
    """Read as fast as the peers can be made to read: every one of them gets our own array."""
    import mmchunks as mm

    x = mm.from_npy(path, chunks=(CHUNK_NBYTES // (4 * ROW), -1), device="cpu")
    return x.map_blocks(lambda block: block, meta=x._meta)  # so that it is plain dask from here on


def ours(path, window, step):
    import mmchunks as mm

    return mm.sliding_window(path, window, "mean", step=step, device="cpu")


def map_overlap(path, window, step):
    """Average each chunk with bottleneck's moving window, the halo before it."""
    import bottleneck as bn
    import dask.array as da

    def moved(block):
        return bn.move_mean(block, window, axis=0)

    x = lazy(path)
    y = da.map_overlap(moved, x, depth={0: (window - 1, 0)}, boundary="none", meta=x._meta)
    return y[window - 1 :: step]


def view(path, window, step):
    """Reduce dask's own sliding_window_view."""
    from dask.array.lib.stride_tricks import sliding_window_view

    return sliding_window_view(lazy(path), window, axis=0).mean(axis=-1)[::step]


def rolling(path, window, step):
    """Ask xarray, which hands the chunks to numbagg or bottleneck."""
    import xarray as xr

    mean = xr.DataArray(lazy(path), dims=("t", "x")).rolling(t=window).mean().data
    return mean[window - 1 :: step]


WAYS = {
    "mmchunks.sliding_window": ours,
    "da.map_overlap + bottleneck": map_overlap,
    "dask sliding_window_view": view,
    "xarray rolling": rolling,
}


def sent(dask_worker):
    """Bytes that a worker got from others."""
    return sum(transfer["total"] for transfer in dask_worker.transfer_incoming_log)


def pid():
    import mmchunks.sliding.arrays  # imports are paid once, whoever slides

    return os.getpid() if mmchunks.sliding.arrays else 0


def measure(name, path, window, step):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        warm = ours(path, min(window, 100), step)[:1].sum()  # compiles, where that is to be paid
        client.compute(warm).result()
        pids = list(client.run(pid).values())
        before = sum(client.run(sent).values())
        start = time.perf_counter()
        total = WAYS[name](path, window, step).sum(dtype="f8")
        tasks = len(total.__dask_graph__())
        built = time.perf_counter()
        with PeakMemory(pids) as memory:
            result = float(client.compute(total).result())
            done = time.perf_counter()
        measured = {
            "build": built - start,
            "seconds": done - built,
            "tasks": tasks,
            "sent": sum(client.run(sent).values()) - before,
            "anonymous": memory.peak,
            "sum": result,
        }
    print(json.dumps(measured))


def write(path, nbytes):
    rows = nbytes // (4 * ROW)
    x = np.lib.format.open_memmap(path, "w+", np.float32, (rows, ROW))
    rng = np.random.default_rng(0)
    wave = rng.normal(0, 1, (1, ROW)).astype("f4")
    for start in range(0, rows, 16_384):
        stop = min(start + 16_384, rows)
        x[start:stop] = wave + np.sin(np.arange(start, stop, dtype="f4") / 500)[:, None]
    x.flush()


def compare(folder, options):
    path = os.path.join(folder, "x.npy")
    write(path, options.nbytes)
    rows = []
    for window in options.windows:
        for step in options.steps:
            for name in options.only or WAYS:
                found = run_alone(
                    __file__, "--one", name, "--path", path, "--windows", window, "--steps", step,
                    timeout=options.limit,
                )  # fmt: skip
                rows.append({"way": name, "window": window, "step": step, **found})
                print(rows[-1], file=sys.stderr)  # hours may pass before the table
    return rows


def table(rows):
    names = ("way", "window", "step", "s", "x ours", "tasks", "sent MiB", "anon MiB")
    lines = ["{:28s} {:>7s} {:>5s} {:>8s} {:>7s} {:>8s} {:>9s} {:>9s}".format(*names)]
    for row in rows:
        head = f"{row['way']:28s} {row['window']:7d} {row['step']:5d} "
        if "error" in row:
            lines.append(head + row["error"])
            continue
        own = [
            r["seconds"]
            for r in rows
            if (r["way"], r["window"], r["step"])
            == ("mmchunks.sliding_window", row["window"], row["step"])
            and "seconds" in r
        ]
        ratio = row["seconds"] / own[0] if own else float("nan")
        lines.append(
            head + f"{row['seconds']:8.2f} {ratio:7.2f} {row['tasks']:8d} "
            f"{row['sent'] / 2**20:9.1f} {row['anonymous'] / 2**20:9.0f}"
        )
    return "\n".join(lines)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nbytes", default="256MiB", help="size of the file")
    parser.add_argument("--windows", type=int, nargs="+", default=[10, 1000])
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--only", nargs="+", choices=list(WAYS))
    parser.add_argument("--limit", type=float, default=300, help="seconds that a way may take")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder otherwise")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--path", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        measure(options.one, options.path, options.windows[0], options.steps[0])
        return None
    from dask.utils import parse_bytes

    options.nbytes = parse_bytes(options.nbytes)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = compare(folder, options)
    print(json.dumps(rows) if options.json else table(rows))
    return rows


if __name__ == "__main__":
    main()

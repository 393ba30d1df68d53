"""Pick 1 000 single rows out of a huge file: what a small pick from large chunks costs.

    python benchmarks/picks.py --nbytes 8GiB [--rows 1000] [--json]

Each way picks the same rows, once by a list in one compute and once one by one (fewer of those),
cold and warm. "read" is what went through read(2) and its kin, and what came from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import dask
import dask.array as da
import numpy as np
from harness import evict

import mmchunks as mm

ROW = 4096  # elements of a row
CHUNK_NBYTES = 128 * 2**20


def plain_slicing(io):
    """Build what mmchunks would be without its own slicing: dask slices what was read."""

    def build(path):
        return da.Array.__getitem__, mm.from_npy(path, io=io, device="cpu")

    return build


def ours(io):
    def build(path):
        return type(x := mm.from_npy(path, io=io, device="cpu")).__getitem__, x

    return build


def memmap(path):
    return np.memmap.__getitem__, np.load(path, mmap_mode="r")


WAYS = {
    "np.load(mmap)": memmap,
    "mmchunks auto": ours("auto"),
    "mmchunks pread": ours("pread"),
    "dask's slicing of auto": plain_slicing("auto"),
    "dask's slicing of pread": plain_slicing("pread"),
}


def io_counters():
    lines = Path("/proc/self/io").read_text().split()
    return int(lines[1]), int(lines[9])  # rchar, read_bytes


def pick(build, path, rows, *, listed):
    getitem, x = build(path)
    before, start = io_counters(), time.perf_counter()
    if listed:
        result = np.asarray(getitem(x, rows))
    else:
        result = np.stack([np.asarray(getitem(x, row)) for row in rows])
    seconds = time.perf_counter() - start
    called, fetched = (b - a for a, b in zip(before, io_counters(), strict=True))
    np.testing.assert_array_equal(result, np.load(path, mmap_mode="r")[rows])
    return {"seconds": seconds, "rows_per_s": len(rows) / seconds, "read": called, "disk": fetched}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nbytes", default="256MiB", help="size of the file")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--folder", help="where to write; a temporary folder otherwise")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    count = dask.utils.parse_bytes(options.nbytes) // (4 * ROW)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(count, min(options.rows, count), replace=False)).tolist()
    table = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = os.path.join(folder, "x.npy")
        x = np.lib.format.open_memmap(path, "w+", np.float32, (count, ROW))
        for start in range(0, count, 4096):
            x[start : start + 4096] = np.arange(start, min(start + 4096, count))[:, None]
        x.flush()
        del x
        os.sync()
        for state in ("cold", "warm"):
            for name, build in WAYS.items():
                for listed in (True, False):
                    # Slow ways would take an hour one by one; a rate needs fewer rows.
                    some = rows if listed else rows[:: max(len(rows) // 100, 1)]
                    if state == "cold":
                        evict(folder)
                    how = "a list" if listed else "one by one"
                    measured = pick(build, path, some, listed=listed)
                    table.append({"way": name, "how": how, "state": state, **measured})
    if options.json:
        print(json.dumps(table))
        return table
    print(
        f"{'way':25s} {'rows by':11s} {'state':5s} {'rows/s':>9s} {'read MiB':>9s} {'disk MiB':>9s}"
    )
    for row in table:
        print(
            f"{row['way']:25s} {row['how']:11s} {row['state']:5s} {row['rows_per_s']:9.1f} "
            f"{row['read'] / 2**20:9.1f} {row['disk'] / 2**20:9.1f}"
        )
    return table


if __name__ == "__main__":
    main()

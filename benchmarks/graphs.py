"""Build and pickle lazy arrays of 10^2 to 10^6 chunks, beside dask's own trivial array-like.

    python benchmarks/graphs.py [--most 1000000] [--rounds 5] [--json]

The file is sparse and nothing is read. Both arrays have the same chunks; the yardstick is what
``da.from_array`` takes for an object that has a shape, a dtype and a token, and no more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time

import cloudpickle
import dask
import dask.array as da
import numpy as np

import mmchunks as mm


class Trivial:
    """The least that dask takes for an array."""

    dtype = np.dtype("f4")
    ndim = 2

    def __init__(self, shape):
        self.shape = shape

    def __getitem__(self, index):
        raise NotImplementedError

    def __dask_tokenize__(self):
        return ("trivial", self.shape)


def sparse(folder, rows):
    """Write a header, and reserve nothing."""
    path = os.path.join(folder, f"{rows}.npy")
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": (rows, 4)}
        )
        file.truncate(file.tell() + rows * 16)
    return path


def yardstick(shape, chunks):
    return da.from_array(
        Trivial(shape),
        chunks=chunks,
        asarray=False,
        fancy=False,
        inline_array=True,
        meta=np.empty((0, 0), "f4"),
    )


def timed(make):
    start = time.perf_counter()
    array = make()
    built = time.perf_counter()
    nbytes = len(cloudpickle.dumps(array.__dask_graph__()))
    return built - start, time.perf_counter() - built, nbytes


def compare(most, rounds):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        count = 100
        while count <= most:
            path = sparse(folder, count)
            ours = lambda path=path: mm.from_npy(path, chunks=(1, 4), device="cpu")
            theirs = lambda n=count: yardstick((n, 4), ((1,) * n, (4,)))
            pairs = [(timed(ours), timed(theirs)) for _ in range(rounds)]
            (a, b) = zip(*pairs, strict=True)
            rows.append(
                {
                    "chunks": count,
                    "build_s": statistics.median(x[0] for x in a),
                    "build_ratio": statistics.median(x[0] / y[0] for x, y in pairs),
                    "pickle_s": statistics.median(x[1] for x in a),
                    "pickle_ratio": statistics.median(x[1] / y[1] for x, y in pairs),
                    "nbytes": a[0][2],
                    "nbytes_ratio": a[0][2] / b[0][2],
                }
            )
            count *= 10
    return rows


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=1_000_000, help="largest number of chunks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows = compare(options.most, options.rounds)
    if options.json:
        print(json.dumps(rows))
        return rows
    print("newer array engine" if dask.config.get("array.query-planning") else "classic engine")
    print(
        f"{'chunks':>9s} {'build s':>9s} {'ratio':>6s} {'pickle s':>9s} {'ratio':>6s} {'bytes':>12s} {'ratio':>6s}"
    )
    for row in rows:
        print(
            f"{row['chunks']:9,d} {row['build_s']:9.4f} {row['build_ratio']:6.2f} "
            f"{row['pickle_s']:9.4f} {row['pickle_ratio']:6.2f} {row['nbytes']:12,d} "
            f"{row['nbytes_ratio']:6.2f}"
        )
    return rows


if __name__ == "__main__":
    main()

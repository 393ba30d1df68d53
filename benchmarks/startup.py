"""Time what a person waits for: importing mmchunks, and asking what a huge file holds.

    python benchmarks/startup.py [--rounds 11] [--json]

Whole processes, in turn: ``import numpy``, ``import mmchunks`` with its NumPy parts, and
``mmchunks info`` on a sparse 1 TiB file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np


def seconds(*command):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "huge.npy")
        with open(path, "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": "<f4", "fortran_order": False, "shape": (2**26, 4096)}
            )
            file.truncate(file.tell() + 2**40)
        python = sys.executable
        rounds = [
            (
                seconds(python, "-c", "import numpy"),
                seconds(python, "-c", "import mmchunks; mmchunks.open_npy, mmchunks.Plan"),
                seconds(python, "-m", "mmchunks", "info", path),
            )
            for _ in range(options.rounds)
        ]
    numpy, ours, info = (statistics.median(column) for column in zip(*rounds, strict=True))
    result = {
        "import_numpy_s": numpy,
        "import_mmchunks_s": ours,
        "import_ratio": statistics.median(b / a for a, b, _ in rounds),
        "info_s": info,
    }
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in result.items():
            print(f"{name:18s} {value:6.3f}")
    return result


if __name__ == "__main__":
    main()

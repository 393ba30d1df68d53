"""How fast is a durable chunk? Target.write_chunk beside raw writes of the same bytes, in turn.

    python benchmarks/write_paths.py [--nbytes "2 GiB"] [--rounds 5] [--dir /scratch] [--json]

Every variant writes the same bytes in chunks of the same size, flushed chunk by chunk, into a new
reserved file. Rounds are interleaved, because disks drift; read the ratios.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
from dask.utils import parse_bytes

from mmchunks.writing.targets import create_npy


def raw_direct(target, chunks, block):
    """The bound: one O_DIRECT write a chunk from aligned memory, and a flush. No checksum."""
    fd = os.open(target.path, os.O_RDWR | os.O_DIRECT)
    for chunk in chunks:
        os.pwrite(fd, block.data, target.layout[chunk].span.offset)
        os.fdatasync(fd)
    os.close(fd)


def raw_cached(target, chunks, block):
    fd = os.open(target.path, os.O_RDWR)
    for chunk in chunks:
        os.pwrite(fd, block.data, target.layout[chunk].span.offset)
        os.fdatasync(fd)
    os.close(fd)


def write_chunk_aligned(target, chunks, block):
    for chunk in chunks:
        target.write_chunk(chunk, block)


def write_chunk_anywhere(target, chunks, block):
    """Memory as NumPy allocates it, which O_DIRECT does not take."""
    elsewhere = _elsewhere(block.size)
    for chunk in chunks:
        target.write_chunk(chunk, elsewhere)


@functools.cache  # new memory costs as much as writing it
def _elsewhere(nbytes):
    return np.ones(nbytes + 64, "u1")[16:][:nbytes]


def memmap_flush(target, chunks, block):
    array = np.load(target.path, mmap_mode="r+")
    for chunk in chunks:
        array[chunk] = block
        array.flush()


VARIANTS = [raw_direct, raw_cached, write_chunk_aligned, write_chunk_anywhere, memmap_flush]


def measure(folder, *, nbytes, chunk_nbytes, rounds):
    """Give the rates of every variant in bytes a second, a list of rounds each."""
    count = max(1, nbytes // chunk_nbytes)
    block = None
    rates = {variant.__name__: [] for variant in VARIANTS}
    for _ in range(rounds):
        for variant in VARIANTS:
            # A file of its own each time: what was written before is overwritten twice as fast.
            target = create_npy(
                Path(folder) / "out.npy", count * chunk_nbytes, "u1", overwrite=True
            )
            starts = range(0, count * chunk_nbytes, chunk_nbytes)
            chunks = [target.layout.region(slice(at, at + chunk_nbytes)) for at in starts]
            if block is None:
                block = target.empty(chunks[0])
                block[...] = np.random.default_rng(0).integers(0, 256, block.size, dtype="u1")
            _elsewhere(chunk_nbytes)
            began = time.perf_counter()
            variant(target, chunks, block)
            rates[variant.__name__].append(count * chunk_nbytes / (time.perf_counter() - began))
    return rates


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nbytes", default="256 MiB", type=parse_bytes)
    parser.add_argument("--chunk-nbytes", default="64 MiB", type=parse_bytes)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument(
        "--dir", help="folder to write in; the default is the system's for temporary files"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        rates = measure(
            folder,
            nbytes=options.nbytes,
            chunk_nbytes=options.chunk_nbytes,
            rounds=options.rounds,
        )
    report = {
        name: {
            "bytes_per_second": statistics.median(found),
            "share_of_raw_direct": statistics.median(
                mine / bound for mine, bound in zip(found, rates["raw_direct"], strict=True)
            ),
        }
        for name, found in rates.items()
    }
    if options.json:
        print(json.dumps(report, indent=1))
        return
    for name, entry in report.items():
        rate, share = entry["bytes_per_second"] / 1e9, entry["share_of_raw_direct"]
        print(f"{name:22} {rate:6.2f} GB/s  {share:5.2f} of raw O_DIRECT")


if __name__ == "__main__":
    main()

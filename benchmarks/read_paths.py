"""Which way of reading is the fastest here? Every way, cold and warm, side by side.

    python benchmarks/read_paths.py --nbytes 2GiB --rounds 15

Each measurement reads one random segment of the file in blocks, and adds every block up, as a task
of a reduction does; the raw reads only fill a buffer. In every round each way has one turn, in
shuffled order, because disks and neighbours drift. A ratio is to the fastest way of its round.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from dask.utils import format_bytes, parse_bytes

from mmchunks.files.layout import Span
from mmchunks.files.mapping import map_region
from mmchunks.files.preading import warm
from mmchunks.reading.opening import open_npy
from mmchunks.reading.pagecache import evict
from mmchunks.reading.regions import block, route

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mmchunks.files.layout import Region
    from mmchunks.files.sources import Source

PIECE = 4 << 20

libc = ctypes.CDLL(None, use_errno=True)
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class Segment:
    """A part of a file, and every way to read it."""

    def __init__(self, source: Source, start: int, stop: int, step: int) -> None:
        self.source = source
        self.regions = [(slice(at, min(at + step, stop)),) for at in range(start, stop, step)]
        self.span = source.layout[slice(start, stop),].span

    def spans(self) -> Iterator[Span]:
        for region in self.regions:
            yield self.source.layout[region].span

    def ours(self, io: str) -> None:
        for region in self.regions:
            total(block(self.source, region, io=io, device="cpu"))

    def ours_on_two_threads(self, io: str) -> None:
        def one(region: Region) -> None:
            total(block(self.source, region, io=io, device="cpu"))

        with ThreadPoolExecutor(2) as executor:
            list(executor.map(one, self.regions))

    def warmed_map(self) -> None:
        with self.source.opened() as fd:
            for region in self.regions:
                warm(fd, self.source.layout[region])
                total(map_region(fd, self.source.layout[region]))

    def raw_preadv(self, threads: int) -> None:
        with self.source.opened() as fd:
            buffers = [np.empty(PIECE, "u1") for _ in range(threads)]

            def every(number: int) -> None:
                for at in range(number * PIECE, self.span.nbytes, threads * PIECE):
                    buffer = buffers[number][: self.span.nbytes - at]
                    os.preadv(fd, [buffer], self.span.offset + at)

            with ThreadPoolExecutor(threads) as executor:
                list(executor.map(every, range(threads)))

    def raw_direct(self) -> None:
        fd = os.open(self.source.path, os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, 4 * PIECE)
        for at in range(0, self.span.nbytes, len(buffer)):
            os.preadv(fd, [buffer], self.span.offset // 4096 * 4096 + at)
        os.close(fd)

    def flagged_map(self, *, flags: int = 0, advice: int | None = None, lock: bool = False) -> None:
        """What people ask of a map: pages at once, read ahead, huge or locked ones."""
        with self.source.opened() as fd:
            for region in self.regions:
                span = self.source.layout[region].span
                start = span.pages(mmap.ALLOCATIONGRANULARITY).offset
                pages = mmap.mmap(
                    fd, span.stop - start, mmap.MAP_PRIVATE | flags, mmap.PROT_READ, offset=start
                )
                if advice is not None:
                    pages.madvise(advice)
                memory = np.frombuffer(pages, "u1")
                if lock and libc.mlock(ctypes.c_void_p(memory.ctypes.data), len(pages)):
                    raise OSError(ctypes.get_errno(), "mlock; raise it with ulimit -l")
                total(memory[span.offset - start :].view(self.source.dtype))

    def np_load(self) -> None:
        mapped = np.load(self.source.path, mmap_mode="r")
        for region in self.regions:
            total(mapped[region])

    def np_load_copied(self) -> None:
        mapped = np.load(self.source.path, mmap_mode="r")
        for region in self.regions:
            total(np.array(mapped[region]))

    def np_fromfile(self) -> None:
        for span in self.spans():
            count = span.nbytes // self.source.dtype.itemsize
            total(np.fromfile(self.source.path, self.source.dtype, count, offset=span.offset))


WAYS: dict[str, Callable[[Segment], None]] = {
    'io="auto"': lambda segment: segment.ours("auto"),
    'io="auto", 2 threads': lambda segment: segment.ours_on_two_threads("auto"),
    'io="mmap"': lambda segment: segment.ours("mmap"),
    "warm + map": lambda segment: segment.warmed_map(),
    'io="pread"': lambda segment: segment.ours("pread"),
    'io="direct"': lambda segment: segment.ours("direct"),
    "raw preadv": lambda segment: segment.raw_preadv(1),
    "raw preadv, 2 threads": lambda segment: segment.raw_preadv(2),
    "raw O_DIRECT": lambda segment: segment.raw_direct(),
    "bare map": lambda segment: segment.flagged_map(),
    "map, MAP_POPULATE": lambda segment: segment.flagged_map(flags=mmap.MAP_POPULATE),
    "map, MADV_POPULATE_READ": lambda segment: segment.flagged_map(advice=22),
    "map, MADV_WILLNEED": lambda segment: segment.flagged_map(advice=mmap.MADV_WILLNEED),
    "map, MADV_HUGEPAGE": lambda segment: segment.flagged_map(advice=mmap.MADV_HUGEPAGE),
    "map, mlock": lambda segment: segment.flagged_map(lock=True),
    "np.load(mmap_mode)": lambda segment: segment.np_load(),
    "np.array(np.load(mmap_mode))": lambda segment: segment.np_load_copied(),
    "np.fromfile": lambda segment: segment.np_fromfile(),
}


def total(array: np.ndarray) -> None:
    array.sum(dtype=array.dtype)


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def make(path: Path, nbytes: int) -> Source:
    """Write a .npy file of float32 noise, and see to it that it is on the disk."""
    array = np.lib.format.open_memmap(path, "w+", "f4", (nbytes // 4,))
    noise = np.random.default_rng(0).random(min(nbytes // 4, 4 << 20), "f4")
    for start in range(0, len(array), len(noise)):
        part = array[start : start + len(noise)]
        part[:] = noise[: len(part)]
    array.flush()
    return open_npy(path)


def measure(
    source: Source, *, rounds: int, segment_nbytes: int, block_nbytes: int, cold: bool
) -> dict[str, list[tuple[float, float]]]:
    """Give (GB/s, CPU seconds a GiB) of every way, one pair a round."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    length = min(segment_nbytes // 4, source.shape[0])
    for _ in range(rounds):
        for name in random.sample(list(WAYS), len(WAYS)):
            start = random.randrange(source.shape[0] - length + 1)
            segment = Segment(source, start, start + length, block_nbytes // 4)
            with source.opened() as fd:
                if cold:
                    evict(fd, Span(offset=0, nbytes=0))  # 0 bytes: to the end of the file
                else:
                    os.preadv(fd, [mmap.mmap(-1, segment.span.nbytes)], segment.span.offset)
            cpu, clock = cpu_seconds(), time.perf_counter()
            WAYS[name](segment)
            seconds, cpu = time.perf_counter() - clock, cpu_seconds() - cpu
            nbytes = segment.span.nbytes
            found[name].append((nbytes / seconds / 1e9, cpu / nbytes * 2**30))
    return found


def summary(found: dict[str, list[tuple[float, float]]]) -> list[dict[str, float | str]]:
    """Medians over the rounds, the fastest way first."""
    speeds = np.array([[speed for speed, _ in pairs] for pairs in found.values()])
    shares = np.median(speeds / speeds.max(axis=0), axis=1)
    rows = [
        {
            "way": name,
            "gb_per_s": float(np.median(speeds[index])),
            "of_best": float(shares[index]),
            "cpu_s_per_gib": float(np.median([cpu for _, cpu in pairs])),
        }
        for index, (name, pairs) in enumerate(found.items())
    ]
    return sorted(rows, key=lambda row: -row["gb_per_s"])


def show(title: str, rows: list[dict[str, float | str]]) -> None:
    print(f"\n{title:30}{'GB/s':>8}{'of best':>9}{'CPU s/GiB':>11}")
    for row in rows:
        print(
            f"{row['way']:30}{row['gb_per_s']:8.2f}{row['of_best']:9.2f}{row['cpu_s_per_gib']:11.2f}"
        )


@click.command(help=__doc__)
@click.option("--nbytes", default="2GiB", help="Size of the file.")
@click.option("--segment", default="256MiB", help="Bytes that one measurement reads.")
@click.option("--block", "block_size", default="64MiB", help="Bytes of one block.")
@click.option("--rounds", default=15, help="Turns of every way.")
@click.option("--folder", default=".", help="Where to write the file; it is deleted afterwards.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def main(
    nbytes: str, segment: str, block_size: str, rounds: int, folder: str, as_json: bool
) -> None:
    sizes = {"segment_nbytes": parse_bytes(segment), "block_nbytes": parse_bytes(block_size)}
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        source = make(Path(inside) / "noise.npy", parse_bytes(nbytes))
        with source.opened() as fd:
            os.fsync(fd)
            evict(fd, Span(offset=0, nbytes=0))
            first = source.layout.region(slice(0, parse_bytes(block_size) // 4))
            reason = route(source, fd, first, io="auto").reason
        results = {
            state: summary(measure(source, rounds=rounds, cold=state == "cold", **sizes))
            for state in ("cold", "warm")
        }
    if as_json:
        print(json.dumps({"nbytes": source.nbytes, **sizes, "rounds": rounds, **results}))
        return
    print(f'{format_bytes(source.nbytes)} in {folder!r}; io="auto" when cold: {reason}')
    for state, rows in results.items():
        show(state, rows)


if __name__ == "__main__":
    main()

"""Which way do a file's bytes come into memory fastest, on this machine and this disk?"""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from mmchunks.files.layout import Span
from mmchunks.planning.making import plan
from mmchunks.reading import pagecache, regions

if TYPE_CHECKING:
    from mmchunks.files.layout import Region
    from mmchunks.files.sources import Source

__all__ = ["time_ways"]

_WAYS = ("auto", "mmap", "pread", "direct")


def time_ways(source: Source, *, nbytes: int, rounds: int) -> dict[str, dict[str, float]]:
    """Read the first `nbytes` of a file in every way, cold and warm.

    All ways take their turn in every round, in shuffled order, because disks drift. Every block is copied
    once, since a map that nobody looks at has read nothing.

    Parameters
    ----------
    source : Source
        The file. Its cached pages are dropped before each cold read.
    nbytes : int
        How much of it is read each time, at most.
    rounds : int
        How often; medians are returned.

    Returns
    -------
    dict
        ``{way: {"cold": GB/s, "warm": GB/s}}``.
    """
    wanted: list[Region] = []
    total = 0
    for chunk in plan(source):
        wanted.append(chunk.region)
        total += chunk.nbytes
        if total >= nbytes:
            break
    # Into memory that was touched before: fresh memory would cost as much as reading does.
    scratch = np.zeros(
        max(source.layout[region].shape for region in wanted), source.dtype, source.order
    )

    def read(way: str) -> float:
        start = time.perf_counter()
        for region in wanted:
            block = regions.block(source, region, io=way, device="cpu")
            np.copyto(scratch[tuple(map(slice, block.shape))], block)
        return time.perf_counter() - start

    seconds: dict[str, dict[str, list[float]]] = {way: {"cold": [], "warm": []} for way in _WAYS}
    for _ in range(rounds):
        for way in random.sample(_WAYS, len(_WAYS)):
            with source.opened() as fd:
                pagecache.evict(fd, Span(offset=0, nbytes=source.layout.stop))
            seconds[way]["cold"].append(read(way))
            for region in wanted:  # ways that go around the page cache leave it cold
                regions.block(source, region, io="pread", device="cpu")
            seconds[way]["warm"].append(read(way))
    return {
        way: {state: total / statistics.median(taken) / 1e9 for state, taken in states.items()}
        for way, states in seconds.items()
    }

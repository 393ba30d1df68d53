"""How fast are sliding windows of one block in memory, on one core? Beside bottleneck and numbagg.

    python benchmarks/windows.py --nbytes 8MiB --rounds 7

Times are CPU nanoseconds per element of the block, medians over rounds in which each way has one
turn. The peers know no steps: they slide over every row, and the rows asked for are picked. The
ratio is the time of the faster peer over ours, so 2.0 means that we are twice as fast. Without
numba (--without-numba) it tells what numpy alone does.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

os.environ["NUMBA_NUM_THREADS"] = "1"

import bottleneck
import click
import numbagg
import numpy as np
from dask.utils import parse_bytes

from mmchunks.sliding.windows import reduce_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAYOUTS: dict[str, tuple[int, str, int]] = {  # columns, order, axis that slides
    "1-D": (1, "C", 0),
    "C, along": (64, "C", 1),
    "C, across": (64, "C", 0),
    "F, along": (64, "F", 0),
    "F, across": (64, "F", 1),
}


def blocks(nbytes: int) -> Iterator[tuple[str, np.ndarray, int]]:
    """Make a block of noise for every layout and type; the axis that slides is the long one."""
    for dtype in ("f4", "f8"):
        for name, (columns, order, axis) in LAYOUTS.items():
            rows = nbytes // np.dtype(dtype).itemsize // columns
            shape = (rows,) if columns == 1 else (rows, columns) if axis == 0 else (columns, rows)
            noise = np.random.default_rng(0).standard_normal(shape).astype(dtype)
            yield f"{name}, {dtype}", np.asarray(noise, order=order), axis


def ways(
    block: np.ndarray, axis: int, length: int, step: int, reduce: str
) -> dict[str, Callable[[], Any]]:
    """Every way to have the same result."""
    picked = (slice(None),) * axis + (slice(length - 1, None, step),)
    found: dict[str, Callable[[], Any]] = {
        "ours": lambda: reduce_windows(block, {axis: length}, {axis: step}, reduce, origin={}),
        "bottleneck": lambda: getattr(bottleneck, f"move_{reduce}")(block, length, axis=axis)[
            picked
        ],
    }
    if moving := getattr(numbagg, f"move_{reduce}", None):  # it has no minimum and no maximum
        found["numbagg"] = lambda: moving(block, window=length, axis=axis)[picked]
    return found


def measure(calls: dict[str, Callable[[], Any]], rounds: int, elements: int) -> dict[str, float]:
    """CPU nanoseconds per element of each way: medians, after a first turn that counts not."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    results = [call() for call in calls.values()]
    for result in results[1:]:
        np.testing.assert_allclose(result, results[0], rtol=1e-2, atol=1e-2 * np.sqrt(elements))
    for _ in range(rounds):
        for name, call in calls.items():
            clock = time.process_time()
            call()
            times[name].append(time.process_time() - clock)
    return {name: statistics.median(spent) / elements * 1e9 for name, spent in times.items()}


@click.command(help=__doc__)
@click.option("--nbytes", default="8MiB", help="Size of the block.")
@click.option("--rounds", default=7, help="Turns of every way.")
@click.option("--reduce", "reductions", default="sum,mean,min,max", help="Which reductions.")
@click.option("--without-numba", is_flag=True, help="Measure what numpy alone does.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(nbytes: str, rounds: int, reductions: str, *, without_numba: bool, as_json: bool) -> None:
    if without_numba:
        sys.modules["mmchunks.sliding.compiled"] = None  # type: ignore[assignment]
    rows = []
    for name, block, axis in blocks(parse_bytes(nbytes)):
        for length in (10, 1000, 100_000):
            if 2 * length > block.shape[axis]:
                continue
            for step in (1, 100):
                for reduce in reductions.split(","):
                    calls = ways(block, axis, length, step, reduce)
                    times = measure(calls, rounds, block.size)
                    ratio = min(times[peer] for peer in times if peer != "ours") / times["ours"]
                    case = {"block": name, "window": length, "step": step, "reduce": reduce}
                    rows.append({**case, **times, "ratio": ratio})
    if as_json:
        print(json.dumps({"nbytes": parse_bytes(nbytes), "rounds": rounds, "rows": rows}))
        return
    print(
        f"{'block':16}{'window':>8}{'step':>6} {'reduce':8}"
        f"{'ours':>8}{'bottleneck':>12}{'numbagg':>9}{'ratio':>8}   (ns per element)"
    )
    for row in rows:
        peers = f"{row['bottleneck']:12.2f}{row.get('numbagg', np.nan):9.2f}"
        print(
            f"{row['block']:16}{row['window']:8}{row['step']:6} {row['reduce']:8}"
            f"{row['ours']:8.2f}{peers}{row['ratio']:8.2f}"
        )


if __name__ == "__main__":
    main()

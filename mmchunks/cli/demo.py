"""What does all of this look like at work? One story, told with real processes and a real file.

A weather toy (Lorenz 96: 40 sites on a ring, an ensemble of forecasts that start almost equal) is
run for many strengths of its forcing. The sweep is killed, resumed on a cluster of processes,
checked, read back lazily and averaged by sliding windows; a slice is compared with NumPy.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.cli.report import quantity, status_lines, sweep_line
from mmchunks.filling.checking import status, verify
from mmchunks.filling.sweeping import sweep
from mmchunks.gpu.workers import local_client
from mmchunks.planning.making import plan
from mmchunks.reading.lazy import from_npy
from mmchunks.sliding.arrays import sliding_window

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmchunks.files.layout import Block
    from mmchunks.filling.sweeping import SweepReport

__all__ = ["fill", "lorenz96", "run"]

STEPS, MEMBERS, SITES = 256, 64, 40
_ROW_NBYTES = STEPS * MEMBERS * SITES * 4
_WINDOW, _STEP = 24, 4  # time steps


def lorenz96(forcing: float) -> Block:
    """Forecast 256 steps of the Lorenz 96 model with an ensemble of 64.

    Parameters
    ----------
    forcing : float
        Strength of the forcing; above about 5 the model is chaotic.

    Returns
    -------
    numpy.ndarray
        float32, of shape (steps, members, sites).
    """
    rng = np.random.default_rng(96)
    x = forcing + np.sin(np.arange(SITES)) + rng.normal(0, 1e-3, (MEMBERS, SITES))
    out = np.empty((STEPS, MEMBERS, SITES), np.float32)
    for step in range(STEPS):
        out[step] = x
        x = _runge_kutta(x, forcing, 0.05)
    return out


def _runge_kutta(x: Block, forcing: float, dt: float) -> Block:
    a = _slope(x, forcing)
    b = _slope(x + dt / 2 * a, forcing)
    c = _slope(x + dt / 2 * b, forcing)
    d = _slope(x + dt * c, forcing)
    slope: Block = x + dt / 6 * (a + 2 * b + 2 * c + d)
    return slope


def _slope(x: Block, forcing: float) -> Block:
    ring = np.concatenate((x[:, -2:], x, x[:, :1]), axis=1)
    slope: Block = (ring[:, 3:] - ring[:, :-3]) * ring[:, 1:-2] - x + forcing
    return slope


def run(
    nbytes: int, *, n_workers: int | None, folder: str | None, say: Callable[[str], None]
) -> dict[str, Any]:
    """Tell the whole story in a folder that is removed at the end.

    Parameters
    ----------
    nbytes : int
        About how large the file is to be; 20 MiB at least.
    n_workers : int or None
        Processes of the cluster; by default one a GPU, or else one a core.
    folder : str or None
        Where to make the folder.
    say : callable
        Gets the story, a paragraph at a time.

    Returns
    -------
    dict
        What was measured.
    """
    scenarios = max(nbytes // _ROW_NBYTES, 8)
    with tempfile.TemporaryDirectory(prefix="mmchunks-demo-", dir=folder) as place:
        path = str(Path(place) / "lorenz96.npy")
        say(f"A sweep of {scenarios} scenarios fills {path}.")
        _fill_and_die(path, scenarios)
        say("It was killed with SIGKILL. What the journal knows:\n" + status_lines(status(path)))
        with local_client(n_workers, dashboard_address=":0") as client:
            say(f"The same sweep again, now on a cluster of {len(client.nthreads())} processes:")
            report = fill(path, scenarios, executor=client)
            checked = verify(path, executor=client)
            say(
                f"{sweep_line(report)}\nall {checked.checked} chunks hold what was written"
                if checked.ok
                else f"{path}: damaged chunks {checked.bad}"
            )
            say("The plan for reading it:\n" + plan(path).explain())
            measured = _aggregate(path, client, say)
    return {"scenarios": scenarios, "resumed": report.skipped, **measured}


def fill(path: str, scenarios: int, *, executor: Any = None) -> SweepReport:
    """Sweep the forcing from 1 to 12 in so many steps, here or on an executor."""
    forcing = np.linspace(1.0, 12.0, scenarios).tolist()
    return sweep(lorenz96, {"forcing": forcing}, path, executor=executor)


def _fill_and_die(path: str, scenarios: int) -> None:
    """Start the sweep in a process of its own, and kill it when a third is done."""
    code = f"from mmchunks.cli.demo import fill; fill({path!r}, {scenarios})"
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        while child.poll() is None and _done(path) * 3 < scenarios:
            time.sleep(0.02)
    finally:
        if child.poll() is None:
            os.kill(child.pid, signal.SIGKILL)
        child.wait()


def _done(path: str) -> int:
    try:
        return status(path).done
    except FileNotFoundError:
        return 0


def _aggregate(path: str, client: Any, say: Callable[[str], None]) -> dict[str, Any]:
    """Average the file by sliding windows on the cluster, and compare a slice with NumPy."""
    from distributed import progress

    x = from_npy(path)
    nbytes = math.prod(x.shape) * x.dtype.itemsize
    y = sliding_window(x, {1: _WINDOW}, "mean", step=_STEP)  # read from the file, with its halos
    spread = y.std(axis=2).mean(axis=2)  # how far the forecasts of each scenario drift apart
    start = time.perf_counter()
    future = client.compute(spread)
    if sys.stdout.isatty():
        progress(future, notebook=False)
    result = future.result()
    seconds = time.perf_counter() - start
    result = getattr(result, "get", lambda: result)()  # blocks were CuPy arrays on GPUs
    judge = _judge(np.load(path, mmap_mode="r")[-1])
    np.testing.assert_allclose(result[-1], judge, rtol=1e-3)
    measured = {
        "nbytes": nbytes,
        "seconds": seconds,
        "gb_per_s": nbytes / seconds / 1e9,
        "peak_nbytes": max(client.run(_peak_nbytes).values()),
        "device": type(x._meta).__module__.split(".", 1)[0],
    }
    say(
        f"Read {quantity(nbytes)} and averaged windows of {_WINDOW} steps in "
        f"{seconds:.2f} s ({measured['gb_per_s']:.2f} GB/s) as {measured['device']} blocks; no "
        f"worker held more than {quantity(measured['peak_nbytes'])}.\n"
        f"The last scenario equals what NumPy makes of np.load(...)[-1]."
    )
    say("How fast forecasts of the same weather drift apart (time ->):\n" + _picture(result))
    return measured


def _judge(row: Block) -> Block:
    windows = np.lib.stride_tricks.sliding_window_view(row, _WINDOW, axis=0)[::_STEP]
    judge: Block = windows.mean(axis=-1).std(axis=1).mean(axis=1)
    return judge


def _peak_nbytes() -> int:
    """Largest resident memory of this process so far, file pages included."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _picture(spread: Block) -> str:
    shades = " .:-=+*#%@"
    rows = np.linspace(0, len(spread) - 1, 8).astype(int)
    columns = np.linspace(0, spread.shape[1] - 1, 56).astype(int)
    levels = np.log10(np.maximum(spread[np.ix_(rows, columns)], 1e-4))
    scaled = (levels - levels.min()) / max(np.ptp(levels), 1e-9) * (len(shades) - 1)
    return "\n".join(
        f"  forcing {forcing:5.1f} |{''.join(shades[int(level)] for level in line)}|"
        for forcing, line in zip(np.linspace(1.0, 12.0, len(spread))[rows], scaled, strict=True)
    )

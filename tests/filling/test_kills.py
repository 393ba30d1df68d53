"""Kill -9 of workers, of the driver, of everything, at random instants: nothing is lost.

``MMCHUNKS_KILL_TRIALS`` asks for so many times as many trials; a seed that fails can be run alone,
as the head of ``kill_trials.py`` says.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

TRIALS = float(os.environ.get("MMCHUNKS_KILL_TRIALS", "1"))


@pytest.fixture(params=["disk", "memory"])
def folder(request, tmp_path):
    """Where flushing takes its time, so that kills hit it, and where many runs take little."""
    if request.param == "disk":
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            yield memory


def run_trials(kind, folder, trials):
    tests = Path(__file__).parents[1]
    first = int(time.time()) % 1_000_000 * 100
    command = [sys.executable, str(tests / "kill_trials.py"), kind, str(folder)]
    seeds = [str(first), str(first + max(1, int(trials * TRIALS)))]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tests.parent), str(tests)])}
    ended = subprocess.run(
        [*command, *seeds], env=env, capture_output=True, text=True, check=False, timeout=3600
    )
    print(ended.stdout)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr[-5000:]}"


def test_sweeps_and_parts_end_as_if_nobody_had_killed_them(folder, request):
    run_trials("forked", folder, 15 if "disk" in request.node.name else 60)


def test_a_pool_whose_driver_or_workers_are_killed_ends_as_if_nobody_had(tmp_path):
    run_trials("pooled", tmp_path, 4)

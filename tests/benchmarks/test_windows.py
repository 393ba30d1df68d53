"""The benchmark of windows runs, at a small size."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*options):
    command = [sys.executable, str(ROOT / "benchmarks/windows.py"), "--nbytes", "16KiB"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--rounds", "1", *options],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return done.stdout


def test_every_layout_is_measured_against_its_peers():
    rows = json.loads(run("--json", "--reduce", "sum,max"))["rows"]
    assert len({row["block"] for row in rows}) == 10
    assert all(row["ours"] > 0 and row["ratio"] > 0 for row in rows)
    assert {row["step"] for row in rows} == {1, 100}


def test_a_table_comes_last():
    lines = run("--reduce", "min").splitlines()
    assert lines[0].split()[:4] == ["block", "window", "step", "reduce"]
    assert lines[-1].startswith("F, across, f8")

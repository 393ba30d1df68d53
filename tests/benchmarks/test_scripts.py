"""The benchmarks run, at small size, and say what they promise to say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def run(script, *arguments):
    out = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(out.stdout.splitlines()[-1])


def test_sums_runs_every_way_of_ours():
    rows = run(
        "sums.py", "--nbytes", "8MiB", "--rounds", "1", "--no-cluster",
        "--only", "mmchunks auto", "mmchunks pread", "mmchunks direct",
    )  # fmt: skip
    assert not [row for row in rows if "error" in row]
    assert {"mmchunks auto", "mmchunks pread", "mmchunks direct"} < {row["variant"] for row in rows}


def test_graphs_compares_with_a_trivial_array():
    rows = run("graphs.py", "--most", "1000", "--rounds", "1")
    assert [row["chunks"] for row in rows] == [100, 1000]


def test_startup_is_measured():
    assert run("startup.py", "--rounds", "1")["info_s"] > 0


def test_sliding_sends_nothing_between_workers():
    rows = run(
        "sliding.py", "--nbytes", "16MiB", "--windows", "50", "--steps", "10",
        "--only", "mmchunks.sliding_window", "da.map_overlap + bottleneck",
    )  # fmt: skip
    assert not [row for row in rows if "error" in row]
    assert rows[0]["sent"] == 0
    assert rows[0]["sum"] == pytest.approx(rows[1]["sum"], rel=1e-5)


SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if path.name != "harness.py")


@pytest.mark.parametrize("script", SCRIPTS)
def test_every_benchmark_explains_itself(script):
    out = subprocess.run(
        [sys.executable, str(FOLDER / script), "--help"], capture_output=True, text=True, check=True
    )
    assert "--json" in out.stdout

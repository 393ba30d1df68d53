"""The benchmark runs, at a small size."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(tmp_path, *options):
    sizes = ["--nbytes", "1MiB", "--segment", "256KiB", "--block", "100KiB", "--rounds", "2"]
    command = [sys.executable, str(ROOT / "benchmarks/read_paths.py"), *sizes, *options]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [*command, "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert not list(tmp_path.iterdir())
    return done.stdout


def test_every_way_is_measured_cold_and_warm(tmp_path):
    result = json.loads(run(tmp_path, "--json"))
    for state in ("cold", "warm"):
        assert len(result[state]) == 18
        assert all(row["gb_per_s"] > 0 and 0 < row["of_best"] <= 1 for row in result[state])


def test_a_table_comes_last(tmp_path):
    lines = run(tmp_path).splitlines()
    assert "np.fromfile" in "".join(lines[-18:])
    assert any(line.startswith("warm") for line in lines)

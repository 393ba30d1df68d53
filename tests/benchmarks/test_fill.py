"""The benchmark of filling runs, at a small size."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_way_is_measured_and_a_table_comes_last(tmp_path):
    command = [sys.executable, str(ROOT / "benchmarks/fill.py"), "--dir", str(tmp_path), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--nbytes", "1MiB", "--rounds", "1", "--tiny", "100"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert not list(tmp_path.iterdir()), "it left files behind"
    report = json.loads(done.stdout)
    names = {"raw_direct", "raw_cached", "ours_sweep", "ours_to_npy", "memmap_pool", "da_store"}
    names |= {"da_to_npy_stack"}
    names |= {"joblib_memmap"} if importlib.util.find_spec("joblib") else set()
    names |= {"da_to_zarr"} if importlib.util.find_spec("zarr") else set()
    assert set(report["ways"]) == names
    assert all(way["bytes_per_second"] > 0 for way in report["ways"].values())
    assert report["ways"]["raw_direct"]["share_of_raw"] == 1
    assert set(report["milliseconds_per_tiny_scenario"]) == {"product", "dicts"}

    spec = importlib.util.spec_from_file_location("fill", ROOT / "benchmarks/fill.py")
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    lines = list(benchmark.table(report))
    assert lines[-len(names) - 1].split() == ["way", "GB/s", "of", "raw"]

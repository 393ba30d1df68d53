"""The benchmark of the GPU runs where there is none, and says so; its ways are ways."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mmchunks.gpu import devices, transfers
from mmchunks.reading import uploading
from mmchunks.reading.trials import Trials
from tests.fakecupy import make

SCRIPT = Path(__file__).parents[2] / "benchmarks/gpu.py"


@pytest.fixture
def gpu(monkeypatch):
    spec = importlib.util.spec_from_file_location("gpu_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(module)
    cupy = make(attributes=[99, 113])
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(transfers, "_lanes", {})
    monkeypatch.setattr(uploading, "_trials", Trials())
    devices.count.cache_clear()
    yield module, cupy
    devices.count.cache_clear()


def test_without_a_gpu_it_checks_measures_nothing_and_succeeds():
    if devices.count():
        pytest.skip("a GPU answers here")
    done = subprocess.run(
        [sys.executable, SCRIPT, "--json"], capture_output=True, text=True, check=True
    )
    assert "nothing was measured" in done.stdout
    assert "GB/s" not in done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["figures"] == {}
    assert {row["result"] for row in found["checks"]} <= {"ok", "not asked"}


def test_every_way_brings_the_whole_file(gpu, tmp_path):
    module, cupy = gpu
    path = module.make_file(tmp_path, 2**21)
    expected = np.load(path)
    for name, way in module.ways(cupy, path).items():
        if any(part in name for part in ("alone", "gds", "kvikio", "sliding", "memmap")):
            continue
        np.testing.assert_array_equal(cupy.asnumpy(way()), expected)


def test_what_was_not_measured_is_none_and_says_why(gpu, tmp_path):
    module, cupy = gpu
    path = module.make_file(tmp_path, 2**21)
    figures = module.measure(cupy, path, time.monotonic() + 60, rounds=1)
    assert figures["cupy.load"]["warm"] > 0
    assert figures["kvikio.CuFile.read"]["cold"] is None
    assert "kvikio" in figures['io="gds"']["why"]
    late = module.measure(cupy, path, time.monotonic() - 1, rounds=1)
    assert {figure["warm"] for figure in late.values()} == {None}
    assert module.goals(late) == {}
    assert len(module.goals(figures)) == 3

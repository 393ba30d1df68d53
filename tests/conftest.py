"""What every test may use: arrays on disk, and a count of the maps that hold a file."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from mmchunks.gpu import devices, lanes, transfers
from mmchunks.reading import uploading
from mmchunks.reading.trials import Trials
from tests.fakecupy import make

collect_ignore = ["typing"]  # read by mypy, not run

# Shared machines are slow at odd moments: laws are judged by their answers, never by a deadline.
hypothesis.settings.register_profile("mmchunks", deadline=None, print_blob=True)
hypothesis.settings.load_profile("mmchunks")


@pytest.fixture
def ramp(tmp_path):
    """A .npy file of 1000 x 17 float32 that counts up, and the array it holds."""
    array = np.arange(17_000, dtype="f4").reshape(1000, 17)
    path = tmp_path / "ramp.npy"
    np.save(path, array)
    return str(path), array


def forget_devices() -> None:
    """Let the next question about GPUs be asked anew."""
    devices.count.cache_clear()
    transfers._lanes.clear()
    devices._first_pid.cache_clear()
    lanes._say_once.cache_clear()


@pytest.fixture(scope="module", params=["fake", pytest.param("gpu", marks=pytest.mark.gpu)])
def cupy_of_module(request):
    """One CuPy for all tests of a module: making its ring takes longer than most of them."""
    forget_devices()
    yield make() if request.param == "fake" else None
    forget_devices()


@pytest.fixture
def cupy(cupy_of_module, monkeypatch):
    """CuPy: the fake one, and the real one where a GPU answers."""
    monkeypatch.setattr(uploading, "_trials", Trials())
    if cupy_of_module is not None:
        monkeypatch.setitem(sys.modules, "cupy", cupy_of_module)
        devices.count.cache_clear()
    elif devices.count() == 0:
        pytest.skip("no CUDA device answers")
    yield devices.cupy_module()
    devices.count.cache_clear()


def maps_of(path: str | os.PathLike[str]) -> int:
    """Count the maps of this process that name `path`."""
    wanted = str(Path(path).resolve())
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(line.endswith(wanted) for line in lines)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fail a run that skipped what the environment says must not be skipped: proofs need to run."""
    modules = os.environ.get("MMCHUNKS_NO_SKIPS", "").split()
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not modules or reporter is None:
        return
    skipped = {report.nodeid.split("::")[0] for report in reporter.stats.get("skipped", ())}
    left_out = [name for name in sorted(skipped) if any(module in name for module in modules)]
    if left_out:
        print(f"\nskipped, but must run here: {', '.join(left_out)}")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED

"""What every test may use: arrays on disk, and a count of the maps that hold a file."""

from __future__ import annotations

import os
from pathlib import Path

import hypothesis
import numpy as np
import pytest

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


def maps_of(path: str | os.PathLike[str]) -> int:
    """Count the maps of this process that name `path`."""
    wanted = str(Path(path).resolve())
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(line.endswith(wanted) for line in lines)

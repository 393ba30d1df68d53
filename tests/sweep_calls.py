"""Functions for processes to import: what sweeps call in tests, and where they say so."""

import os
import signal
import time
from pathlib import Path

import numpy as np


def row(x, y=0):
    """Four numbers that tell the scenario."""
    return np.array([x, y, x * y, x - y], "f8")


def row_into(x, y=0, *, out):
    assert not out.any()
    out[:] = row(x, y)


def scalar(x):
    return x * 1.5


def record(x):
    """A row of one structured element."""
    return x, x / 2


def big(x):
    return np.full(300_000, x, "f8")


def logged(log, x, seconds=0.0):
    """A row of 4000 bytes, and a line in a log that many processes may write."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, f"{x}\n".encode())
    os.close(fd)
    time.sleep(seconds)
    return np.full(1000, x, "f4")


def calls_in(log):
    """The rows that were computed, in order."""
    return [int(line) for line in Path(log).read_text().split()] if Path(log).exists() else []


def fails_at(log, bad, x):
    result = logged(log, x)
    if x in bad and not Path(f"{log}.mended").exists():
        msg = f"no row for {x}"
        raise ValueError(msg)
    return result


def fails_once(log, x):
    first = x not in calls_in(log)
    result = logged(log, x)
    if first and x % 3 == 0:
        msg = "try again"
        raise OSError(msg)
    return result


def kills_its_worker(log, x):
    result = logged(log, x)
    if x == 13 and not Path(f"{log}.mended").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def kills_its_worker_twice(log, x):
    result = logged(log, x)
    if x == 13 and calls_in(log).count(13) <= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return result


def is_forgotten_once(log, x):
    """Run on while the scheduler gives the task to another worker."""
    from distributed import get_worker

    twins = calls_in(log).count(2)
    result = logged(log, x)
    if x == 2 and not twins:
        Path(f"{log}.part").write_text(get_worker().address)
        Path(f"{log}.part").rename(f"{log}.address")
        time.sleep(1)
    return result


def interrupts(log, x):
    result = logged(log, x)
    if x == 7 and not Path(f"{log}.mended").exists():
        raise KeyboardInterrupt
    return result


def exits(x):
    raise SystemExit(x)

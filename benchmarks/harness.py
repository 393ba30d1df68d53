"""What the benchmarks share: processes of their own, cold files, and memory that is watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path


def run_alone(script, *arguments, timeout=None):
    """Run a script in a process of its own, and read the JSON of its last line.

    A variant that fails, or takes longer than `timeout` seconds, gives ``{"error": sentence}``.
    """
    command = [sys.executable, str(script), *map(str, arguments)]
    try:
        out = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {timeout} s"}
    if out.returncode:
        lines = out.stderr.strip().splitlines()
        return {"error": lines[-1] if lines else f"exit status {out.returncode}"}
    return json.loads(out.stdout.splitlines()[-1])


def evict(folder):
    """Drop the pages of all files of a folder from the page cache."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class PeakMemory:
    """Watch the anonymous memory of processes, and keep the largest that any of them had."""

    def __init__(self, pids):
        self.peak = 0
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()

    def _watch(self):
        while not self._ended.wait(0.01):
            for pid in self._pids:
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("RssAnon"):
                        self.peak = max(self.peak, int(line.split()[1]) * 1024)

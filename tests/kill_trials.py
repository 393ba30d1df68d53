"""Kill sweeps at random instants and judge what is left; run by test_kills, and by hand with more seeds.

    PYTHONPATH=. python tests/kill_trials.py forked FOLDER FIRST LAST
    PYTHONPATH=. python tests/kill_trials.py pooled FOLDER FIRST LAST

``forked``: sweeps without an executor and parts of a job array, forked from one process without
threads, so that hundreds of kills take seconds. ``pooled``: a driver with a pool of two spawned
processes, of which the driver, a worker or all are killed. What goes wrong is printed with its
seed, and the exit status is 1.
"""

import functools
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path

import dask.tokenize  # noqa: F401  (what a sweep imports, once for all that are forked)
import numpy as np

from mmchunks.errors import SweepError
from mmchunks.filling.checking import verify
from mmchunks.filling.sweeping import sweep
from mmchunks.writing.journal import Journal

sys.path.insert(0, str(Path(__file__).parent))

import sweep_calls

ROWS = 40
LOST = 5  # how a driver ends that lost a worker


def forked(work):
    """Start `work` in a process of its own; status 3 means that it raised."""
    pid = os.fork()
    if pid:
        return pid
    status = 3
    try:
        work()
        status = 0
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    os._exit(status)


def done_rows(path):
    """The rows that the journal says are done."""
    try:
        ledger = Journal.open(path).ledger()
    except FileNotFoundError:
        return set()
    return {row for start, stop in ledger.rows for row in range(start, stop)}


class Judge:
    """What must hold of one sweep, however often it was killed."""

    def __init__(self, folder):
        self.folder = folder
        self.path, self.log = f"{folder}/out.npy", f"{folder}/log"
        self.done, self.computed = set(), 0

    def wait(self):
        """Wait until nobody computes any more."""
        calls = -1
        while calls != (calls := len(sweep_calls.calls_in(self.log))):
            time.sleep(0.5)

    def look(self):
        """Nothing that was done is computed again, or forgotten."""
        calls = sweep_calls.calls_in(self.log)
        again = self.done & set(calls[self.computed :])
        assert not again, f"rows {sorted(again)} were done and were computed again"
        done = done_rows(self.path)
        assert self.done <= done, f"rows {sorted(self.done - done)} were done and are forgotten"
        self.done, self.computed = done, len(calls)

    def end(self, func):
        """The file is that of a run that nobody disturbed."""
        self.look()
        assert self.done == set(range(ROWS)), "rows are missing from the journal"
        report = verify(self.path)
        assert report.ok, f"chunks {report.bad} are not what the journal says"
        sweep(func, {"x": range(ROWS)}, f"{self.folder}/judge.npy", progress=False)
        judge = Path(f"{self.folder}/judge.npy").read_bytes()
        assert Path(self.path).read_bytes() == judge, "the bytes differ"
        expected = np.repeat(np.arange(ROWS, dtype="f4")[:, None], 1000, axis=1)
        np.testing.assert_array_equal(np.load(self.path), expected)


def forked_trial(folder, seed):
    """Kill runs without an executor, or parts that run at once; return how many kills hit."""
    rng = random.Random(seed)
    judge = Judge(folder)
    func = functools.partial(sweep_calls.logged, judge.log, seconds=rng.choice([0, 0, 0.001]))
    options = {"chunks": rng.choice(["auto", 1, 2, 7, -1]), "progress": False}
    if rng.random() < 0.5:
        options |= {"shape": 1000, "dtype": "f4"}
    run = functools.partial(sweep, func, {"x": range(ROWS)}, judge.path, **options)
    parts = rng.choice([1, 1, 2, 3])
    works = [functools.partial(run, part=(i, parts)) if parts > 1 else run for i in range(parts)]
    hits = 0
    for _ in range(rng.randint(2, 5)):
        pids = [forked(work) for work in works]
        time.sleep(rng.uniform(0, 0.06) * rng.random())
        for pid in pids if rng.random() < 0.5 else [rng.choice(pids)]:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            status = os.waitpid(pid, 0)[1]
            hits += os.WIFSIGNALED(status)
            assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "a run failed by itself"
        judge.look()
    for work in works:
        work()
    judge.end(func)
    return hits


def pooled_trial(folder, seed):
    """Kill the driver of a pool, a worker, or all, or press Ctrl-C; return how often it hit."""
    rng = random.Random(seed)
    judge = Judge(folder)
    command = [sys.executable, __file__, "drive", folder, str(rng.choice([1, 2, 7]))]
    victim = ["driver", "worker", "all", "ctrl-c"][seed % 4]
    hits, groups = 0, []
    for _ in range(2):
        process = subprocess.Popen(command, start_new_session=True)
        time.sleep(rng.uniform(0.3, 1.6))
        if victim == "worker":
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for pid in children[1:2]:  # the first is multiprocessing's own resource tracker
                os.kill(int(pid), signal.SIGKILL)
        elif victim == "driver":
            process.kill()
        elif process.poll() is None:  # Ctrl-C in a terminal reaches the driver and its workers
            os.killpg(process.pid, signal.SIGINT if victim == "ctrl-c" else signal.SIGKILL)
        status = process.wait()
        hits += status != 0
        assert status in {0, -signal.SIGKILL, -signal.SIGINT, LOST}, (
            f"the driver ended with {status}"
        )
        # Workers without a driver still compute what is queued for them. What they write is what the
        # next run writes, but calls that they make then would look like its own.
        judge.wait()
        judge.look()
        groups.append(process.pid)
    try:
        assert subprocess.run(command, check=False).returncode == 0
        judge.end(functools.partial(sweep_calls.logged, judge.log, seconds=0.02))
    finally:
        for group in groups:  # such workers wait for the driver for ever
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
    return hits


def drive(folder, chunks):
    """Run a sweep with a pool; what `pooled_trial` kills."""
    func = functools.partial(sweep_calls.logged, f"{folder}/log", seconds=0.02)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        try:
            sweep(func, {"x": range(ROWS)}, f"{folder}/out.npy", executor=pool, chunks=int(chunks))
        except SweepError as error:
            return LOST if "a worker was lost" in str(error) else 1
    return 0


def main(kind, folder, first, last):
    """Run the trials of a range of seeds."""
    trial = {"forked": forked_trial, "pooled": pooled_trial}[kind]
    failed, hits = [], 0
    for seed in range(int(first), int(last)):
        place = Path(folder, str(seed))
        place.mkdir(parents=True)
        try:
            hits += trial(str(place), seed)
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            failed.append(seed)
        else:
            shutil.rmtree(place)
    print(f"{kind}: seeds {first} to {last}: {hits} processes killed, failed seeds: {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(drive(*sys.argv[2:]) if sys.argv[1] == "drive" else main(*sys.argv[1:]))

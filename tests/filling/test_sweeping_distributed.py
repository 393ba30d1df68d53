"""Sweeps and arrays on a distributed cluster of processes, some of which are lost."""

import functools
import importlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

from mmchunks.errors import SweepError
from mmchunks.filling.checking import status, verify
from mmchunks.filling.storing import to_npy
from mmchunks.filling.sweeping import sweep
from mmchunks.planning.ranges import count, missing
from mmchunks.writing.journal import Journal
from mmchunks.writing.journallines import Done


@pytest.fixture(scope="module")
def calls():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1]))
        yield importlib.import_module("sweep_calls")


@pytest.fixture(scope="module")
def client(calls, tmp_path_factory):
    settings = {
        "temporary-directory": str(tmp_path_factory.mktemp("dask")),
        "distributed.scheduler.allowed-failures": 3,
    }
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=20)
        yield client


@pytest.fixture
def out(tmp_path):
    return str(tmp_path / "out.npy")


@pytest.fixture
def log(tmp_path):
    return str(tmp_path / "log")


def judge(rows):
    return np.repeat(np.arange(rows, dtype="f4")[:, None], 1000, axis=1)


def ranges(path):
    return sorted(Journal.open(path).ledger().rows)


def test_a_cluster_fills_the_file_and_only_receipts_come_back(client, calls, out, log):
    func = functools.partial(calls.logged, log)
    report = sweep(func, {"x": range(40)}, out, executor=client, chunks=3)
    assert report.done == 40
    np.testing.assert_array_equal(np.load(out), judge(40))
    assert sorted(calls.calls_in(log)) == list(range(40))
    pids = {e.pid for e in Journal.open(out).entries() if isinstance(e.lines[0], Done)}
    assert os.getpid() not in pids
    assert verify(out, executor=client).ok


def test_the_same_call_is_made_again_when_it_must_write_again(client, calls, tmp_path):
    # A scheduler that takes calls to be pure would skip the second run.
    for name in ("first.npy", "second.npy"):
        sweep(calls.scalar, {"x": range(10)}, tmp_path / name, executor=client, chunks=10)
        np.testing.assert_array_equal(np.load(tmp_path / name), np.arange(10) * 1.5)


def test_a_failure_on_a_cluster_says_where_it_was(client, calls, out, log):
    func = functools.partial(calls.fails_at, log, [5])
    with pytest.raises(SweepError, match="scenario 5 failed: ValueError: no row for 5") as caught:
        sweep(func, {"x": range(10)}, out, executor=client, chunks=2)
    assert "in fails_at" in "".join(caught.value.__notes__)


def test_a_lost_worker_costs_its_unit_only(client, calls, out, log):
    func = functools.partial(calls.kills_its_worker_twice, log)
    report = sweep(func, {"x": range(30)}, out, executor=client, chunks=5)
    assert report.done == 30
    np.testing.assert_array_equal(np.load(out), judge(30))
    found = ranges(out)
    assert count(found) == 30, "a unit is in the journal twice"
    assert not missing((0, 30), found)
    computed = calls.calls_in(log)
    assert computed.count(13) == 3


def test_a_scenario_that_kills_every_worker_is_named(client, calls, out, log):
    func = functools.partial(calls.kills_its_worker, log)
    with pytest.raises(SweepError, match=r"scenario 13, which is {'x': 13} \(KilledWorker"):
        sweep(func, {"x": range(30)}, out, executor=client, chunks=1)
    Path(f"{log}.mended").touch()
    sweep(func, {"x": range(30)}, out, executor=client)
    np.testing.assert_array_equal(np.load(out), judge(30))


async def forget(address, dask_scheduler):
    """Let the scheduler believe that a worker is gone, which is still at work."""
    await dask_scheduler.remove_worker(address, stimulus_id="test", close=False)


def test_a_unit_that_runs_twice_at_once_is_right_and_journalled_once(client, calls, out, log):
    def forget_worker():
        while not Path(f"{log}.address").exists():
            time.sleep(0.01)
        client.run_on_scheduler(forget, Path(f"{log}.address").read_text())

    func = functools.partial(calls.is_forgotten_once, log)
    with ThreadPoolExecutor(1) as thread:
        forgotten = thread.submit(forget_worker)
        report = sweep(func, {"x": range(8)}, out, executor=client, chunks=2)
        forgotten.result()
    assert report.done == 8
    assert calls.calls_in(log).count(2) == 2, "the unit ran once only: the test shows nothing"
    np.testing.assert_array_equal(np.load(out), judge(8))
    assert count(ranges(out)) == 8, "a unit is in the journal twice"
    assert verify(out).ok


def test_an_array_is_written_where_it_is_computed(client, out):
    values = np.arange(4000, dtype="f8").reshape(40, 100)
    array = da.from_array(values, chunks=(7, 100)) + 1
    to_npy(array, out)
    np.testing.assert_array_equal(np.load(out), values + 1)
    found = status(out)
    assert (found.done, found.total) == (6, 6)

"""Parts of a sweep on two hosts, each behind a page cache of its own, and no byte is lost."""

import multiprocessing
import os
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

from mmchunks.filling.checking import status, verify
from mmchunks.filling.storing import to_npy
from mmchunks.filling.sweeping import sweep
from mmchunks.writing.journal import Journal
from tests.two_hosts import MODES, two_hosts

SPAWN = multiprocessing.get_context("spawn")
ROWS = 40

pytestmark = pytest.mark.skipif(
    not (os.access("/dev/fuse", os.W_OK) and os.geteuid() == 0), reason="mounting needs root"
)


@pytest.fixture
def hosts(tmp_path, mode):
    pytest.importorskip("mfusepy")
    with two_hosts(tmp_path, mode) as hosts:
        yield hosts


def row(number, nbytes):
    return np.random.default_rng(number).integers(1, 256, nbytes, dtype="u1")


def run_part(path, nbytes, part, chunks):
    """What a task of a job array runs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*refuses O_DIRECT")
        scenarios = {"number": range(ROWS), "nbytes": [nbytes]}
        sweep(row, scenarios, path, part=part, chunks=chunks, progress=False)


def started(hosts, nbytes, chunks, parts):
    """Start part i on host i % 2, all at once."""
    processes = [
        SPAWN.Process(
            target=run_part,
            args=(str(hosts[i % 2].folder / "out.npy"), nbytes, (i, parts), chunks),
        )
        for i in range(parts)
    ]
    for process in processes:
        process.start()
    return processes


def rows_done(path):
    ranges = Journal.open(path).ledger().rows
    return {row for start, stop in ranges for row in range(start, stop)}


def expected(nbytes):
    return np.array([row(number, nbytes) for number in range(ROWS)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("nbytes", "chunks"), [(8192, 4), (9001, 4), (1234, 1)])
def test_parts_on_two_hosts_lose_no_byte(tmp_path, hosts, nbytes, chunks):
    for process in started(hosts, nbytes, chunks, 2):
        process.join(60)
        assert process.exitcode == 0
    server = str(tmp_path / "server" / "out.npy")
    np.testing.assert_array_equal(np.load(server), expected(nbytes))
    ledger = Journal.open(server).ledger()
    assert bool(ledger.settled) == (nbytes != 8192)
    assert not ledger.unsettled
    assert status(server).fraction == 1.0
    assert verify(server).ok


@pytest.mark.parametrize("mode", MODES)
def test_the_other_host_carries_on_when_one_has_lost_its_power(tmp_path, hosts):
    first, second = hosts
    server = str(tmp_path / "server" / "out.npy")
    (process,) = started(hosts, 9001, 2, 1)
    while not (Path(server).exists() and len(rows_done(server)) > 3):
        assert process.is_alive()
    first.crash()
    process.kill()
    process.join()
    before = rows_done(server)
    run_part(str(second.folder / "out.npy"), 9001, (0, 1), 2)
    np.testing.assert_array_equal(np.load(server), expected(9001))
    assert before <= rows_done(server)
    assert verify(server).ok


@pytest.mark.parametrize("mode", ["back"])
def test_an_array_settles_the_pages_that_its_blocks_share(tmp_path, hosts):
    values = np.arange(90 * 100, dtype="f4").reshape(90, 100)
    out = hosts[0].folder / "array.npy"
    work = to_npy(da.from_array(values, chunks=(7, 100)), out, compute=False)
    work.compute(scheduler="threads")
    server = tmp_path / "server" / "array.npy"
    np.testing.assert_array_equal(np.load(server), values)
    assert verify(server).ok
    values[10:40] *= -1
    with pytest.warns(UserWarning, match="journal does not know of region="):
        to_npy(da.from_array(values[10:40], chunks=(7, 100)), out, region=slice(10, 40))
    np.testing.assert_array_equal(np.load(server), values)


@pytest.mark.parametrize("mode", ["back"])
def test_blocks_that_share_every_page_are_said_to_be_for_one_host(hosts):
    array = da.zeros((90, 100), chunks=(90, 7), dtype="f4")
    with pytest.warns(UserWarning, match=r"rechunk\(\{1: -1\}\)"):
        to_npy(array, hosts[0].folder / "array.npy")

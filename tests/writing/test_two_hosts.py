"""Two hosts fill one file, each behind a page cache of its own, and no byte is lost."""

import multiprocessing
import os
import signal
import warnings
from pathlib import Path

import numpy as np
import pytest

from mmchunks.errors import JournalError
from mmchunks.writing.journal import Journal
from mmchunks.writing.targets import create_npy, open_target
from tests.two_hosts import MODES, two_hosts

SPAWN = multiprocessing.get_context("spawn")
ROWS = 48
# Bytes of a row, and where the data start: rows on pages; rows that share both of their pages;
# rows of which three lie in one page.
PLANS = {"aligned": (8192, 4096), "unaligned": (9001, 64), "tiny": (1234, 64)}

pytestmark = pytest.mark.skipif(
    not (os.access("/dev/fuse", os.W_OK) and os.geteuid() == 0), reason="mounting needs root"
)


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def hosts(tmp_path, mode):
    pytest.importorskip("mfusepy")
    with two_hosts(tmp_path, mode) as hosts:
        yield hosts


def row_of(number):
    return np.random.default_rng(number).integers(1, 256, 9001, dtype="u1")


def know_all(path):
    """Read all of a file, so that this host has every page of it in its cache."""
    return Path(path).read_bytes()


def write_rows(path, rows, ready, start):
    """A worker: write rows as chunks, and write down which."""
    target = open_target(path)
    nbytes = target.shape[1]
    know_all(path)
    ready.release()
    assert start.wait(60)
    with Journal.open(path).writer() as writer:
        for row in rows:
            writer.append(target.write_chunk(row, row_of(row)[:nbytes]))


def run_on(hosts, work, shares, *, kill=None):
    """Run a worker on each host, beginning when both know the file."""
    ready, start = SPAWN.Semaphore(0), SPAWN.Event()
    workers = [
        SPAWN.Process(target=work, args=(str(host.folder / "out.npy"), share, ready, start))
        for host, share in zip(hosts, shares, strict=True)
    ]
    for worker in workers:
        worker.start()
    for _ in workers:
        assert ready.acquire(timeout=60)
    start.set()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0


def create_on(host, plan):
    nbytes, align = PLANS[plan]
    target = create_npy(host.folder / "out.npy", (ROWS, nbytes), "u1", align=align)
    return target, Journal.create(target.path, {})


def expected(plan):
    return np.array([row_of(row)[: PLANS[plan][0]] for row in range(ROWS)])


def on_server(tmp_path):
    return np.load(tmp_path / "server" / "out.npy")


@pytest.mark.filterwarnings("ignore:.*refuses O_DIRECT")  # and says so
@pytest.mark.parametrize("plan", PLANS)
def test_chunks_of_two_hosts_lose_no_byte(tmp_path, hosts, mode, plan):
    create_on(hosts[0], plan)
    run_on(hosts, write_rows, [range(0, ROWS, 2), range(1, ROWS, 2)])
    path = str(hosts[1].folder / "out.npy")
    chunks = Journal.open(path).ledger().done
    assert sorted(done.box[0][0] for done in chunks) == list(range(ROWS))
    settled = open_target(path).settle(chunks)
    np.testing.assert_array_equal(on_server(tmp_path), expected(plan))
    assert (settled == 0) == (plan == "aligned")
    for host in hosts:  # past the cache, or in the mode that has no other way after opening anew
        target = open_target(host.folder / "out.npy")
        np.testing.assert_array_equal(target[:], expected(plan))
        for done in chunks:
            assert target.checksum(done.box[0][0], done.checksum) == done.checksum


def test_two_finishers_settle_the_same(tmp_path, hosts):
    create_on(hosts[0], "tiny")
    run_on(hosts, write_rows, [range(0, ROWS, 2), range(1, ROWS, 2)])
    for host in hosts:
        path = str(host.folder / "out.npy")
        open_target(path).settle(Journal.open(path).ledger().done)
        np.testing.assert_array_equal(on_server(tmp_path), expected("tiny"))


@pytest.mark.parametrize("plan", ["aligned", "unaligned"])
def test_a_host_carries_on_where_the_other_lost_its_power(tmp_path, hosts, mode, plan):
    create_on(hosts[0], plan)
    first, second = hosts
    ready, start = SPAWN.Semaphore(0), SPAWN.Event()
    path = str(first.folder / "out.npy")
    worker = SPAWN.Process(target=write_rows, args=(path, range(ROWS), ready, start))
    worker.start()
    assert ready.acquire(timeout=60)
    path = str(second.folder / "out.npy")
    know_all(path)
    start.set()
    # Looked at on the server: a host that writes back never sees a file grow that it has looked at.
    while len(Journal.open(tmp_path / "server" / "out.npy").entries()) < ROWS // 4:
        assert worker.is_alive()
    first.crash()
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    journal, target = Journal.open(path), open_target(path)
    done = {start for start, _ in journal.ledger().rows}
    assert len(done) >= ROWS // 4
    with journal.writer() as writer:
        for row in sorted(set(range(ROWS)) - done):
            writer.append(target.write_chunk(row, row_of(row)[: target.shape[1]]))
    target.settle(journal.ledger().done)
    np.testing.assert_array_equal(on_server(tmp_path), expected(plan))


def store_rows(path, rows, ready, start):
    """The control: what everybody does."""
    array = np.load(path, mmap_mode="r+")
    array.sum()
    ready.release()
    assert start.wait(60)
    for row in rows:
        array[row] = row_of(row)[: array.shape[1]]
    array.flush()


@pytest.mark.parametrize("mode", ["through", "back", "back-keep", "back-granule"], indirect=True)
def test_control_memmaps_of_two_hosts_lose_bytes(tmp_path, hosts, mode):
    plan = "aligned" if mode == "back-granule" else "unaligned"
    create_on(hosts[0], plan)
    run_on(hosts, store_rows, [range(0, ROWS, 2), range(1, ROWS, 2)])
    assert (on_server(tmp_path) != expected(plan)).any()


@pytest.mark.parametrize("mode", ["direct"], indirect=True)
def test_control_memmaps_do_not_work_without_a_cache(hosts):
    create_on(hosts[0], "aligned")
    with pytest.raises(OSError, match="No such device"):
        np.load(hosts[0].folder / "out.npy", mmap_mode="r+")


@pytest.mark.parametrize("mode", ["back"], indirect=True)
def test_regions_that_share_pages_are_said_to_be_for_one_host(hosts):
    target, _ = create_on(hosts[0], "unaligned")
    with pytest.warns(UserWarning, match="network file system.*no other host writes there"):
        target[3] = 1
    target[4] = 1  # said once
    target.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        aligned = create_npy(hosts[0].folder / "aligned.npy", (4, 8192), "u1")
        aligned[2] = 1
        aligned.flush()


@pytest.mark.parametrize("mode", ["back"], indirect=True)
def test_only_one_driver_of_two_hosts(hosts):
    _, journal = create_on(hosts[0], "aligned")
    other = Journal.open(str(hosts[1].folder / "out.npy"))
    with (
        journal.lock(force=False),
        pytest.raises(JournalError, match="another driver"),
        other.lock(force=False),
    ):
        pass

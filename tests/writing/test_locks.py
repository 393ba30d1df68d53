"""Two drivers never hold one folder, and a dead one does not hold it for ever."""

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest

from mmchunks.errors import JournalError
from mmchunks.writing import locks
from mmchunks.writing.journal import Journal
from mmchunks.writing.locks import Owner, owned, require_owner

SPAWN = multiprocessing.get_context("spawn")


def hold(folder, ready):
    with owned(folder, force=False):
        ready.set()
        time.sleep(60)


@pytest.fixture
def holder(tmp_path):
    """A living process that owns tmp_path."""
    ready = SPAWN.Event()
    process = SPAWN.Process(target=hold, args=(tmp_path, ready))
    process.start()
    assert ready.wait(30)
    yield process
    process.kill()
    process.join()


def own_as(folder, **changes):
    """Leave behind the card of an owner that differs from this process."""
    owner = replace(Owner.here(), **changes)
    (folder / "driver.json").write_text(json.dumps(asdict(owner)))


def test_a_second_driver_is_refused_with_host_pid_and_time(tmp_path, holder):
    sentence = rf"host {os.uname().nodename}, pid {holder.pid}, since 20\d\d-"
    with pytest.raises(JournalError, match=sentence), owned(tmp_path, force=False):
        pass


def test_force_takes_from_a_living_driver_whose_end_takes_nothing_back(tmp_path, holder):
    with owned(tmp_path, force=True), pytest.raises(JournalError), owned(tmp_path, force=False):
        pass
    assert not (tmp_path / "driver.json").exists()


def test_an_owner_that_was_robbed_leaves_the_new_one_alone(tmp_path):
    with owned(tmp_path, force=False), owned(tmp_path, force=True) as robber:
        pass
    with owned(tmp_path, force=False) as first:
        own_as(tmp_path, token="robber")
    assert robber.token != first.token
    assert json.loads((tmp_path / "driver.json").read_text())["token"] == "robber"


def test_a_killed_driver_is_replaced_even_before_its_parent_waits_for_it(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while True:  # it dies soon, and stays a zombie until it is joined
        try:
            with owned(tmp_path, force=False):
                break
        except JournalError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def network(monkeypatch):
    """A mount whose locks may be this host's alone."""
    monkeypatch.setattr(locks, "mount_of", lambda _: SimpleNamespace(local=False))


@pytest.mark.parametrize("changes", [{"started": "1"}, {"boot": "an earlier one"}])
def test_a_pid_that_was_given_to_another_process_is_not_the_owner(tmp_path, changes, network):
    own_as(tmp_path, **changes)
    with owned(tmp_path, force=False):
        pass


UNSEEN = [
    {"host": "node7"},
    {"namespace": "pid:[1]", "pid": 2**22},
    {"machine": "another of this name"},
    {"machine": "", "boot": "or another that has no number"},
]


@pytest.mark.parametrize("changes", UNSEEN)
def test_an_owner_whose_end_cannot_be_seen_gives_way_to_force_only(
    tmp_path, changes, network, monkeypatch
):
    if changes.get("machine") == "":
        monkeypatch.setattr(locks, "_machine", str)
    own_as(tmp_path, **changes)
    with pytest.raises(JournalError, match="--force"), owned(tmp_path, force=False):
        pass
    with owned(tmp_path, force=True):
        pass


@pytest.mark.parametrize("changes", UNSEEN)
def test_on_a_disk_of_this_host_the_lock_says_that_an_owner_has_ended(tmp_path, changes):
    own_as(tmp_path, **changes)
    with owned(tmp_path, force=False):
        pass


@pytest.mark.parametrize(
    "changes", [*UNSEEN, {"started": "1"}, {"boot": "an earlier one"}, {"pid": 1}, None]
)
def test_a_driver_that_lives_is_not_robbed_whatever_its_card_says(tmp_path, holder, changes):
    if changes is None:
        (tmp_path / "driver.json").unlink()
    else:
        own_as(tmp_path, **changes)
    alive = pytest.raises(JournalError, match="another driver is at work")
    with alive, owned(tmp_path, force=False):
        pass


def test_another_of_this_process_is_refused_and_takes_no_lock_along(tmp_path):
    with owned(tmp_path, force=False):
        for _ in range(2):
            with pytest.raises(JournalError), owned(tmp_path, force=False):
                pass
        code = (
            "import sys; from pathlib import Path; from mmchunks.writing.locks import owned\n"
            "try:\n with owned(Path(sys.argv[1]), force=False): print('robbed')\n"
            "except Exception as error: print(type(error).__name__)"
        )
        run = [sys.executable, "-c", code, tmp_path]
        said = subprocess.run(run, capture_output=True, text=True, check=True).stdout
        assert said == "JournalError\n"


def test_a_worker_that_outlives_its_driver_does_not_keep_the_lock(tmp_path):
    fork = multiprocessing.get_context("fork")
    with owned(tmp_path, force=False):
        worker = fork.Process(target=time.sleep, args=(60,))
        worker.start()
    try:
        with owned(tmp_path, force=False):
            pass
    finally:
        worker.kill()
        worker.join()


def test_a_turn_is_waited_for(tmp_path, holder):
    began = time.monotonic()
    with pytest.raises(JournalError), owned(tmp_path, force=False, patience=0.3):
        pass
    assert 0.3 <= time.monotonic() - began < 10
    threading.Timer(0.3, holder.kill).start()
    with owned(tmp_path, force=False, patience=30), owned(tmp_path, force=False, name="other"):
        pass


def test_an_owner_finds_out_that_it_was_robbed_or_its_folder_removed(tmp_path):
    folder = tmp_path / "journal"
    folder.mkdir()
    with owned(folder, force=False) as owner:
        require_owner(folder, owner.token)
        with owned(folder, force=True), pytest.raises(JournalError, match="taken over by force"):
            require_owner(folder, owner.token)
        with pytest.raises(JournalError, match="card was removed"):
            require_owner(folder, owner.token)
        shutil.rmtree(folder)
        with pytest.raises(JournalError, match="was removed while it was in use"):
            require_owner(folder, owner.token)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"host": 3}', "[" * 10**5, "\xff"])
def test_a_card_that_says_nothing_stands_in_nobodys_way(tmp_path, text):
    (tmp_path / "driver.json").write_text(text)
    with owned(tmp_path, force=False):
        pass


def test_a_driver_that_died_before_it_said_its_name_is_replaced(tmp_path):
    (tmp_path / "driver.json").touch()
    with owned(tmp_path, force=False):
        pass


def race(folder, log, rounds):
    for _ in range(rounds):
        try:
            with owned(folder, force=False):
                os.write(log, b"(")
                time.sleep(0.0005)
                os.write(log, b")")
                # Leave a dead owner, so that the next ones race for taking over.
                own_as(folder, started="1")
        except JournalError:
            time.sleep(0.0002)


def test_takers_of_a_dead_owner_never_hold_it_together(tmp_path):
    log = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    own_as(tmp_path, started="1")
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=race, args=(tmp_path, log, 150)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    os.close(log)
    text = (tmp_path / "log").read_text()
    assert len(text) > 100
    assert text == "()" * (len(text) // 2)


def test_the_journal_hands_the_lock_on(tmp_path):
    journal = Journal.create(tmp_path / "out.npy", {})
    with journal.lock(force=False):
        with pytest.raises(JournalError, match="another driver"), journal.lock(force=False):
            pass
        journal.remove()

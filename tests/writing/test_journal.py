"""What was written down is read back, and what a crash tore is not taken for done."""

import json
import multiprocessing
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import JournalError
from mmchunks.writing.journal import Journal

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def journal(tmp_path):
    return Journal.create(tmp_path / "out.npy", {"rows": 10})


def rows(journal):
    return sorted(record["rows"] for record in journal.records())


def only_file(journal):
    (file,) = journal.folder.glob("*.jsonl")
    return file


def test_settings_come_back_as_they_were_given(journal):
    assert Journal.open(journal.path).settings == {"rows": 10}


def test_a_file_without_a_journal_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.npy: no such file, and no journal"):
        Journal.open(tmp_path / "none.npy")


def test_damaged_settings_are_refused(journal):
    (journal.folder / "plan.json").write_text('{"rows": 1')
    with pytest.raises(JournalError, match=r"plan\.json"):
        Journal.open(journal.path)


def test_a_second_journal_of_one_file_is_refused_and_leaves_nothing(journal, tmp_path):
    with pytest.raises(JournalError, match="earlier work"):
        Journal.create(journal.path, {})
    assert os.listdir(tmp_path) == ["out.npy.mmchunks"]


def test_a_removed_journal_leaves_nothing(journal, tmp_path):
    journal.remove()
    assert os.listdir(tmp_path) == []
    Journal.create(journal.path, {"rows": 11})


def test_a_record_is_stamped_with_its_process_and_keeps_what_it_says_itself(journal):
    with journal.writer() as writer:
        writer.append({"rows": [0, 1], "host": "elsewhere"})
    (record,) = journal.records()
    assert record["host"] == "elsewhere"
    assert record["pid"] == os.getpid()
    assert record["time"] > 0


def append(path, start):
    with Journal.open(path).writer() as writer:
        for row in range(start, start + 20):
            writer.append({"rows": [row, row + 1]})


def test_writers_of_several_processes_and_threads_lose_no_record(journal):
    workers = [SPAWN.Process(target=append, args=(journal.path, 100 * i)) for i in range(2)]
    for worker in workers:
        worker.start()
    with journal.writer() as writer:
        threads = [
            threading.Thread(target=lambda i=i: writer.append({"rows": [1000 + i, 1001 + i]}))
            for i in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for worker in workers:
        worker.join()
    starts = [*range(20), *range(100, 120), *range(1000, 1020)]
    assert rows(journal) == [[start, start + 1] for start in starts]


def test_a_line_is_plain_json(journal):
    with journal.writer() as writer:
        writer.append_many([{"rows": [0, 1], "error": "a\nb\r\u2028"}, {"rows": [1, 2]}])
    lines = only_file(journal).read_text().splitlines()
    assert [json.loads(line)["rows"] for line in lines] == [[0, 1], [1, 2]]


def test_a_journal_cut_at_any_byte_keeps_every_whole_line_and_no_other(journal):
    with journal.writer() as writer:
        writer.append_many([{"rows": [i, i + 1]} for i in range(4)])
    text = only_file(journal).read_bytes()
    ends = [at for at, byte in enumerate(text) if byte == ord("\n")]
    for cut in range(len(text) + 1):
        only_file(journal).write_bytes(text[:cut])
        whole = sum(cut >= end for end in ends)
        assert rows(journal) == [[i, i + 1] for i in range(whole)]


@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_is_never_read_as_a_record(tmp_path_factory, where, flip):
    journal = Journal.create(tmp_path_factory.mktemp("flip") / "out.npy", {})
    with journal.writer() as writer:
        writer.append_many([{"rows": [i, i + 1]} for i in range(3)])
    file = only_file(journal)
    text = bytearray(file.read_bytes())
    at = int(where * (len(text) - 1))  # the last newline is not needed
    text[at] ^= flip
    file.write_bytes(text)
    line = bytes(text[:at]).count(b"\n") + 1
    try:
        found = str(rows(journal))
    except JournalError as error:
        found = str(error)
    # The last line is as if it were torn, and so are two that were joined; else it is named.
    torn = line >= 2 and found == str([[0, 1], [1, 2]][: line - 1])
    assert torn or f"{file}: line {line} of" in found


def test_a_writer_that_lost_a_record_writes_no_other(journal, monkeypatch):
    write = os.write
    with journal.writer() as writer:
        writer.append({"rows": [0, 1]})
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, text: write(fd, text[:7]))
            with pytest.raises(OSError, match=r"7 of \d+ bytes"):
                writer.append({"rows": [1, 2]})
        with pytest.raises(OSError, match="open another writer"):
            writer.append({"rows": [2, 3]})
    with journal.writer() as writer:
        writer.append({"rows": [3, 4]})
    assert rows(journal) == [[0, 1], [3, 4]]


def test_ctrl_c_in_the_middle_loses_no_record_and_no_writer(journal, monkeypatch):
    sync = os.fdatasync

    def interrupted(fd):
        sync(fd)
        raise KeyboardInterrupt

    with journal.writer() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.append({"rows": [0, 1]})
        writer.append({"rows": [1, 2]})
    assert rows(journal) == [[0, 1], [1, 2]]


def test_a_full_disk_is_told_with_the_name_of_the_file(journal, monkeypatch):
    def full(fd, text):
        raise OSError(28, "No space left on device")

    with journal.writer() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match=r"\.jsonl: a record is lost: no space") as caught:
                writer.append({"rows": [0, 1]})
        assert caught.value.errno == 28


def test_a_failed_flush_is_not_asked_again(journal, monkeypatch):
    asked = []

    def fail(fd):
        asked.append(fd)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with journal.writer() as writer:
        for _ in range(2):
            with pytest.raises(OSError, match=r"error|another writer"):
                writer.append({"rows": [0, 1]})
    assert len(asked) == 1

"""What was written down is read back, and what a crash tore is not taken for done."""

import json
import multiprocessing
import os
import threading
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import JournalError
from mmchunks.writing.journal import Journal
from mmchunks.writing.journallines import (
    Began,
    Done,
    Ended,
    Failed,
    Forgotten,
    Settled,
    read_line,
    write_line,
)

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def journal(tmp_path):
    return Journal.create(tmp_path / "out.npy", {"rows": 10})


def rows(journal):
    return sorted(journal.ledger().rows)


def done(start, stop):
    return Done(((start, stop),), nbytes=8, checksum="xxh3_64:00")


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


def test_an_entry_says_by_whom_and_when(journal):
    with journal.writer() as writer:
        writer.append(done(0, 1), host="elsewhere")
    (entry,) = journal.entries()
    assert entry.host == "elsewhere"
    assert entry.pid == os.getpid()
    assert entry.time > 0


def append(path, start):
    with Journal.open(path).writer() as writer:
        for row in range(start, start + 20):
            writer.append(done(row, row + 1))


def test_writers_of_several_processes_and_threads_lose_no_record(journal):
    workers = [SPAWN.Process(target=append, args=(journal.path, 100 * i)) for i in range(2)]
    for worker in workers:
        worker.start()
    with journal.writer() as writer:
        threads = [
            threading.Thread(target=lambda i=i: writer.append(done(1000 + i, 1001 + i)))
            for i in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for worker in workers:
        worker.join()
    starts = [*range(20), *range(100, 120), *range(1000, 1020)]
    assert rows(journal) == [(start, start + 1) for start in starts]


def test_an_entry_is_a_line_of_plain_json(journal):
    failed = Failed(7, "a\nb\r\u2028", "")
    with journal.writer() as writer:
        writer.append(done(0, 1), failed)
        writer.append(done(1, 2))
    lines = [json.loads(line)["lines"] for line in only_file(journal).read_text().splitlines()]
    assert [line["done"] for (line, *_) in lines] == [[[0, 1]], [[1, 2]]]
    assert lines[0][1]["error"] == failed.error


boxes = st.lists(st.tuples(st.integers(0, 9), st.integers(9, 2**63)), min_size=1, max_size=3)
chunks = boxes.map(tuple)
times = st.floats(allow_nan=False, allow_infinity=False)
lines = st.one_of(
    st.builds(
        Done,
        chunks,
        st.integers(0),
        st.text(),
        st.lists(st.tuples(st.integers(0), st.binary())).map(tuple),
        st.floats(0, 1e6).map(lambda seconds: round(seconds, 6)),
    ),
    st.builds(Failed, st.integers(0), st.text(), st.text()),
    st.builds(Began, *[st.integers(0)] * 3, *[st.none() | st.integers(0)] * 3, st.booleans()),
    st.builds(Settled, st.lists(chunks).map(tuple)),
    st.builds(Forgotten, st.lists(st.tuples(chunks, st.lists(times).map(tuple))).map(tuple)),
    st.builds(Ended, st.integers(0)),
)


@given(lines)
def test_whatever_a_line_says_is_read_back(line):
    assert read_line(json.loads(json.dumps(write_line(line)))) == line


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(lines, st.data())
def test_a_line_of_other_types_is_at_most_a_value_error(line, data):
    form = json.loads(json.dumps(write_line(line)))
    name = data.draw(st.sampled_from(sorted(form)))
    form[name] = data.draw(json_values)
    with suppress(ValueError):  # and nothing else
        read_line(form)


def test_an_entry_of_other_types_is_named(journal):
    with journal.writer() as writer:
        writer.append(done(0, 1))
    text = json.dumps({"host": "a", "pid": 1, "time": 0, "lines": [{"done": [[2, "x"]]}]})[1:]
    only_file(journal).write_bytes(b'{"crc32":"%08x",' % zlib.crc32(text.encode()) + text.encode())
    with pytest.raises(
        JournalError, match=r"line 1 of 1 is no entry of a journal: done is \[\[2, 'x'"
    ):
        journal.entries()


def test_an_entry_torn_between_any_two_of_its_lines_does_not_count_at_all(journal):
    with journal.writer() as writer:
        writer.append(done(0, 1))
        writer.append(*(done(i, i + 1) for i in range(1, 5)))
    file = only_file(journal)
    text = file.read_bytes()
    first = text.index(b"\n") + 1
    for torn in range(first, len(text) - 1):
        # The disk wrote some sectors of the entry, in any order: a hole, and what follows it.
        file.write_bytes(text[:torn] + bytes(1) + text[torn + 1 :])
        assert rows(journal) == [(0, 1)]


def test_a_journal_cut_at_any_byte_keeps_every_whole_line_and_no_other(journal):
    with journal.writer() as writer:
        append_each(writer, 4)
    text = only_file(journal).read_bytes()
    ends = [at for at, byte in enumerate(text) if byte == ord("\n")]
    for cut in range(len(text) + 1):
        only_file(journal).write_bytes(text[:cut])
        whole = sum(cut >= end for end in ends)
        assert rows(journal) == [(i, i + 1) for i in range(whole)]


def append_each(writer, count):
    for i in range(count):
        writer.append(done(i, i + 1))


@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_is_never_read_as_a_record(tmp_path_factory, where, flip):
    journal = Journal.create(tmp_path_factory.mktemp("flip") / "out.npy", {})
    with journal.writer() as writer:
        append_each(writer, 3)
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
    torn = line >= 2 and found == str([(0, 1), (1, 2)][: line - 1])
    assert torn or f"{file}: line {line} of" in found


def test_a_writer_that_lost_a_record_writes_no_other(journal, monkeypatch):
    write = os.write
    with journal.writer() as writer:
        writer.append(done(0, 1))
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda fd, text: write(fd, text[:7]))
            with pytest.raises(OSError, match=r"7 of \d+ bytes"):
                writer.append(done(1, 2))
        with pytest.raises(OSError, match="open another writer"):
            writer.append(done(2, 3))
    with journal.writer() as writer:
        writer.append(done(3, 4))
    assert rows(journal) == [(0, 1), (3, 4)]


def test_ctrl_c_in_the_middle_loses_no_record_and_no_writer(journal, monkeypatch):
    sync = os.fdatasync

    def interrupted(fd):
        sync(fd)
        raise KeyboardInterrupt

    with journal.writer() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", interrupted)
            with pytest.raises(KeyboardInterrupt):
                writer.append(done(0, 1))
        writer.append(done(1, 2))
    assert rows(journal) == [(0, 1), (1, 2)]


def test_a_full_disk_is_told_with_the_name_of_the_file(journal, monkeypatch):
    def full(fd, text):
        raise OSError(28, "No space left on device")

    with journal.writer() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(OSError, match=r"\.jsonl: an entry is lost: no space") as caught:
                writer.append(done(0, 1))
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
                writer.append(done(0, 1))
    assert len(asked) == 1

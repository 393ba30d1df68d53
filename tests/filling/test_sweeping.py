"""Sweeps: row i is what the function makes of scenario i, whoever computed it, and however often it stopped."""

import functools
import importlib
import multiprocessing
import os
import shutil
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mmchunks.errors import (
    JournalError,
    LayoutError,
    MMChunksError,
    PlanError,
    StaleFileError,
    SweepError,
)
from mmchunks.filling import learning
from mmchunks.filling.sweeping import sweep
from mmchunks.planning.ranges import missing
from mmchunks.writing.journal import Journal
from mmchunks.writing.journallines import Done


@pytest.fixture
def calls(monkeypatch):
    """The functions that are swept, where spawned processes find them as well."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1]))
    return importlib.import_module("sweep_calls")


@pytest.fixture(scope="module")
def pool():
    """Two processes that last as long as nobody kills them."""
    context = multiprocessing.get_context("spawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1]))
        with ProcessPoolExecutor(2, context) as executor:
            executor.submit(abs, 1).result()
            yield executor


@pytest.fixture(params=["serial", "threads", "processes"])
def executor(request):
    if request.param == "serial":
        yield None
    elif request.param == "threads":
        with ThreadPoolExecutor(3) as threads:
            yield threads
    else:
        yield request.getfixturevalue("pool")


@pytest.fixture
def out(tmp_path):
    return str(tmp_path / "out.npy")


@pytest.fixture
def log(tmp_path):
    return str(tmp_path / "log")


def ledger(path):
    return Journal.open(path).ledger()


def rows_in(ranges):
    return [row for start, stop in ranges for row in range(start, stop)]


def judge(count):
    return np.repeat(np.arange(count, dtype="f4")[:, None], 1000, axis=1)


PRODUCT = {"x": [1, 2, 3], "y": list(range(7))}
ROWS = [(x, y, x * y, x - y) for x in [1, 2, 3] for y in range(7)]


@pytest.mark.parametrize(
    "scenarios",
    [
        PRODUCT,
        [{"x": x, "y": y} for x, y, *_ in ROWS],
        [(x, y) for x, y, *_ in ROWS],
        pd.DataFrame([row[:2] for row in ROWS], columns=["x", "y"]),
    ],
    ids=["product", "dicts", "tuples", "table"],
)
@pytest.mark.parametrize("chunks", ["auto", 1, 5, -1, "100 B"])
def test_row_i_belongs_to_scenario_i(calls, out, scenarios, chunks):
    report = sweep(calls.row, scenarios, out, chunks=chunks)
    assert (report.done, report.skipped, report.failed) == (21, 0, 0)
    np.testing.assert_array_equal(np.load(out), ROWS)


def test_any_executor_fills_the_same_file(calls, executor, out):
    report = sweep(calls.row, PRODUCT, out, executor=executor, chunks=4)
    assert (report.path, report.done) == (out, 21)
    np.testing.assert_array_equal(np.load(out), ROWS)
    again = sweep(calls.row, PRODUCT, out, executor=executor)
    assert (again.done, again.skipped) == (0, 21)


def test_shape_and_dtype_are_learnt_or_given(calls, executor, out):
    sweep(calls.row, PRODUCT, out, executor=executor, shape=4, dtype="f4")
    found = np.load(out)
    assert found.dtype == "f4"
    np.testing.assert_array_equal(found, ROWS)


def test_a_row_can_be_filled_in_place(calls, executor, out):
    sweep(
        calls.row_into, PRODUCT, out, executor=executor, into=True, shape=(4,), dtype="f8", chunks=2
    )
    np.testing.assert_array_equal(np.load(out), ROWS)


def test_rows_may_be_scalars_or_records_or_large(calls, executor, tmp_path):
    sweep(calls.scalar, {"x": range(50)}, tmp_path / "scalar.npy", executor=executor)
    np.testing.assert_array_equal(np.load(tmp_path / "scalar.npy"), np.arange(50) * 1.5)
    fields = [("a", "i4"), ("b", "f4")]
    sweep(calls.record, {"x": range(9)}, tmp_path / "r.npy", dtype=fields, shape=())
    assert np.load(tmp_path / "r.npy")[3].tolist() == (3, 1.5)
    sweep(calls.big, {"x": range(7)}, tmp_path / "big.npy", executor=executor, chunks="3 MB")
    found = np.load(tmp_path / "big.npy", mmap_mode="r")
    assert found.shape == (7, 300_000)
    assert [set(row) for row in found.tolist()] == [{x} for x in range(7)]


def test_an_empty_sweep_makes_an_empty_file(calls, out):
    with pytest.raises(PlanError, match="no scenario to learn shape and dtype from"):
        sweep(calls.row, [], out)
    assert not os.path.exists(out)
    for _ in range(2):
        assert sweep(calls.row, [], out, shape=4, dtype="f4").done == 0
    assert np.load(out).shape == (0, 4)


def test_nothing_is_computed_twice(calls, executor, out, log):
    func = functools.partial(calls.logged, log)
    sweep(func, {"x": range(30)}, out, executor=executor, chunks=4)
    sweep(func, {"x": range(30)}, out, executor=executor, chunks=4)
    assert sorted(calls.calls_in(log)) == list(range(30))


def test_the_plan_is_kept_by_later_runs(calls, out, pool):
    sweep(calls.row, PRODUCT, out, chunks=5)
    assert Journal.open(out).settings["unit_rows"] == 5
    assert sweep(calls.row, PRODUCT, out, executor=pool).skipped == 21
    with pytest.raises(JournalError, match="unit_rows was 5, now it is 6"):
        sweep(calls.row, PRODUCT, out, chunks=6)


def test_tiny_scenarios_go_in_few_units(calls, out, pool):
    report = sweep(calls.scalar, {"x": range(100_000)}, out, executor=pool)
    assert len(ledger(out).done) < 50
    assert report.seconds / 100_000 < 0.2e-3


def test_slow_scenarios_go_one_by_one(calls, out, log, tmp_path):
    slow = functools.partial(calls.logged, log, seconds=0.6)
    sweep(slow, {"x": range(2)}, out)
    assert Journal.open(out).settings["unit_rows"] == 1
    assert sorted(ledger(out).rows) == [(0, 1), (1, 2)]


def test_parts_need_no_driver_and_come_in_any_order(calls, out, log):
    func = functools.partial(calls.logged, log)
    reports = [sweep(func, {"x": range(50)}, out, part=(i, 7), chunks=3) for i in (3, 0, 6, 1, 5)]
    assert missing((0, 50), ledger(out).rows)
    reports += [sweep(func, {"x": range(50)}, out, part=(i, 7)) for i in (2, 4)]
    assert sum(report.done for report in reports) == 50
    assert sorted(calls.calls_in(log)) == list(range(50))
    np.testing.assert_array_equal(np.load(out), judge(50))
    # Another number of parts finds everything done; more parts than rows have some without any.
    assert [sweep(func, {"x": range(50)}, out, part=(i, 99)).done for i in (0, 57, 98)] == [0] * 3


def test_parts_at_once_agree_on_one_file(calls, out, log, pool):
    func = functools.partial(calls.logged, log)
    run = functools.partial(sweep, func, {"x": range(64)}, out)
    ended = [pool.submit(run, part=(i, 8)) for i in range(8)]
    assert sum(future.result().done for future in ended) == 64
    np.testing.assert_array_equal(np.load(out), judge(64))
    assert sorted(calls.calls_in(log)) == list(range(64))


def test_what_no_file_can_hold_leaves_no_journal(calls, out):
    with pytest.raises(LayoutError, match="holds Python objects"):
        sweep(calls.row, PRODUCT, out, shape=4, dtype=object)
    assert list(Path(out).parent.iterdir()) == []


def test_an_empty_part_of_nothing_makes_nothing(calls, out):
    assert sweep(calls.row, [(1, 2)], out, part=(0, 2)).done == 0
    assert not os.path.exists(out)
    with pytest.raises(PlanError, match="parts count from 0 to 1"):
        sweep(calls.row, [(1, 2)], out, part=(2, 2))


def test_a_failure_stops_the_sweep_and_keeps_what_is_done(calls, executor, out, log):
    func = functools.partial(calls.fails_at, log, [17])
    with pytest.raises(SweepError) as caught:
        sweep(func, {"x": range(30)}, out, executor=executor, chunks=5)
    assert f"{out}: scenario 17 failed: ValueError: no row for 17" in str(caught.value)
    assert "in fails_at" in "".join(caught.value.__notes__)
    kept = rows_in(ledger(out).rows)
    assert {15, 16} <= set(kept)
    assert 17 not in kept
    Path(f"{log}.mended").touch()
    report = sweep(func, {"x": range(30)}, out, executor=executor)
    assert (report.done, report.skipped) == (30 - len(kept), len(kept))
    np.testing.assert_array_equal(np.load(out), judge(30))
    computed = calls.calls_in(log)
    assert all(computed.count(row) == 1 for row in kept)


def test_units_that_run_when_another_fails_are_kept(out):
    began = threading.Event()

    def meet(x):
        if x == 1:
            began.wait(20)
            msg = "while the other one runs"
            raise ValueError(msg)
        if x == 2:
            began.set()
            time.sleep(0.3)
        return x

    with ThreadPoolExecutor(2) as threads, pytest.raises(SweepError, match="scenario 1 failed"):
        sweep(meet, {"x": range(9)}, out, executor=threads, chunks=1)
    kept = rows_in(ledger(out).rows)
    assert {0, 2} <= set(kept)
    assert len(kept) < 8


def test_the_exception_itself_is_the_cause_where_it_was_raised_here(calls, out, log):
    with pytest.raises(SweepError) as caught:
        sweep(functools.partial(calls.fails_at, log, [0]), {"x": range(3)}, out)
    assert isinstance(caught.value.__cause__, ValueError)
    assert not os.path.exists(out)  # the first scenario failed: nothing to carry on with


def test_recorded_failures_leave_zeros_and_are_tried_again(calls, executor, out, log):
    func = functools.partial(calls.fails_at, log, [0, 3, 4, 19])
    report = sweep(func, {"x": range(20)}, out, executor=executor, chunks=5, on_error="record")
    assert (report.done, report.failed) == (16, 4)
    expected = judge(20)
    expected[[0, 3, 4, 19]] = 0
    np.testing.assert_array_equal(np.load(out), expected)
    failed = ledger(out).failed
    assert sorted(failed) == [0, 3, 4, 19]
    assert failed[3].error == "ValueError: no row for 3"
    assert "in fails_at" in failed[3].traceback
    Path(f"{log}.mended").touch()
    report = sweep(func, {"x": range(20)}, out, executor=executor, on_error="record")
    assert (report.done, report.skipped, report.failed) == (4, 16, 0)
    assert not ledger(out).failed
    np.testing.assert_array_equal(np.load(out), judge(20))


def test_retries_try_again_at_once(calls, executor, out, log):
    func = functools.partial(calls.fails_once, log)
    report = sweep(func, {"x": range(10)}, out, executor=executor, retries=1, chunks=2)
    assert (report.done, report.failed) == (10, 0)
    np.testing.assert_array_equal(np.load(out), judge(10))
    assert sorted(calls.calls_in(log)) == sorted([*range(10), 0, 3, 6, 9])


def test_a_function_that_exits_is_a_failure_like_others(calls, executor, out):
    with pytest.raises(SweepError, match="scenario 0 failed: SystemExit: 5"):
        sweep(calls.exits, [(5,)], out, executor=executor)


@pytest.mark.parametrize(
    ("func", "options", "says"),
    [
        (lambda x: [1, 2][: 1 + x % 2], {}, r"shape \(2,\) of int64, but rows have shape \(1,\)"),
        (lambda **_: [0.5], {"dtype": "i4"}, "of float64, but rows have shape"),
        (lambda x: "ab"[: x + 1], {}, "of <U2, but rows have shape"),
        (lambda x: 2 ** (10 * x), {"dtype": "i4"}, "out of bounds for int32"),
        (lambda **_: None, {}, "the function returned NoneType, which has no bytes"),
        (lambda **_: object(), {"shape": (), "dtype": "f4"}, "returned object"),
        (lambda y: y, {}, "unexpected keyword argument 'x'"),
        (lambda **_: 0, {"on_error": "ignore"}, 'write "raise" or "record"'),
        (lambda **_: 0, {"retries": -1}, "retries is -1; write 0 or more"),
        (lambda **_: 0, {"chunks": "much"}, "is no number of bytes"),
        (lambda **_: 0, {"chunks": 0}, "write 1 to 6, or -1"),
        (lambda **_: 0, {"into": True}, "needs their shape= and dtype="),
    ],
    ids=[
        "shape",
        "dtype",
        "text",
        "integer",
        "none",
        "object",
        "keyword",
        "on_error",
        "retries",
        "size",
        "chunks",
        "into",
    ],
)
def test_a_function_that_gives_no_such_row_is_told_so(out, func, options, says):
    with pytest.raises(MMChunksError, match=says):
        sweep(func, {"x": range(6)}, out, **options)


@pytest.mark.parametrize("chunks", ["auto", 1, 2, 3, -1])
@pytest.mark.parametrize("bad", [[0], [0, 1], [0, 1, 2, 7], list(range(9))])
def test_shape_is_learnt_from_the_first_row_that_works(calls, executor, out, log, chunks, bad):
    func = functools.partial(calls.fails_at, log, bad)
    report = sweep(func, {"x": range(10)}, out, executor=executor, chunks=chunks, on_error="record")
    assert (report.done, report.failed) == (10 - len(bad), len(bad))
    assert sorted(ledger(out).failed) == bad
    assert sorted(calls.calls_in(log)) == list(range(10))
    Path(f"{log}.mended").touch()
    again = sweep(func, {"x": range(10)}, out, executor=executor, on_error="record")
    assert (again.done, again.skipped) == (len(bad), 10 - len(bad))
    assert np.load(out)[:, 0].tolist() == list(range(10))


def test_a_sweep_none_of_whose_rows_works_says_so_and_leaves_nothing(calls, out, log):
    func = functools.partial(calls.fails_at, log, range(5))
    with pytest.raises(SweepError, match=r"none of 5 scenarios .* no row for 4; .* pass shape="):
        sweep(func, {"x": range(5)}, out, chunks=2, on_error="record")
    assert os.listdir(Path(out).parent) == ["log"]


def test_ctrl_c_keeps_what_is_done(calls, executor, out, log):
    func = functools.partial(calls.interrupts, log)
    with pytest.raises(KeyboardInterrupt):
        sweep(func, {"x": range(12)}, out, executor=executor, chunks=4)
    kept = rows_in(ledger(out).rows)
    assert {4, 5, 6} <= set(kept)
    assert 7 not in kept
    Path(f"{log}.mended").touch()
    sweep(func, {"x": range(12)}, out, executor=executor)
    np.testing.assert_array_equal(np.load(out), judge(12))
    computed = calls.calls_in(log)
    assert all(computed.count(row) == 1 for row in kept)


def test_a_worker_that_dies_is_an_error_and_the_next_run_goes_on(calls, out, log):
    context = multiprocessing.get_context("spawn")
    func = functools.partial(calls.kills_its_worker, log)
    lost = pytest.raises(
        SweepError, match=r"a worker was lost.* rows 12 to 14 .*run again to go on"
    )
    with ProcessPoolExecutor(2, context) as pool, lost:
        sweep(func, {"x": range(30)}, out, executor=pool, chunks=2)
    kept = rows_in(ledger(out).rows)
    Path(f"{log}.mended").touch()
    with ProcessPoolExecutor(2, context) as pool:
        report = sweep(func, {"x": range(30)}, out, executor=pool)
    assert (report.done, report.skipped) == (30 - len(kept), len(kept))
    np.testing.assert_array_equal(np.load(out), judge(30))
    computed = calls.calls_in(log)
    assert all(computed.count(row) == 1 for row in kept)


def test_the_scenarios_that_were_at_work_are_named(calls, out, log):
    func = functools.partial(calls.kills_its_worker, log)
    lost = pytest.raises(SweepError, match=r"at .*scenario 13, which is {'x': 13}")
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool, lost as caught:
        sweep(func, {"x": range(30)}, out, executor=pool, chunks=1)
    assert "chunks=1" not in str(caught.value)


def test_a_second_driver_is_refused(calls, out, log):
    sweep(calls.row, PRODUCT, out)
    with Journal.open(out).lock(force=False), pytest.raises(JournalError, match=str(os.getpid())):
        sweep(calls.row, PRODUCT, out)


def test_a_driver_that_was_slower_to_begin_writes_nothing(calls, out, monkeypatch):
    begin = learning.begin
    with ExitStack() as other:

        def slower(path, settings):
            journal = begin(path, settings)
            other.enter_context(journal.lock(force=False))
            return journal

        monkeypatch.setattr(learning, "begin", slower)
        with pytest.raises(JournalError, match="another driver"):
            sweep(calls.row, PRODUCT, out)
        assert not np.load(out).any()


def begun(calls, out):
    """A sweep that has half of its rows, and the bytes of all its files."""
    with pytest.raises(SweepError):
        sweep(functools.partial(calls.fails_at, "log", [6]), {"x": range(12)}, out, chunks=2)


def bytes_beside(out):
    folder = Path(out).parent
    return {p: p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file() and p.name != "log"}


def changed_argument(calls, out):
    return functools.partial(calls.fails_at, "other", [6]), {"x": range(12)}, {}


def changed_function(calls, out):
    return functools.partial(calls.logged, "log"), {"x": range(12)}, {}


def changed_scenario(calls, out):
    return functools.partial(calls.fails_at, "log", [6]), {"x": [*range(11), 99]}, {}


def more_scenarios(calls, out):
    return functools.partial(calls.fails_at, "log", [6]), {"x": range(13)}, {}


def changed_shape(calls, out):
    return functools.partial(calls.fails_at, "log", [6]), {"x": range(12)}, {"shape": 999}


def changed_dtype(calls, out):
    return functools.partial(calls.fails_at, "log", [6]), {"x": range(12)}, {"dtype": "f8"}


def test_another_lambda_is_another_function(out):
    sweep(lambda x: x + 1.0, [(1,), (2,)], out, part=(0, 2))
    with pytest.raises(JournalError, match=r"function was .*<lambda> of code .*, now it is"):
        sweep(lambda x: x + 100.0, [(1,), (2,)], out)
    sweep(lambda x: x + 1.0, [(1,), (2,)], out)
    assert np.load(out).tolist() == [2, 3]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            changed_argument,
            r"function was sweep_calls:fails_at\('log', \[6\]\), now it is .*'other'",
        ),
        (changed_function, r"now it is sweep_calls:logged\('log'\)"),
        (changed_scenario, r"scenario 11 was {'x': 11}, now it is {'x': 99}"),
        (more_scenarios, "there were 12 scenarios, now there are 13"),
        (changed_shape, r"shape was \[12, 1000\], now it is \[12, 999\]"),
        (changed_dtype, "dtype was .*f4.*, now it is .*f8"),
    ],
)
def test_other_settings_are_refused_and_nothing_is_touched(calls, out, monkeypatch, change, says):
    monkeypatch.chdir(Path(out).parent)
    begun(calls, out)
    before = bytes_beside(out)
    func, scenarios, options = change(calls, out)
    with pytest.raises(JournalError, match=says) as caught:
        sweep(func, scenarios, out, **options)
    assert str(caught.value).startswith(f"{out}: ")
    assert bytes_beside(out) == before


def deleted(out):
    os.unlink(out)


def truncated(out):
    os.truncate(out, os.path.getsize(out) - 1)


def replaced(out):
    shutil.copy(out, f"{out}.copy")
    os.replace(f"{out}.copy", out)


def other_header(out):
    np.save(out, np.zeros((12, 500), "f8"))


def longer(out):
    os.truncate(out, os.path.getsize(out) + 4096)


def overwritten(out):
    np.load(out, mmap_mode="r+")[2, 500] = -1


@pytest.mark.parametrize(
    "change", [deleted, truncated, replaced, other_header, longer, overwritten]
)
def test_another_file_is_refused_and_nothing_is_touched(calls, out, monkeypatch, change):
    monkeypatch.chdir(Path(out).parent)
    begun(calls, out)
    change(out)
    before = bytes_beside(out)
    with pytest.raises(MMChunksError) as caught:
        sweep(functools.partial(calls.fails_at, "log", [6]), {"x": range(12)}, out)
    assert str(caught.value).startswith(f"{out}: ")
    assert bytes_beside(out) == before


def test_a_change_is_seen_though_an_earlier_run_was_killed(calls, out, monkeypatch):
    monkeypatch.chdir(Path(out).parent)
    begun(calls, out)
    with Journal.open(out).writer() as writer:
        writer.append(ledger(out).began[0][1]._replace(alone=True))
    Path("log.mended").touch()
    swept = functools.partial(sweep, functools.partial(calls.fails_at, "log", [6]))
    swept({"x": range(12)}, out)
    overwritten(out)
    with pytest.raises(StaleFileError, match="was changed since its last run"):
        swept({"x": range(12)}, out)


def test_a_file_that_was_only_touched_is_carried_on(calls, out, monkeypatch):
    monkeypatch.chdir(Path(out).parent)
    begun(calls, out)
    os.utime(out)
    Path("log.mended").touch()
    sweep(functools.partial(calls.fails_at, "log", [6]), {"x": range(12)}, out)
    np.testing.assert_array_equal(np.load(out), judge(12))


def test_a_file_that_no_sweep_made_is_refused(calls, out):
    np.save(out, np.zeros(3))
    before = Path(out).read_bytes()
    with pytest.raises(FileExistsError, match="has no journal"):
        sweep(calls.row, PRODUCT, out)
    assert Path(out).read_bytes() == before


def test_without_resume_what_is_there_is_refused(calls, out):
    sweep(calls.row, PRODUCT, out, resume=False)
    with pytest.raises(FileExistsError, match="resume=True"):
        sweep(calls.row, PRODUCT, out, resume=False)


def test_a_journal_whose_file_was_never_made_is_carried_on(calls, out):
    sweep(calls.row, PRODUCT, out)
    journal = Journal.open(out)
    settings = journal.settings | {"scenarios": journal.scenarios}
    shutil.rmtree(f"{out}.mmchunks")
    os.unlink(out)
    Journal.create(out, settings)  # as a kill between the two leaves it
    assert sweep(calls.row, PRODUCT, out).done == 21
    np.testing.assert_array_equal(np.load(out), ROWS)


def test_a_torn_last_line_is_not_done(calls, out, log):
    func = functools.partial(calls.logged, log)
    sweep(func, {"x": range(8)}, out, chunks=2)
    files = Path(f"{out}.mmchunks").glob("*.jsonl")
    (file,) = [file for file in files if "[[4,6]]" in file.read_text()]
    lines = file.read_bytes().splitlines(keepends=True)
    torn = next(i for i, line in enumerate(lines) if b'"done":[[4,6]]' in line)
    file.write_bytes(b"".join(lines[:torn]) + lines[torn][:-9])
    report = sweep(func, {"x": range(8)}, out)
    assert report.done == 8 - report.skipped > 0
    np.testing.assert_array_equal(np.load(out), judge(8))


def test_the_journal_says_who_did_what_and_when(calls, out, pool):
    sweep(calls.row, PRODUCT, out, executor=pool, chunks=21)
    (entry,) = (e for e in Journal.open(out).entries() if isinstance(e.lines[0], Done))
    (done,) = entry.lines
    assert done.box == ((0, 21),)
    assert done.nbytes == 21 * 32
    assert ":" in done.checksum
    assert entry.host == os.uname().nodename
    assert entry.pid != os.getpid()
    assert 0 <= done.seconds < 60
    assert entry.time > 1e9


def test_errors_of_the_disk_are_raised_as_they_are(calls, out, monkeypatch, tmp_path):
    with pytest.raises(FileNotFoundError):
        sweep(calls.row, PRODUCT, tmp_path / "no" / "such" / "folder.npy")


def test_a_relative_path_means_the_same_everywhere(calls, pool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = sweep(calls.row, PRODUCT, "out.npy", executor=pool)
    assert report.path == str(tmp_path / "out.npy")
    np.testing.assert_array_equal(np.load("out.npy"), ROWS)
    Path("out.npy").unlink()
    with pytest.raises(StaleFileError):
        sweep(calls.row, PRODUCT, "out.npy", executor=pool)


@pytest.mark.parametrize("executor", [3, "processes", ThreadPoolExecutor])
def test_what_is_no_executor_is_refused_in_a_sentence(calls, out, executor):
    with pytest.raises(PlanError, match=r"executor is .*, which has no submit\(\); pass a pool"):
        sweep(calls.row, PRODUCT, out, executor=executor)
    assert not os.path.exists(out)

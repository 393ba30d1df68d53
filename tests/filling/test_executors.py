"""Calls on any executor: every result once, in the order in which they end."""

import multiprocessing
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from mmchunks.filling import executors
from mmchunks.filling.executors import Calls


@pytest.fixture(params=["serial", "threads", "processes"])
def executor(request):
    if request.param == "serial":
        yield None
    elif request.param == "threads":
        with ThreadPoolExecutor(3) as pool:
            yield pool
    else:
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            yield pool


def test_every_result_comes_once(executor, monkeypatch):
    monkeypatch.setattr(executors, "_IN_FLIGHT", 5)
    assert sorted(Calls(executor, abs, range(-20, 0))) == list(range(1, 21))
    assert list(Calls(executor, abs, [])) == []


def test_no_more_than_so_many_wait_at_once(monkeypatch):
    monkeypatch.setattr(executors, "_IN_FLIGHT", 4)
    taken, ended = [], 0
    with ThreadPoolExecutor(1) as pool:
        for _ in Calls(pool, abs, (taken.append(i) or i for i in range(30))):
            ended += 1
            assert len(taken) <= ended + 4
    assert ended == 30


def test_what_a_call_raises_is_raised_and_the_others_can_still_be_had(executor):
    calls = Calls(executor, (1).__truediv__, [1, 0, 2])
    results = []
    with pytest.raises(ZeroDivisionError):
        results.extend(calls)
    results.extend(calls)
    assert sorted(results) == [0.5, 1.0]


class Forgetful:
    """An executor that is shut down before it begins, as a cluster that restarts."""

    def submit(self, _func, _item):
        future = Future()
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


def test_a_call_that_its_executor_cancels_is_not_taken_for_done():
    with pytest.raises(CancelledError, match="cancelled a call"):
        list(Calls(Forgetful(), abs, [1, 2]))


def test_the_rest_are_those_in_flight_without_the_ones_that_fail():
    with ThreadPoolExecutor(2) as pool:
        calls = Calls(pool, (1).__truediv__, iter([4, 0, 2, 1]))
        calls._submit(3)
        assert sorted(calls.rest()) == [0.25, 0.5]
        assert list(calls) == []

"""The fastest way wins, and is asked for once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.reading.trials import Trials


@given(st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 10), min_size=1))
def test_no_way_is_faster_than_the_winner(seconds):
    ways = {way: (lambda took=took: took) for way, took in seconds.items()}
    verdict = Trials().winner("here", ways)
    assert seconds[verdict.way] == min(seconds.values())
    assert verdict.seconds == seconds


def test_each_key_is_tried_once():
    trials, tried = Trials(), []

    def attempt():
        tried.append(1)
        return 1.0

    for key in ("/data", "/data", "/scratch", "/data"):
        assert trials.winner(key, {"pread": attempt}).way == "pread"
    assert len(tried) == 2


def test_a_way_that_refuses_cannot_win_and_says_why():
    def refuse():
        msg = "kvikio is not installed"
        raise RuntimeError(msg)

    verdict = Trials().winner("here", {"gds": refuse, "pread": lambda: 9.0})
    assert verdict.way == "pread"
    assert verdict.reason == "pread 9.0000 s, gds: kvikio is not installed"
    with pytest.raises(RuntimeError, match="kvikio"):
        Trials().winner("here", {"gds": refuse})

"""Ctrl-C waits where something is being written down."""

import signal
import threading

import pytest

from mmchunks.writing.interrupts import interrupts_held


def test_an_interrupt_waits_and_is_told():
    reached = False
    with interrupts_held() as came:
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert reached
    assert came == [signal.SIGINT]


def test_afterwards_it_comes_as_ever():
    with interrupts_held():
        pass
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_other_threads_are_left_alone():
    def hold():
        with interrupts_held() as came:
            ended.append(came)

    ended = []
    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert ended == [[]]

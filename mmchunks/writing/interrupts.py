"""When may Ctrl-C come? Not between writing something and knowing that it was written."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["interrupts_held"]


@contextmanager
def interrupts_held() -> Iterator[list[int]]:
    """Let Ctrl-C wait until the block has ended.

    Only the main thread ever gets one, so anywhere else this does nothing.

    Yields
    ------
    list of int
        Holds the signals that came meanwhile. Whoever asked to wait is to act on them: nothing is
        raised at the end.

    Examples
    --------
    >>> with interrupts_held() as came:
    ...     signal.raise_signal(signal.SIGINT)
    >>> len(came)
    1
    """
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        signal.signal(signal.SIGINT, before)

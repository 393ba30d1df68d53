"""How far is it, how fast, and how long still? A line in a terminal, a notebook or a log."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

__all__ = ["Bar", "line", "progress_bar", "visible"]

_REFRESH = 0.5  # seconds between two drawings in a notebook
_REFRESH_LOG = 60.0  # and between two lines of a log
_SHORTEST_BAR = 8  # columns; a shorter one says less than the text beside it


class Bar(Protocol):
    """What the one who works tells about it."""

    def advance(self, done: int, failed: int = 0) -> None:
        """Count `done` more, of which `failed` failed."""


@contextmanager
def progress_bar(
    total: int, *, what: str, done: int, show: bool | None, console: Console | None
) -> Iterator[Bar]:
    """Show how far the work is while the block runs.

    Parameters
    ----------
    total : int
        How many there are to do.
    what : str
        What is counted: ``"rows"``.
    done : int
        How many of them were done before; they do not count for the rate.
    show : bool or None
        None shows it in a terminal or a notebook; True elsewhere, too, as a line a minute; False
        nowhere.
    console : rich.console.Console or None
        Where to draw; None is the standard error.

    Yields
    ------
    Bar
        Takes what is done.
    """
    if show is False:
        yield _Silent()
        return
    from rich.console import Console

    console = console or Console(stderr=True)
    if console.is_jupyter:
        with _notebook(total, what=what, done=done) as bar:
            yield bar
    elif console.is_terminal:
        with _terminal(total, what=what, done=done, console=console) as bar:
            yield bar
    elif show:
        with _log(total, what=what, done=done, console=console) as bar:
            yield bar
    else:
        yield _Silent()


def visible(show: bool | None) -> bool:
    """Whether `progress_bar` would show anything, so that nobody need count for nothing."""
    if show is not None:
        return show
    from rich.console import Console

    console = Console(stderr=True)
    return console.is_jupyter or console.is_terminal


def line(
    total: int, *, done: int, failed: int, before: int, seconds: float, what: str, width: int | None
) -> str:
    """Say in one line how far the work is.

    Parameters
    ----------
    total, done, failed, before : int
        How many there are, are done (failed ones too), failed, and were done before it began.
    seconds : float
        Since it began.
    what : str
        What is counted.
    width : int or None
        Characters there are room for: the rate, then the counts are left out where there are not
        enough.

    Returns
    -------
    str
        Without a line break.

    Examples
    --------
    >>> counts = {"done": 60, "failed": 1, "before": 20, "seconds": 8, "what": "rows"}
    >>> line(100, **counts, width=None)
    '60 of 100 rows  60 %  5.0 rows/s  0:00:08 left  1 failed'
    >>> line(100, **counts, width=40)
    '60 %  0:00:08 left  1 failed'
    """
    rate = (done - before) / seconds if seconds > 0 else 0.0
    left = _clock((total - done) / rate) if rate > 0 else "-:--:--"
    share = 100 * done // total if total else 100
    parts = {
        "counts": f"{done:,} of {total:,} {what}",
        "share": f"{share} %",
        "rate": f"{_rate(rate)} {what}/s",
        "left": f"{left} left",
        "failed": f"{failed:,} failed" if failed else "",
    }
    for dispensable in ("rate", "counts"):
        if width is not None and len(_joined(parts)) > width:
            del parts[dispensable]
    return _joined(parts)


def _joined(parts: dict[str, str]) -> str:
    return "  ".join(filter(None, parts.values()))


def _rate(rate: float) -> str:
    """Write a rate with the digits that matter."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}" if rate >= 1 else f"{rate:.2g}"


def _clock(seconds: float) -> str:
    """Write a duration as hours, minutes and seconds."""
    minutes, second = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{second:02}"


class _Silent:
    """Shows nothing."""

    def advance(self, done: int, failed: int = 0) -> None:
        pass


class _Counted:
    """Counts, and draws the line again when that is due."""

    refresh = _REFRESH

    def __init__(self, total: int, what: str, done: int) -> None:
        self._total = total
        self._what = what
        self._before = self._done = done
        self._failed = 0
        self._began = time.monotonic()
        self._drawn = self._began

    def advance(self, done: int, failed: int = 0) -> None:
        self._done += done
        self._failed += failed
        if time.monotonic() - self._drawn >= self.refresh:
            self._drawn = time.monotonic()
            self.draw()

    def text(self, width: int | None) -> str:
        seconds = time.monotonic() - self._began
        counts = {"done": self._done, "failed": self._failed, "before": self._before}
        return line(self._total, what=self._what, seconds=seconds, width=width, **counts)

    def draw(self) -> None:
        raise NotImplementedError


class _Notebook(_Counted):
    """One line of a notebook cell, replaced in place."""

    def __init__(self, total: int, what: str, done: int) -> None:
        super().__init__(total, what, done)
        from IPython.display import display

        self._handle = display({"text/plain": self.text(None)}, raw=True, display_id=True)

    def draw(self) -> None:
        self._handle.update({"text/plain": self.text(None)}, raw=True)


@contextmanager
def _notebook(total: int, *, what: str, done: int) -> Iterator[Bar]:
    # rich draws in notebooks through ipywidgets, which is seldom there; a line needs nothing.
    bar = _Notebook(total, what, done)
    try:
        yield bar
    finally:
        bar.draw()


@contextmanager
def _log(total: int, *, what: str, done: int, console: Console) -> Iterator[Bar]:
    class Log(_Counted):
        """A line a minute, for files that somebody reads later."""

        refresh = _REFRESH_LOG

        def draw(self) -> None:
            console.print(self.text(None), highlight=False, soft_wrap=True)

    bar = Log(total, what, done)
    try:
        yield bar
    finally:
        bar.draw()


@contextmanager
def _terminal(total: int, *, what: str, done: int, console: Console) -> Iterator[Bar]:
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    class Terminal(_Counted):
        def draw(self) -> None:
            pass  # Live asks for the next drawing by itself, which keeps the clock running

        def __rich__(self) -> Table | Text:
            text = Text(self.text(console.width), no_wrap=True)
            room = min(30, console.width - len(text) - 1)
            if room < _SHORTEST_BAR:
                return text
            row = Table.grid(padding=(0, 1))
            row.add_row(
                ProgressBar(total=max(self._total, 1), completed=self._done, width=room), text
            )
            return row

    bar = Terminal(total, what, done)
    with Live(bar, console=console, refresh_per_second=4):
        yield bar

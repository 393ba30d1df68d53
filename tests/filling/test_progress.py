"""The progress line: shown where someone looks, and nowhere else."""

import io
import re
import sys
import time
import types

import pytest
from rich.console import Console

from mmchunks.filling.progress import line, progress_bar, visible


def drawn(console, *, show=None):
    with progress_bar(10, what="rows", done=2, show=show, console=console) as bar:
        bar.advance(3)
        bar.advance(1, failed=1)
    return console.file.getvalue()


def test_a_terminal_shows_counts_and_failures():
    text = drawn(Console(file=io.StringIO(), force_terminal=True, width=120))
    assert "6 of 10 rows  60 %" in text
    assert "1 failed" in text


@pytest.mark.parametrize("width", [30, 40, 80, 120, 200])
def test_a_terminal_of_any_width_gets_one_line(width):
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    with progress_bar(10**6, what="blocks", done=2, show=None, console=console) as bar:
        bar.advance(123_456)
        bar.advance(1, failed=1)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue())
    drawings = [drawing for drawing in re.split(r"[\r\n]+", text) if drawing.strip()]
    assert all(len(drawing) <= width for drawing in drawings)
    assert all("%" in drawing and "left" in drawing for drawing in drawings)
    assert "1 failed" in drawings[-1]
    assert ("of 1,000,000 blocks" in drawings[-1]) == (width >= 80)
    assert "━" in drawings[-1] or width < 120


def test_a_file_or_pipe_gets_nothing():
    assert drawn(Console(file=io.StringIO(), force_terminal=False)) == ""


def test_nothing_is_shown_when_nobody_asked():
    assert drawn(Console(file=io.StringIO(), force_terminal=True), show=False) == ""


def test_the_standard_error_of_a_test_is_no_terminal(capsys):
    with progress_bar(1, what="rows", done=0, show=None, console=None) as bar:
        bar.advance(1)
    assert capsys.readouterr() == ("", "")
    assert [visible(show) for show in (None, True, False)] == [False, True, False]


def test_a_log_gets_a_line_a_minute_where_it_was_asked_for(monkeypatch):
    clock = iter(range(0, 10**6, 25))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    console = Console(file=io.StringIO(), force_terminal=False)
    with progress_bar(100, what="rows", done=0, show=True, console=console) as bar:
        for _ in range(10):
            bar.advance(10)
    lines = console.file.getvalue().splitlines()
    assert 4 <= len(lines) <= 6
    assert all("of 100 rows" in line for line in lines)
    assert "100 %" in lines[-1]


def test_a_notebook_gets_one_line_that_is_replaced(monkeypatch):
    lines = []
    handle = types.SimpleNamespace(update=lambda data, **_: lines.append(data["text/plain"]))

    def display(data, **_):
        lines.append(data["text/plain"])
        return handle

    module = types.ModuleType("IPython.display")
    module.display = display
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    drawn(Console(file=io.StringIO(), force_jupyter=True))
    assert lines[0].startswith("2 of 10 rows")
    assert lines[-1].startswith("6 of 10 rows  60 %")
    assert lines[-1].endswith("1 failed")


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((0, 0, 0, 0, 0.0), "0 of 0 rows  100 %  0 rows/s  -:--:-- left"),
        ((10, 5, 0, 0, 20.0), "5 of 10 rows  50 %  0.25 rows/s  0:00:20 left"),
        (
            (10**6, 10**5, 0, 0, 10.0),
            "100,000 of 1,000,000 rows  10 %  10,000 rows/s  0:01:30 left",
        ),
        ((10, 8, 0, 8, 5.0), "8 of 10 rows  80 %  0 rows/s  -:--:-- left"),
        ((100, 1, 0, 0, 3600.0), "1 of 100 rows  1 %  0.00028 rows/s  99:00:00 left"),
    ],
)
def test_a_line_says_how_fast_and_how_long_still(numbers, text):
    total, done, failed, before, seconds = numbers
    assert text == line(
        total, done=done, failed=failed, before=before, seconds=seconds, what="rows", width=None
    )

"""The house is as CONTRIBUTING draws it."""

import ast
import re
from pathlib import Path

import pytest

import mmchunks

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "mmchunks"
ROOMS = sorted(path.name for path in HOUSE.iterdir() if (path / "__init__.py").exists())


def modules_of(room):
    return {path.stem for path in (HOUSE / room).glob("*.py")} - {"__init__"}


def first_line(path):
    return ast.get_docstring(ast.parse(path.read_text())).splitlines()[0]


def test_the_drawing_names_every_room_and_every_module():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("| room") : text.index("`filling` and `sliding` stand")]
    rows = [re.findall(r"`(\w+)`", line) for line in table.splitlines()[2:]]
    drawn = {row[0]: set(row[1:]) for row in rows if row}
    assert drawn == {room: modules_of(room) for room in ROOMS} | {"errors": set()}


def test_the_top_is_seen_at_a_glance():
    entries = {path.name for path in HOUSE.iterdir()} - {"__pycache__"}
    assert len(entries - {"__init__.py", "__main__.py", "py.typed"}) <= 9


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_small_and_its_docstring_draws_all_of_it(room):
    assert len(modules_of(room)) <= 12
    tree = ast.parse((HOUSE / room / "__init__.py").read_text())
    assert len(tree.body) == 1  # a docstring, and nothing to import
    drawn = set(re.findall(r"\w+", ast.get_docstring(tree)))
    assert not modules_of(room) - drawn


@pytest.mark.parametrize("room", ROOMS)
def test_no_room_or_module_bears_the_name_of_a_public_function(room):
    assert not {room, *modules_of(room)} & set(mmchunks.__all__)


def test_every_module_says_in_its_first_line_what_it_is_for():
    for path in HOUSE.rglob("*.py"):
        assert first_line(path).endswith((".", "?", ":", "]")), path


def test_tests_stand_where_their_modules_stand():
    for path in (ROOT / "tests").glob("*/test_*.py"):
        assert path.parent.name in {*ROOMS, "benchmarks"}, path

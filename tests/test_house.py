"""The house is as CONTRIBUTING draws it."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_module_has_its_place_in_the_drawing():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("| floor") : text.index("### Where the house differs")]
    drawn = set(re.findall(r"`(\w+)`", table))
    there = {path.stem for path in (ROOT / "mmchunks").glob("*.py")} - {"__init__", "__main__"}
    assert drawn == there


def test_every_module_says_in_its_first_line_what_it_is_for():
    for path in (ROOT / "mmchunks").glob("*.py"):
        first = ast.get_docstring(ast.parse(path.read_text())).splitlines()[0]
        assert first.endswith((".", "?", ":", "]")), f"{path.name}: {first}"

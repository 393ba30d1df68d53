"""Scenarios: what a user may write, and what is written down of it."""

import functools
import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
from dask.tokenize import tokenize
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import PlanError
from mmchunks.filling.scenarios import (
    Scenarios,
    as_scenarios,
    describe_function,
    difference,
    function_text,
)


class Model:
    def step(self, x):
        return x


def written(scenarios):
    """What comes back after the scenarios went to a file as JSON."""
    document = json.loads(json.dumps(as_scenarios(scenarios).to_json(str), allow_nan=False))
    return list(Scenarios.from_json(document))


def test_dicts_are_keywords_and_tuples_are_positions():
    assert list(as_scenarios([{"x": 1}, (2, 3), [4]])) == [{"x": 1}, (2, 3), (4,)]


@given(
    st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(), max_size=4), max_size=4),
)
def test_a_dict_of_lists_is_their_product_with_the_last_name_fastest(values):
    judge = [dict(zip(values, c, strict=True)) for c in itertools.product(*values.values())]
    scenarios = as_scenarios(values)
    assert list(scenarios) == judge
    assert scenarios[1:3] == judge[1:3]
    assert [list(call) for call in scenarios] == [list(call) for call in judge]
    if judge:
        assert scenarios[-1] == judge[-1]
    with pytest.raises(IndexError):
        scenarios[len(judge)]


def test_a_product_of_a_billion_is_made_at_once():
    scenarios = as_scenarios({name: range(1000) for name in "abc"})
    assert len(scenarios) == 10**9
    assert scenarios[10**9 - 2] == {"a": 999, "b": 999, "c": 998}


def test_the_rows_of_a_table_are_scenarios_of_python_values():
    table = pd.DataFrame({"n": [1, 2], "x": [0.5, 1.5], "s": ["a", "b"]})
    scenarios = as_scenarios(table)
    assert list(scenarios) == [{"n": 1, "x": 0.5, "s": "a"}, {"n": 2, "x": 1.5, "s": "b"}]
    assert type(scenarios[0]["n"]) is int
    assert len(as_scenarios(pd.DataFrame())) == 0


@pytest.mark.parametrize(
    "scenarios",
    [
        [{"x": 1, "s": "a", "none": None, "deep": {"list": [1, 2.5, True]}}, (1, 2)],
        {"x": [1, 2], "y": ["a", "b", "c"]},
        pd.DataFrame({"x": [1, 2]}),
        [],
    ],
    ids=["list", "product", "table", "empty"],
)
def test_what_json_can_say_comes_back_as_it_was(scenarios):
    assert written(scenarios) == list(as_scenarios(scenarios))


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.arange(3), [0, 1, 2]),
        (np.zeros((2, 1)), [[0.0], [0.0]]),
        ((1, (2, 3)), [1, [2, 3]]),
        (math.nan, {"repr": "nan", "token": "nan"}),
        (np.array([math.inf]), [{"repr": "inf", "token": "inf"}]),
        (1 + 2j, {"repr": "(1+2j)", "token": "(1+2j)"}),
    ],
)
def test_values_are_said_in_json_or_by_repr_and_token(value, says):
    assert written([{"x": value}]) == [{"x": says}]


def test_what_json_cannot_say_has_no_address_and_a_short_repr():
    (call,) = written([{"model": Model(), "big": np.zeros(10_000), "text": b"b" * 1000}])
    assert "0x" not in call["model"]["repr"]
    assert all(len(entry["repr"]) <= 200 for entry in call.values())
    assert all("token" in entry for entry in call.values())


@pytest.mark.parametrize(
    ("scenarios", "says"),
    [
        ([1, 2], "scenario 0 is 1; write a dict of keyword arguments, or a tuple"),
        ([{"x": 1}, "ab"], "scenario 1 is 'ab'"),
        ("ab", "got str"),
        (7, "got int"),
        ({"x": 1}, "'x' is 1, write 'x': [1]"),
        ({"name": "abc"}, "write 'name': ['abc']"),
    ],
)
def test_what_is_no_scenario_is_refused_in_a_sentence(scenarios, says):
    with pytest.raises(PlanError) as caught:
        as_scenarios(scenarios)
    assert says in str(caught.value)


def test_a_function_counts_by_its_name_and_its_bound_arguments():
    name = f"{__name__}:written"
    assert describe_function(written, str) == {"name": name}
    bound = functools.partial(functools.partial(written, 1), x=np.arange(2))
    assert describe_function(bound, str) == {"name": name, "args": [1], "kwargs": {"x": [0, 1]}}
    method = describe_function(Model().step, lambda _: "t")
    assert method["name"] == f"{__name__}:Model.step"
    assert method["of"]["token"] == "t"
    assert describe_function(math.sqrt, str) == {"name": "math:sqrt"}


def test_a_script_is_the_same_in_the_processes_that_it_spawns():
    def named(module):
        return describe_function(type("Model", (), {"__module__": module}), str)

    assert named("__mp_main__") == named("__main__") == {"name": "__main__:Model"}


def test_a_function_without_a_name_of_its_own_counts_by_its_code():
    def made(factor, power=1):
        def scaled(x, *, power=power):
            return [factor * y**power for y in x]

        return scaled

    def recursive(step):
        def down(n):
            return n and further(n)

        def further(n):
            return down(n - step)

        return down

    def code(func):
        return describe_function(func, functools.partial(tokenize, ensure_deterministic=True))

    twins = [
        [lambda x: x + 1, lambda x: x + 1],
        [lambda x: x + 2],
        [lambda x: abs(x + 1)],
        [made(2), made(2)],
        [made(3)],
        [made(2, power=2)],
        [recursive(1), recursive(1)],
        [recursive(2)],
    ]
    codes = [{json.dumps(code(func)) for func in same} for same in twins]
    assert [len(same) for same in codes] == [1] * len(twins)
    assert len(set().union(*codes)) == len(twins)
    assert "<lambda> of code " in function_text(code(lambda: 0))


def test_a_difference_names_the_first_scenario_that_changed():
    def documents(*given):
        return [as_scenarios(scenarios).to_json(str) for scenarios in given]

    assert difference(*documents([{"x": 1}], [{"x": 1}])) is None
    assert difference(*documents({"x": [1, 2]}, [{"x": 1}, {"x": 2}])) is None
    assert difference(*documents([{"x": 1}], pd.DataFrame({"x": [1]}))) is None
    assert (
        difference(*documents({"x": [1, 2]}, {"x": [1, 3]}))
        == "scenario 1 was {'x': 2}, now it is {'x': 3}"
    )
    assert difference(*documents([(1,)], [(1,), (2,)])) == "there were 1 scenarios, now there are 2"


def test_numbers_that_are_equal_but_not_of_one_type_differ():
    said = [as_scenarios([{"x": x}]).to_json(str) for x in (True, 1, 1.0)]
    assert difference(said[0], said[1]) == "scenario 0 was {'x': True}, now it is {'x': 1}"
    assert difference(said[1], said[2]) == "scenario 0 was {'x': 1}, now it is {'x': 1.0}"


def test_columns_of_one_name_are_refused():
    with pytest.raises(PlanError, match="columns of one name, x;"):
        as_scenarios(pd.DataFrame([[1, 2]], columns=["x", "x"]))

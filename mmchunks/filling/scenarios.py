"""Which calls does a sweep make, and how are they written down? No file is touched.

    a list      [{"x": 1, "y": 5}, {"x": 2, "y": 5}]      one scenario an entry: keywords, or a tuple
    a product   {"x": [1, 2], "y": [5, 6]}                every combination, the last name fastest
    a table     DataFrame({"x": [1, 2], "y": [5, 5]})     one scenario a row

Scenario ``i`` belongs to row ``i`` of the output. What is written down is JSON: it serves people
who ask which scenario a row is, and the next run, which must be of the same scenarios.
"""

from __future__ import annotations

import functools
import json
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from mmchunks.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmchunks.files.layout import Block

__all__ = [
    "Call",
    "Scenarios",
    "as_scenarios",
    "describe_function",
    "difference",
    "function_text",
    "same",
]

Call: TypeAlias = "tuple[Any, ...] | dict[str, Any]"
"""What stands between the brackets of a call of a user's function: positional or keyword arguments."""

Document: TypeAlias = dict[str, Any]
"""What JSON can say, by name."""

Tokenize: TypeAlias = "Callable[[object], str]"
"""Gives equal text for equal values."""

_SMALL = 1000  # elements of an array that is written down; of a larger one only its token is


class Scenarios(Sequence[Call]):
    """The calls of a sweep, in order, without making those of a product before they are needed.

    Examples
    --------
    >>> product = as_scenarios({"x": [1, 2], "y": [5, 6]})
    >>> len(product), product[1]
    (4, {'x': 1, 'y': 6})
    """

    def to_json(self, tokenize: Tokenize) -> Document:
        """Write the scenarios as JSON says them.

        Parameters
        ----------
        tokenize : callable
            Gives the token of a value that JSON cannot say; its repr is kept for people.

        Returns
        -------
        dict
            What `from_json` reads.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        first = f", the first is {reprlib.repr(self[0])}" if len(self) else ""
        return f"<{len(self):,} scenarios{first}>"

    @staticmethod
    def from_json(document: Document) -> Scenarios:
        """Read what `to_json` wrote; values that JSON cannot say stay ``{"repr", "token"}``."""
        if document["kind"] == "list":
            return _List(
                calls=tuple(tuple(c) if isinstance(c, list) else c for c in document["calls"])
            )
        kind = _Product if document["kind"] == "product" else _Table
        return kind(values=document["values"])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _List(Scenarios):
    """One call an entry."""

    calls: tuple[Call, ...]

    def __len__(self) -> int:
        return len(self.calls)

    def __getitem__(self, index: Any) -> Any:
        return self.calls[index]

    def to_json(self, tokenize: Tokenize) -> Document:
        return {"kind": "list", "calls": [_say(call, tokenize) for call in self.calls]}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Columns(Scenarios):
    """Values by the name of the argument; what a call takes of them is for the subclass to say."""

    values: dict[str, Sequence[Any]]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._call(i) for i in range(*index.indices(len(self)))]
        return self._call(range(len(self))[index])

    def _call(self, index: int) -> Call:
        raise NotImplementedError

    def to_json(self, tokenize: Tokenize) -> Document:
        kind = "product" if isinstance(self, _Product) else "table"
        values = {k: [_say(v, tokenize) for v in column] for k, column in self.values.items()}
        return {"kind": kind, "values": values}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Product(_Columns):
    """Every combination of the values."""

    def __len__(self) -> int:
        return math.prod(len(column) for column in self.values.values())

    def _call(self, index: int) -> Call:
        call = {}
        for name, column in reversed(self.values.items()):
            index, at = divmod(index, len(column))
            call[name] = column[at]
        return dict(reversed(call.items()))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class _Table(_Columns):
    """A row of every column."""

    def __len__(self) -> int:
        return max((len(column) for column in self.values.values()), default=0)

    def _call(self, index: int) -> Call:
        return {name: column[index] for name, column in self.values.items()}


def as_scenarios(given: Any) -> Scenarios:
    """Read what a user writes as the scenarios of a sweep.

    Parameters
    ----------
    given : sequence of dict or tuple, dict of sequences, or pandas.DataFrame
        A dict is the keyword arguments of one call, a tuple (or list) its positional ones. A dict
        of sequences means every combination of them. The columns of a table are keywords.

    Returns
    -------
    Scenarios
        A sequence of dict and tuple. It holds the values that were given, not copies.

    Raises
    ------
    PlanError
        For anything else; it names the scenario, or the columns of a table that share a name.

    Examples
    --------
    >>> as_scenarios([{"x": 1}, (2, 3)])[1]
    (2, 3)
    """
    if isinstance(given, Scenarios):
        return given
    if hasattr(given, "columns") and hasattr(given, "itertuples"):
        names = [str(name) for name in given.columns]
        if twice := {name for name in names if names.count(name) > 1}:
            msg = (
                f"the table has columns of one name, {', '.join(sorted(twice))}; rename one of them"
            )
            raise PlanError(msg)
        # .tolist() gives Python's own numbers; a column at a time, so that an integer stays one.
        return _Table(values={n: given.iloc[:, i].tolist() for i, n in enumerate(names)})
    if isinstance(given, Mapping):
        return _Product(values={str(name): _values(name, v) for name, v in given.items()})
    if isinstance(given, str | bytes) or not hasattr(given, "__iter__"):
        msg = (
            f"scenarios must be a sequence of dict or tuple, a dict of sequences or a DataFrame, "
            f"got {type(given).__name__}"
        )
        raise PlanError(msg)
    return _List(calls=tuple(_as_call(i, entry) for i, entry in enumerate(given)))


def _values(name: object, values: object) -> Sequence[Any]:
    """Take the values of one argument of a product."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        msg = (
            f"a dict of scenarios holds sequences, whose product is taken; {name!r} is {values!r}, "
            f"write {name!r}: [{values!r}]"
        )
        raise PlanError(msg)
    return values if isinstance(values, list | tuple | range) else list(values)


def _as_call(index: int, entry: object) -> Call:
    """Take one entry of a sequence of scenarios."""
    if isinstance(entry, Mapping):
        return {str(name): value for name, value in entry.items()}
    if isinstance(entry, tuple | list):
        return tuple(entry)
    msg = (
        f"scenario {index} is {entry!r}; write a dict of keyword arguments, or a tuple of "
        f"positional ones: ({entry!r},)"
    )
    raise PlanError(msg)


def _say(value: object, tokenize: Tokenize) -> object:
    """Say `value` in JSON, or give its repr and its token."""
    if _is_small(value):
        value = value.tolist()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _say(item, tokenize) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_say(item, tokenize) for item in value]
    # Addresses change from run to run: two objects that are the same must be said the same.
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return {"repr": text[:200], "token": tokenize(value)}


def _is_small(value: Any) -> TypeGuard[Block]:
    """Whether `value` is numbers or text of numpy, and few enough to be written down."""
    is_numpy = isinstance(value, np.generic | np.ndarray)
    return is_numpy and value.size <= _SMALL and value.dtype.kind in "biufU"


def describe_function(func: Callable[..., Any], tokenize: Tokenize) -> Document:
    """Say in JSON which function is called, and with what arguments bound to it.

    Parameters
    ----------
    func : callable
        A function counts by its module and name, a `functools.partial` by its function and
        arguments too, a method or a callable object by its class and its token as well. A lambda
        or a function within a function has no name of its own: it counts by its code, its
        defaults and what it closes over too.
    tokenize : callable
        As for `Scenarios.to_json`.

    Returns
    -------
    dict
        Equal for functions that are taken for the same one.

    Examples
    --------
    >>> describe_function(functools.partial(max, 3), tokenize=str)
    {'name': 'builtins:max', 'args': [3], 'kwargs': {}}
    """
    if isinstance(func, functools.partial):
        inner = describe_function(func.func, tokenize)
        args = [_say(value, tokenize) for value in func.args]
        return inner | {"args": args, "kwargs": _say(func.keywords, tokenize)}
    owner = getattr(func, "__self__", None)
    if not hasattr(func, "__qualname__"):
        func, owner = type(func), func
    # a script goes by another name in the processes that it spawns
    module = "__main__" if func.__module__ == "__mp_main__" else func.__module__
    described = {"name": f"{module}:{func.__qualname__}"}
    if "<" in func.__qualname__ and hasattr(func, "__code__"):
        described["code"] = tokenize(_inside(func, (), tokenize))
    if owner is None or isinstance(owner, type(math)):
        return described
    return described | {"of": _say(owner, tokenize)}


def _inside(func: Any, outer: tuple[object, ...], tokenize: Tokenize) -> list[object]:
    """List what a function without a name of its own computes with, wherever its lines stand."""
    outer = (*outer, func)
    closed = [cell.cell_contents for cell in func.__closure__ or () if cell != CellType()]
    values = [*(func.__defaults__ or ()), *(func.__kwdefaults__ or {}).values(), *closed]
    # One that closes over itself, as recursive ones do, is not said again.
    left = [value for value in values if not any(value is other for other in outer)]
    return [_code(func.__code__), *(_said_inside(value, outer, tokenize) for value in left)]


def _said_inside(value: object, outer: tuple[object, ...], tokenize: Tokenize) -> object:
    if isinstance(value, FunctionType) and "<" in value.__qualname__:
        return _inside(value, outer, tokenize)
    try:
        return tokenize(value)
    except RuntimeError:  # a lock, a queue: they have no value to compare
        return type(value).__qualname__


def _code(code: CodeType) -> list[object]:
    """List what a code object says, without the file and the lines where it was found."""
    consts = [_code(const) if isinstance(const, CodeType) else const for const in code.co_consts]
    return [code.co_code, code.co_names, code.co_varnames, consts]


def function_text(described: Document) -> str:
    """Write what `describe_function` said as people write a call.

    Examples
    --------
    >>> function_text({"name": "model:run", "args": [3], "kwargs": {"x": "a"}})
    "model:run(3, x='a')"
    """
    bound = [repr(value) for value in described.get("args", ())]
    bound += [f"{name}={value!r}" for name, value in described.get("kwargs", {}).items()]
    if "of" in described:
        bound.insert(0, f"self={described['of']!r}")
    code = f" of code {described['code'][:8]}" if "code" in described else ""
    return str(described["name"]) + code + (f"({', '.join(bound)})" if bound else "")


def same(stored: object, given: object) -> bool:
    """Whether JSON says the same of both; to a function, 1, 1.0 and True are not.

    Examples
    --------
    >>> same({"x": 1, "y": (2,)}, {"y": [2], "x": 1}), same(1, 1.0)
    (True, False)
    """
    return stored is given or json.dumps(stored, sort_keys=True) == json.dumps(
        given, sort_keys=True
    )


def difference(stored: Document, given: Document) -> str | None:
    """Say where two documents of scenarios differ, or None where they do not.

    Parameters
    ----------
    stored, given : dict
        What `Scenarios.to_json` wrote. A list and a product of the same calls do not differ.

    Returns
    -------
    str or None
        The first difference, as a part of a sentence.

    Examples
    --------
    >>> first, second = as_scenarios([{"x": 1}]), as_scenarios([{"x": 2}])
    >>> difference(first.to_json(str), second.to_json(str))
    "scenario 0 was {'x': 1}, now it is {'x': 2}"
    """
    if same(stored, given):
        return None
    old, new = Scenarios.from_json(stored), Scenarios.from_json(given)
    if len(old) != len(new):
        return f"there were {len(old):,} scenarios, now there are {len(new):,}"
    for index, (before, after) in enumerate(zip(old, new, strict=True)):
        if not same(before, after):
            return f"scenario {index} was {before!r}, now it is {after!r}"
    return None

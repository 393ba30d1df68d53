"""What do the words of the command line mean? Sizes, shapes, dtypes, chunks and functions as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from mmchunks.errors import PlanError
from mmchunks.planning.grammar import parse_nbytes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Chunks",
    "Dtype",
    "align",
    "function",
    "nbytes",
    "quantile_or_name",
    "scenarios",
    "shape",
]


class Dtype(click.ParamType[str]):
    """A dtype as NumPy spells it; with `samples`, also the SigMF name of a radio recording's."""

    name = "dtype"

    def __init__(self, *, samples: bool = False) -> None:
        self.samples = samples

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what neither NumPy nor SigMF knows."""
        import numpy as np

        from mmchunks.files.raw import sample_type

        try:
            if not self.samples or sample_type(value) is None:
                np.dtype(value)
        except (TypeError, ValueError, SyntaxError, RecursionError) as error:
            forms = "<f4, int16, ci16_le" if self.samples else "<f4, int16, S8"
            self.fail(f"{value!r} is no dtype ({error}); write {forms}", param, ctx)
        return value


class Chunks(click.ParamType[Any]):
    """Dask's chunks as text: ``auto``, ``"64 MiB"``, ``100``, ``100,-1``, ``"100,auto"``, JSON."""

    name = "chunks"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Turn the text into what `mmchunks.plan` takes."""
        if not isinstance(value, str):
            return value
        if value.lstrip()[:1] in {"[", "{"}:
            try:
                return _frozen(json.loads(value))
            except (ValueError, RecursionError) as error:
                self.fail(f"{value[:80]!r} is not JSON ({error})", param, ctx)
        parts = tuple(_number_or_text(part) for part in value.split(","))
        try:
            for part in parts:
                if isinstance(part, str) and part != "auto":
                    parse_nbytes(part)
        except PlanError as error:
            self.fail(str(error), param, ctx)
        return parts if len(parts) > 1 else parts[0]


def _frozen(value: Any) -> Any:
    """Turn JSON's lists into tuples, and its keys into axes."""
    if isinstance(value, dict):
        return {int(axis): _frozen(size) for axis, size in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _number_or_text(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text.strip()


def shape(_ctx: object, _param: object, value: str | None) -> tuple[int, ...] | None:
    """Read ``100x12`` or ``100,12`` as a shape."""
    if value is None:
        return None
    try:
        return tuple(int(part) for part in value.replace("x", ",").split(",") if part.strip())
    except ValueError as error:
        msg = f"{value!r} is no shape; write 8760,12 or 8760x12"
        raise click.BadParameter(msg) from error


def align(_ctx: object, _param: object, value: str) -> str | int | None:
    """Read ``auto``, ``page``, ``none`` or a number of bytes."""
    return None if value == "none" else _number_or_text(value)


def nbytes(_ctx: object, _param: object, value: str) -> int:
    """Read ``20GiB`` or a number as bytes."""
    try:
        return parse_nbytes(value)
    except PlanError as error:
        raise click.BadParameter(str(error)) from error


def quantile_or_name(text: str) -> float | str:
    """Read the reduction of windows: a number is a quantile."""
    try:
        return float(text)
    except ValueError:
        return text


def scenarios(path: str) -> Any:
    """Read a JSON file, - for stdin: of a list each entry is a scenario; else it is a product.

    An object means keyword arguments, a list means positional ones.
    """
    with click.open_file(path) as file:
        try:
            given = json.load(file)
        except (ValueError, RecursionError) as error:
            msg = f"{path} is not JSON ({error})"
            raise click.BadParameter(msg) from error
    return [_scenario(call) for call in given] if isinstance(given, list) else given


def _scenario(call: Any) -> Any:
    return call if isinstance(call, dict) else tuple(call) if isinstance(call, list) else (call,)


def function(function: str) -> Callable[..., Any]:
    """Import ``module:name``, looking in the current folder too."""
    import importlib
    import sys

    module, _, name = function.partition(":")
    if not module or not name:
        msg = f"{function!r} names no function; write module:name"
        raise click.BadParameter(msg)
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        msg = f"{function!r} cannot be imported: {error}"
        raise click.BadParameter(msg) from error

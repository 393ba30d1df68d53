"""How are a layout and its cuts written as JSON? Plain lists and names, and nothing to execute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.files.layout import Layout
from mmchunks.planning.cuts import Cuts, EvenCuts, listed

if TYPE_CHECKING:
    from mmchunks.files.layout import DType

__all__ = ["decode_cuts", "decode_dtype", "decode_layout", "encode_cuts", "encode_dtype"]
__all__ += ["encode_layout"]


# Any: what is decoded may be anyone's JSON, and what is no plan is told so by `Plan.from_json`.


def encode_layout(layout: Layout) -> dict[str, object]:
    """Write a layout as numbers, strings and lists."""
    return {
        "shape": list(layout.shape),
        "dtype": encode_dtype(layout.dtype),
        "order": layout.order,
        "offset": layout.offset,
    }


def decode_layout(form: dict[str, Any]) -> Layout:
    """Read what `encode_layout` wrote; LayoutError where it describes no array."""
    return Layout(
        shape=tuple(form["shape"]),
        dtype=decode_dtype(form["dtype"]),
        order=form["order"],
        offset=form["offset"],
    )


def encode_dtype(dtype: DType) -> str | dict[str, object]:
    """Write a dtype: a string, or its base and shape, or its fields with their places.

    Offsets are kept, so that padding, overlap and any order of fields survive, which NumPy's own
    ``descr`` does not promise.

    Examples
    --------
    >>> encode_dtype(np.dtype("<f4"))
    '<f4'
    >>> encode_dtype(np.dtype([("a", "<f4"), ("b", "u1", (2,))]))["formats"]
    ['<f4', {'base': '|u1', 'shape': [2]}]
    """
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": encode_dtype(base), "shape": list(shape)}
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    form = {
        "names": list(dtype.names),
        "formats": [encode_dtype(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
    }
    titles = [field[2] if len(field) > 2 else None for field in fields]
    return form | ({"titles": titles} if any(titles) else {})


def decode_dtype(form: str | dict[str, Any]) -> DType:
    """Read what `encode_dtype` wrote."""
    if isinstance(form, str):
        return np.dtype(form)
    if "base" in form:
        return np.dtype((decode_dtype(form["base"]), tuple(form["shape"])))
    fields: Any = {**form, "formats": [decode_dtype(field) for field in form["formats"]]}
    dtype: DType = np.dtype(fields)
    return dtype


def encode_cuts(cuts: Cuts) -> dict[str, int] | list[int]:
    """Write how an axis is cut: three numbers, or the list that the user gave."""
    if isinstance(cuts, EvenCuts):
        return {"length": cuts.length, "first": cuts.first, "step": cuts.step}
    return list(cuts.sizes())


def decode_cuts(form: dict[str, int] | list[int]) -> Cuts:
    """Read what `encode_cuts` wrote; PlanError where it describes no pieces."""
    return EvenCuts(**form) if isinstance(form, dict) else listed(form)

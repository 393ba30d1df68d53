"""How does indexing a file's dask array read less, instead of slicing what was read?

Dask does not push a slice into a read: ``x[5]`` first reads the whole chunk that holds row 5. So
the arrays that mmchunks makes are dask arrays that remember their `Selection`:

    x[5]               few bytes of a chunk: a new array, whose reads are just those bytes
    x[1:]              most of its chunks: dask's slicing, as others may want the same chunks
                       (``x[1:] - x[:-1]`` reads each once), but the pick is remembered:
    x[1:][5]           few bytes again
    x[[9, 700, 3]]     rows by number: each is read by itself, in that order
    x + 1, x.sum(), x.persist(), assignment: plain dask arrays
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from bisect import bisect_right
from contextlib import suppress
from itertools import accumulate
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mmchunks.files.layout import spelled_out
from mmchunks.files.sources import Source
from mmchunks.gpu import transfers

if TYPE_CHECKING:
    from collections.abc import Callable

    import dask.array as da

    from mmchunks.reading.selection import Selection

__all__ = ["dask_array", "file_array", "files_read_by", "selection_of"]

Chunks: TypeAlias = tuple[tuple[int, ...], ...]

# Numbers in a list travel in every task, so longer lists are left to dask, which reads the chunks.
_LONGEST_LIST = 10_000


def file_array(selection: Selection, chunks: Chunks, name: str) -> da.Array:
    """Make the dask array that reads `selection` in `chunks`, and less of it when it is indexed."""
    return _file_array_class().of(dask_array(selection, chunks, name, selection.device), selection)


def dask_array(like: da.Array, chunks: Chunks, name: str, device: str) -> da.Array:
    """Make the dask array whose tasks hold `like`, an array-like that reads when it is sliced."""
    import dask.array as da

    return da.from_array(
        like,
        chunks=chunks,
        name=name,
        asarray=False,
        fancy=False,
        inline_array=True,
        meta=transfers.empty(device, (0,) * like.ndim, like.dtype),
    )


def selection_of(array: da.Array) -> Selection | None:
    """Find what `array` reads, if it is an array made by `file_array` or a slice of one.

    What was computed, persisted, assigned to or sent to another process is dask's alone: None.
    """
    if isinstance(array, _file_array_class()) and array.name == array.made_as:
        selection: Selection = array.selection
        return selection
    return None


def files_read_by(array: da.Array) -> set[str]:
    """Find the files that a dask array reads through mmchunks, whatever was computed from them.

    Its tasks are walked as a scheduler walks them that sends them away: by pickling. Nothing is
    read, and what cannot be pickled is passed over.
    """
    import cloudpickle  # type: ignore[import-untyped]

    paths = set()

    class Walk(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, part: Any) -> Any:
            if isinstance(part, Source):
                paths.add(part.path)
                return str, ()
            if isinstance(part, np.ndarray) and not part.dtype.hasobject:
                return str, ()  # may be large, and leads nowhere
            return super().reducer_override(part)

    walk = Walk(SimpleNamespace(write=len))
    for task in array.__dask_graph__().values():
        with suppress(Exception):
            walk.dump(task)
    return paths


@functools.cache
def _file_array_class() -> Any:
    """Define the subclass when dask is needed for the first time, not when mmchunks is imported."""
    import dask.array as da

    class FileArray(da.Array):  # type: ignore[misc]  # dask has no types
        """A dask array that knows which elements of a file it stands for."""

        __slots__ = ("made_as", "selection")

        @classmethod
        def of(cls, array: da.Array, selection: Selection | None) -> da.Array:
            """Take over what dask made, under either of its array engines."""
            if not isinstance(array, da.Array):  # dask's array_plugins made something else of it
                return array
            if hasattr(array, "expr"):
                self = cls(array.expr)
            else:
                self = cls(array.dask, array.name, array.chunks, meta=array)
            if isinstance(self, cls):
                self.selection = selection
                self.made_as = self.name  # assignment to items renames the array, and ends the bond
            return self

        def __getitem__(self, index: Any) -> da.Array:
            return _indexed(self, index, super().__getitem__)

        def __reduce__(self) -> Any:
            # In another process it is an ordinary dask array.
            return (da.Array, (self.expr,)) if hasattr(self, "expr") else super().__reduce__()

    return FileArray


def _indexed(array: da.Array, index: Any, by_dask: Callable[[Any], da.Array]) -> da.Array:
    """Index by reading less, where the index is not dask's work."""
    selection = selection_of(array)
    if isinstance(index, str):
        field = None if selection is None else _one_field(array, selection, index)
        return by_dask(index) if field is None else field
    try:
        given = spelled_out(index, array.ndim)
    except IndexError:
        return by_dask(index)
    if any(np.ndim(entry) > 1 for entry in given if isinstance(entry, list | np.ndarray)):
        return by_dask(index)
    axes = iter(array.shape)
    entries = [None if entry is None else _entry(entry, next(axes)) for entry in given]
    lists = sum(isinstance(entry, np.ndarray) for entry in entries)
    if selection is None or lists > 1 or any(entry is NotImplemented for entry in entries):
        return _by_dask(array, given, entries, index, by_dask)
    picks = [entry for entry in entries if entry is not None]
    if len(picks) < len(entries):
        return _with_new_axes(array, entries, picks)
    picked = _picked(array, selection, picks, by_dask)
    return _by_dask(array, given, entries, index, by_dask) if picked is None else picked


def _with_new_axes(array: da.Array, entries: list[Any], picks: list[Any]) -> da.Array:
    """Pick first; the new axes are then dask's work."""
    kept = [entry for entry in entries if not isinstance(entry, int)]
    if not any(entry is not None for entry in kept):
        # Nothing but one element is left, which as a scalar would lose its axes and its byte order:
        # let it keep one axis, and make that one of the new ones.
        picks = [*picks[:-1], slice(picks[-1], picks[-1] + 1 or None)] if picks else picks
        kept = [*kept[:-1], slice(None)] if picks else kept
    axes = tuple(None if entry is None else slice(None) for entry in kept)
    cls = _file_array_class()
    return cls.of(cls.__base__.__getitem__(array[tuple(picks)], axes), None)


def _by_dask(
    array: da.Array,
    given: list[Any],
    entries: list[Any],
    index: Any,
    by_dask: Callable[[Any], da.Array],
) -> da.Array:
    """Leave an index to dask, but for slices that go backwards, which it reads in its own way."""
    axes = [axis for axis, entry in enumerate(_without_new(given)) if _backward(entry)]
    turns = {axis: _without_new(entries)[axis] for axis in axes}
    if not turns or any(not isinstance(turn, slice) for turn in turns.values()):
        return by_dask(index)
    turned = array
    for axis, turn in turns.items():
        turned = _turned(turned, axis, turn)
    numbers = iter(range(array.ndim))
    rest = tuple(
        slice(None) if entry is not None and next(numbers) in turns else entry for entry in given
    )
    return turned if all(map(_whole, rest)) else turned[rest]


def _without_new(entries: list[Any]) -> list[Any]:
    return [entry for entry in entries if entry is not None]


def _backward(entry: Any) -> bool:
    return isinstance(entry, slice) and entry.step is not None and entry.step < 0


def _turned(array: da.Array, axis: int, turn: slice) -> da.Array:
    """Take a slice that goes backwards along one axis.

    Dask finds elements where ``[-9::-1]`` of 5 has none, and none, or no chunks that add up, where
    a chunk of the axis is empty. So it gets the same elements forwards, and turns all of them.
    """
    head = (slice(None),) * axis
    picked = range(array.shape[axis])[turn]
    if selection_of(array) is not None or not len(picked):
        return array[(*head, turn if len(picked) else slice(0, 0))]
    cls = _file_array_class()
    forward = cls.__base__.__getitem__(array, (*head, _forward(picked)))
    full = tuple(size for size in forward.chunks[axis] if size)
    forward = forward.rechunk({axis: full})
    return cls.of(cls.__base__.__getitem__(forward, (*head, slice(None, None, -1))), None)


def _forward(picked: range) -> slice:
    """Write the same elements as a slice that goes forwards."""
    first, last = sorted((picked[0], picked[-1]))
    return slice(first, last + 1, abs(picked.step))


def _picked(
    array: da.Array, selection: Selection, entries: list[Any], by_dask: Callable[[Any], da.Array]
) -> da.Array | None:
    """Take one entry per axis, by reading less or by slicing chunks that others may share."""
    outer = array.ndim - selection.inner_ndim
    if any(not _whole(entry) for entry in entries[outer:]):  # inside the elements of a field
        return None

    listed = [isinstance(entry, np.ndarray) for entry in entries]
    backward = [_backward(entry) for entry in entries]
    forwards = [
        slice(None) if is_list else _forward(range(length)[entry]) if turns else entry
        for entry, is_list, turns, length in zip(
            entries, listed, backward, array.shape, strict=True
        )
    ]
    # Dask's own slicing gives the chunks, and the errors for what is out of bounds.
    sliced = by_dask(tuple(forwards))
    narrowed = selection.narrowed(tuple(entries[:outer]))
    touched = math.prod(map(_touched, array.chunks, entries))
    if not any(listed + backward) and 2 * math.prod(narrowed.shape) >= touched:
        return _file_array_class().of(sliced, narrowed)
    left = iter(sliced.chunks)
    chunks = tuple(
        _cut(len(entry), max(1, *next(left)))
        if isinstance(entry, np.ndarray)
        else next(left)[:: -1 if turns else 1]
        for entry, turns in zip(entries, backward, strict=True)
        if not isinstance(entry, int)
    )
    return _named("pick", narrowed, chunks)


def _whole(entry: Any) -> bool:
    return isinstance(entry, slice) and entry == slice(None)


def _one_field(array: da.Array, selection: Selection, field: str) -> da.Array | None:
    """Read one field of a structured array, without the rest where that can be skipped."""
    if selection.field is not None or field not in (selection.source.dtype.names or ()):
        return None
    outer = array.ndim - selection.inner_ndim
    narrowed = dataclasses.replace(selection, field=field)
    inner = tuple((length,) for length in narrowed.shape[outer:])
    return _named("field", narrowed, array.chunks[:outer] + inner)


def _named(prefix: str, selection: Selection, chunks: Chunks) -> da.Array:
    from dask.base import tokenize

    return file_array(selection, chunks, f"{prefix}-{tokenize(selection, chunks)}")


def _entry(entry: Any, length: int) -> Any:
    """Read one entry as an int, a slice or an array of numbers; else NotImplemented."""
    if hasattr(entry, "dask"):  # what is lazy stays lazy, though it could be asked for its value
        return NotImplemented
    if isinstance(entry, slice):
        return _slice(entry, length)
    if isinstance(entry, list | np.ndarray) and not np.isscalar(entry):
        numbers = np.asarray(entry)
        if numbers.dtype == bool and numbers.shape == (length,):
            numbers = np.flatnonzero(numbers)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) > _LONGEST_LIST:
            return NotImplemented
        if numbers.size and numbers.dtype.kind == "u" and numbers.max() >= length:
            msg = f"index {numbers.max()} is out of bounds for an axis of length {length}"
            raise IndexError(msg)
        return numbers.astype(np.intp)
    try:
        return NotImplemented if isinstance(entry, bool | np.bool) else operator.index(entry)
    except TypeError:
        return NotImplemented


def _slice(entry: slice, length: float) -> Any:
    """Read a slice; one that goes backwards and finds nothing goes nowhere."""
    if length != length:  # noqa: PLR0124  (nan: not even dask knows it)
        return NotImplemented
    try:
        # Dask and NumPy's own functions, da.repeat say, write whole numbers as floats.
        bounds = [_whole_number(bound) for bound in (entry.start, entry.stop, entry.step)]
    except (TypeError, ValueError):
        return NotImplemented
    if bounds[2] == 0:
        return NotImplemented  # dask says why
    found = slice(*bounds)
    return slice(0, 0) if _backward(found) and not range(int(length))[found] else found


def _whole_number(bound: Any) -> int | None:
    if isinstance(bound, float | np.floating):
        if bound != int(bound):
            raise ValueError
        return int(bound)
    return None if bound is None else operator.index(bound)


def _touched(sizes: tuple[int, ...], entry: Any) -> int:
    """Add up the lengths of the chunks of one axis that hold something of what is picked."""
    length = sum(sizes)
    if isinstance(entry, int):
        first = last = entry % length
    elif isinstance(entry, slice):
        picked = range(length)[entry]
        if not len(picked):
            return 0
        first, last = sorted((picked[0], picked[-1]))
    else:
        return length  # lists are always read by themselves
    stops = list(accumulate(sizes))
    return sum(sizes[bisect_right(stops, first) : bisect_right(stops, last) + 1])


def _cut(length: int, size: int) -> tuple[int, ...]:
    """Cut a list of picks into chunks no longer than the array's own."""
    return (size,) * (length // size) + ((length % size,) if length % size or not length else ())

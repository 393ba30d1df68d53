"""What does a line of a journal say? Six forms, each made in one place and read back in one.

    {"began": {"device": 8, "inode": 77, "nbytes": 4576,    a run begins to write this file
               "born_ns": ...}, "alone": true}              and all earlier ones are over
    {"done": [[0, 64]], "nbytes": ..., "checksum": ...,     these rows are on stable storage
     "seconds": 0.8}                                        and took so long to compute
    {"done": [[0, 64], [8, 16]], ...}                       or this block, of several axes
    {"failed": 7, "error": ..., "traceback": ...}           this row was tried in vain
    {"settled": [[[0, 64]], ...]}                           the pages these chunks share are written
    {"forgotten": [{"chunk": [[0, 64]], "lines": [...]}]}   lines of these times, of whatever writer,
                                                            count no more where they name this chunk
    {"ended": 1760000000000000000}                          a run has ended; the file's mtime_ns then

By whom and when is said by the entry that they stand in (see journal). A journal lies in a folder where others may write, so a line is
checked before it is believed: whatever is no such line is a ValueError that says what is wrong.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "Began",
    "Box",
    "Done",
    "Ended",
    "Entry",
    "Failed",
    "Forgotten",
    "Form",
    "Fragment",
    "Json",
    "Line",
    "Settings",
    "Settled",
    "as_box",
    "box_text",
    "check_settings",
    "read_line",
    "write_line",
]

Box: TypeAlias = tuple[tuple[int, int], ...]
"""Start and stop of a chunk along each axis; rows have one axis."""

Fragment: TypeAlias = tuple[int, bytes]
"""Where bytes belong in the file, and the bytes."""

Json: TypeAlias = Any
"""Whatever a file said in JSON; nothing is known of it before it was looked at."""

Form: TypeAlias = dict[str, Any]
"""What JSON holds of a line."""

Settings: TypeAlias = dict[str, Any]
"""What JSON holds of the work: what it fills, of what shape, by which calls; see `check_settings`."""


class Began(NamedTuple):
    """A run began to write a file."""

    device: int
    """Number of its file system on that host."""

    inode: int
    """Its number in there."""

    nbytes: int
    """Its length."""

    born_ns: int | None
    """When it was made, if that host knows, in nanoseconds since 1970."""

    generation: int | None
    """Which use of that inode number it is, if that host knows."""

    head_crc: int | None
    """CRC of its header."""

    alone: bool
    """Whether no other run may be at work: then all earlier ones are over."""


class Done(NamedTuple):
    """A chunk is on stable storage."""

    box: Box
    """Which."""

    nbytes: int
    """Its length in bytes."""

    checksum: str
    """Of its bytes, with the name of the algorithm."""

    fragments: tuple[Fragment, ...] = ()
    """Its bytes in pages that it shares, where the one owner of those pages has to write them."""

    seconds: float = 0.0
    """What it took to compute."""


class Failed(NamedTuple):
    """A row was tried in vain."""

    row: int
    """Which."""

    error: str
    """The exception in one line."""

    traceback: str
    """Where it was raised."""


class Settled(NamedTuple):
    """Fragments of chunks were written by the owner of their pages."""

    boxes: tuple[Box, ...]
    """The chunks."""


class Forgotten(NamedTuple):
    """Chunks are not done any more, until a later line says that they are."""

    lines: tuple[tuple[Box, tuple[float, ...]], ...]
    """Each chunk, and the times of the lines that count no more where they name it.

    By their times, and not all before this one, so that clocks need not agree, and the order of the
    writers does not matter.
    """


class Ended(NamedTuple):
    """A run ended."""

    mtime_ns: int
    """The file's time of change then."""


Line: TypeAlias = Began | Done | Failed | Settled | Forgotten | Ended


class Entry(NamedTuple):
    """What one process wrote down at once."""

    host: str
    """Name of the machine."""

    pid: int
    """Number of the process."""

    time: float
    """Seconds since 1970, by the clock of that machine."""

    lines: tuple[Line, ...]
    """What it says."""


def write_line(line: Line) -> Form:
    """Write a line as JSON holds it.

    Examples
    --------
    >>> write_line(Done(box=((0, 64),), nbytes=256, checksum="xxh3_64:00"))
    {'done': ((0, 64),), 'nbytes': 256, 'checksum': 'xxh3_64:00'}
    """
    match line:
        case Done():
            form: Form = {"done": line.box, "nbytes": line.nbytes, "checksum": line.checksum}
            if line.fragments:
                form["fragments"] = [
                    (offset, base64.b64encode(data).decode()) for offset, data in line.fragments
                ]
            return form | ({"seconds": round(line.seconds, 6)} if line.seconds else {})
        case Failed():
            return {"failed": line.row, "error": line.error, "traceback": line.traceback}
        case Began():
            file = line._asdict()
            return {"began": file, "alone": file.pop("alone")}
        case Settled():
            return {"settled": line.boxes}
        case Forgotten():
            return {"forgotten": [{"chunk": box, "lines": times} for box, times in line.lines]}
        case Ended():
            return {"ended": line.mtime_ns}


def read_line(form: Form) -> Line | None:
    """Read what `write_line` wrote; None for a form that is unknown here.

    Raises
    ------
    ValueError
        If it is of a known form, but does not say what such a line says.

    Examples
    --------
    >>> read_line({"failed": 7, "error": "KeyError: 'x'", "traceback": ""}).row
    7
    >>> read_line({"failed": "7", "error": "", "traceback": ""})
    Traceback (most recent call last):
      ...
    ValueError: failed is '7', not a whole number
    """
    for kind, read in _READERS.items():
        if kind in form:
            try:
                return read(form)
            except KeyError as error:
                msg = f"a line that says {kind!r} has no {error}"
                raise ValueError(msg) from None
    return None


def check_settings(settings: Json) -> None:
    """Check the settings of a journal as far as they say what they are about.

    Raises
    ------
    ValueError, KeyError
        If they say it in words that nobody writes.

    Examples
    --------
    >>> check_settings(
    ...     {"kind": "sweep", "shape": [9], "dtype": "'<f4'", "order": "C", "unit_rows": 0}
    ... )
    Traceback (most recent call last):
      ...
    ValueError: unit_rows is 0, not at least 1
    """
    kind = _dict("plan", settings).get("kind")
    if kind is None:
        return
    shape = [_whole("shape", length) for length in _list("shape", settings["shape"])]
    _text("dtype", settings["dtype"])
    _require(settings["order"] in ("C", "F"), "order", settings["order"], '"C" or "F"')
    if kind == "sweep":
        _require(len(shape) > 0, "shape", shape, "that of rows")
        unit_rows = _whole("unit_rows", settings["unit_rows"])
        _require(unit_rows >= 1, "unit_rows", unit_rows, "at least 1")
        _dict("function", settings["function"])
        return
    _require(kind == "array", "kind", kind, '"sweep" or "array"')
    _text("array", settings["array"])
    chunks = _list("chunks", settings["chunks"])
    sizes = [[_whole("chunks", n) for n in _list("chunks", axis)] for axis in chunks]
    _require([sum(axis) for axis in sizes] == shape, "chunks", chunks, "cuts of that shape")


def as_box(bounds: Iterable[Iterable[int]]) -> Box:
    """Take the bounds of a chunk, as JSON holds them, as something to compare."""
    return tuple((start, stop) for start, stop in bounds)


def box_text(box: Iterable[Iterable[int]]) -> str:
    """Name a chunk for people.

    Examples
    --------
    >>> box_text([[0, 20]]), box_text([[7, 14], [8, 16]])
    ('rows 0 to 20', 'block [7:14, 8:16]')
    """
    bounds = as_box(box)
    if len(bounds) == 1:
        return f"rows {bounds[0][0]:,} to {bounds[0][1]:,}"
    return f"block [{', '.join(f'{start}:{stop}' for start, stop in bounds)}]"


def _done(form: Form) -> Done:
    return Done(
        box=_box("done", form["done"]),
        nbytes=_whole("nbytes", form["nbytes"]),
        checksum=_text("checksum", form["checksum"]),
        fragments=tuple(map(_fragment, _list("fragments", form.get("fragments", [])))),
        seconds=_number("seconds", form.get("seconds", 0.0)),
    )


def _failed(form: Form) -> Failed:
    return Failed(
        row=_whole("failed", form["failed"]),
        error=_text("error", form["error"]),
        traceback=_text("traceback", form["traceback"]),
    )


def _began(form: Form) -> Began:
    file = _dict("began", form["began"])
    return Began(
        device=_whole("device", file["device"]),
        inode=_whole("inode", file["inode"]),
        nbytes=_whole("nbytes", file["nbytes"]),
        born_ns=_known("born_ns", file),
        generation=_known("generation", file),
        head_crc=_known("head_crc", file),
        alone=form["alone"] is True,
    )


def _settled(form: Form) -> Settled:
    return Settled(tuple(_box("settled", box) for box in _list("settled", form["settled"])))


def _forgotten(form: Form) -> Forgotten:
    entries = [_dict("forgotten", entry) for entry in _list("forgotten", form["forgotten"])]
    return Forgotten(
        tuple(
            (
                _box("chunk", entry["chunk"]),
                tuple(_number("lines", time) for time in _list("lines", entry["lines"])),
            )
            for entry in entries
        )
    )


def _ended(form: Form) -> Ended:
    return Ended(_whole("ended", form["ended"]))


_READERS: dict[str, Callable[[Form], Line]] = {
    "done": _done,
    "failed": _failed,
    "began": _began,
    "settled": _settled,
    "forgotten": _forgotten,
    "ended": _ended,
}


def _box(name: str, value: Json) -> Box:
    box = tuple([tuple(pair) if type(pair) is list else () for pair in _list(name, value)])
    sound = all(
        len(pair) == 2 and type(pair[0]) is int and type(pair[1]) is int and 0 <= pair[0] <= pair[1]
        for pair in box
    )
    _require(sound, name, value, "the bounds of a chunk")
    return box


def _fragment(value: Json) -> Fragment:
    _require(type(value) is list and len(value) == 2, "fragments", value, "an offset and bytes")
    offset, text = value
    try:
        return _whole("fragments", offset), base64.b64decode(text, validate=True)
    except TypeError:
        msg = f"fragments hold {type(text).__name__}, not text"
        raise ValueError(msg) from None


def _list(name: str, value: Json) -> list[Json]:
    _require(type(value) is list, name, value, "a list")
    return value  # type: ignore[no-any-return]


def _dict(name: str, value: Json) -> Form:
    _require(type(value) is dict, name, value, "an object")
    return value  # type: ignore[no-any-return]


def _whole(name: str, value: Json) -> int:
    _require(type(value) is int and value >= 0, name, value, "a whole number")
    return value  # type: ignore[no-any-return]


def _known(name: str, form: Form) -> int | None:
    value = form.get(name)
    return None if value is None else _whole(name, value)


def _number(name: str, value: Json) -> float:
    _require(type(value) in {int, float}, name, value, "a number")
    return value  # type: ignore[no-any-return]


def _text(name: str, value: Json) -> str:
    _require(type(value) is str, name, value, "text")
    return value  # type: ignore[no-any-return]


def _require(sound: bool, name: str, value: Json, wanted: str) -> None:
    if not sound:
        shown = repr(value)
        msg = f"{name} is {shown if len(shown) <= 60 else shown[:57] + '...'}, not {wanted}"
        raise ValueError(msg)

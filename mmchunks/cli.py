"""The command line: the library's verbs, each for people and, with ``--json``, for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from mmchunks import files, report
from mmchunks.errors import MMChunksError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmchunks.files import Source
    from mmchunks.layout import Order

__all__ = ["main"]


class _Sentences(click.Group):
    """Show the errors that people can do something about as one sentence, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (MMChunksError, OSError) as error:
            raise click.ClickException(str(error)) from error


class _Chunks(click.ParamType[Any]):
    """Dask's chunks as text: ``auto``, ``"64 MiB"``, ``100``, ``100,-1``, ``"100,auto"``, JSON."""

    name = "chunks"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ARG002  # click's signature
        if not isinstance(value, str):
            return value
        if value.lstrip()[:1] in {"[", "{"}:
            return _frozen(json.loads(value))
        parts = tuple(_number_or_text(part) for part in value.split(","))
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


def _shape(_ctx: Any, _param: Any, value: str | None) -> tuple[int, ...] | None:
    """Read ``100x12`` or ``100,12`` as a shape."""
    if value is None:
        return None
    try:
        return tuple(int(part) for part in value.replace("x", ",").split(",") if part.strip())
    except ValueError as error:
        msg = f"{value!r} is no shape; write 8760,12 or 8760x12"
        raise click.BadParameter(msg) from error


def _align(_ctx: Any, _param: Any, value: str) -> str | int | None:
    return None if value == "none" else _number_or_text(value)


def _source_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what names a file: a ``.npy``, or any file whose dtype is told."""
    for option in (
        click.option("--order", type=click.Choice(["C", "F"]), default="C", help="Of a raw file."),
        click.option("--offset", type=int, default=0, help="First byte of a raw file's data."),
        click.option("--shape", callback=_shape, help="Of a raw file; else one axis to its end."),
        click.option("--dtype", help="Read PATH as a raw file of this dtype: <f4, ci16_le."),
        click.argument("path"),
    ):
        command = option(command)
    return command


def _open(path: str, dtype: str | None, shape: Any, offset: int, order: Order) -> Source:
    if dtype is None:
        return files.open_npy(path)
    return files.open_raw(path, dtype, shape, offset=offset, order=order)


_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


@click.group(cls=_Sentences)
@click.version_option(package_name="mmchunks")
def main() -> None:
    """Read, fill and aggregate one huge .npy or raw binary file."""


@main.command()
@_source_arguments
@_as_json
def info(path: str, as_json: bool, **source: Any) -> None:
    """Tell what PATH holds. Reads its header and nothing else."""
    facts = report.facts(_open(path, **source))
    click.echo(json.dumps(facts) if as_json else report.lines(facts))


@main.command()
@_source_arguments
@click.option("--chunks", type=_Chunks(), default="auto", help='As in dask: auto, "64 MiB", 100,-1')
@click.option("--align", callback=_align, default="auto", help="auto, page, none, or bytes.")
@click.option("--writing", is_flag=True, help="Plan for filling the file, not for reading it.")
@click.option("--device", default="auto", help="auto, cpu or gpu: where chunks would be read to.")
@click.option("--io", default="auto", help="auto, mmap, pread, direct or gds.")
@_as_json
def plan(
    path: str,
    as_json: bool,
    chunks: Any,
    align: Any,
    writing: bool,
    device: str,
    io: str,
    **source: Any,
) -> None:
    """Cut PATH into chunks and explain every decision."""
    from mmchunks import loading
    from mmchunks.planning import plan as make_plan

    opened = _open(path, **source)
    made = make_plan(opened, chunks, align=align, writing=writing)
    if as_json:
        click.echo(made.to_json())
        return
    click.echo(made.explain())
    if len(made) and not writing:
        way = loading.explain(opened, made[0].read_region, device=device, io=io)
        click.echo(f"the first chunk would now be read by {way}")

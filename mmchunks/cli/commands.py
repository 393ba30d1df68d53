"""The command line: the library's verbs, each for people and, with ``--json``, for programs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from mmchunks.cli import options, report
from mmchunks.errors import MMChunksError
from mmchunks.files import sources
from mmchunks.reading import opening

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmchunks.files.layout import Order
    from mmchunks.files.sources import Source

__all__ = ["main"]


class _Sentences(click.Group):
    """Show the errors that people can do something about as one sentence, without a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if ctx.invoked_subcommand in {"fill", "window"}:
                click.echo("stopped; the same command goes on with what is missing", err=True)
            raise
        except (MMChunksError, OSError) as error:
            raise click.ClickException(_as_options(str(error))) from error


def _as_options(sentence: str) -> str:
    """Name the options of the command line where a sentence names those of a function."""
    for ours, theirs in {
        "use open_raw": "pass --dtype",
        "pass overwrite=True": "pass --overwrite",
        'pass on_error="record"': "pass --on-error record",
        "force=True (--force)": "--force",
        "resume=True": "the same command",
    }.items():
        sentence = sentence.replace(ours, theirs)
    return sentence


def _source_arguments(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what names a file: a ``.npy``, or any file whose dtype is told."""
    for option in (
        click.option("--order", type=click.Choice(["C", "F"]), default="C", help="Of a raw file."),
        click.option("--offset", type=int, default=0, help="First byte of a raw file's data."),
        click.option(
            "--shape", callback=options.shape, help="Of a raw file; else one axis to its end."
        ),
        click.option(
            "--dtype",
            type=options.Dtype(samples=True),
            help="Read PATH as a raw file: <f4, ci16_le.",
        ),
        click.option(
            "--max-header-size",
            type=click.IntRange(min=1),
            default=sources.MAX_HEADER_NBYTES,
            help="Longest header of a .npy that is parsed.",
        ),
        click.argument("path"),
    ):
        command = option(command)
    return command


def _open(
    path: str,
    dtype: str | None,
    shape: tuple[int, ...] | None,
    offset: int,
    order: Order,
    max_header_size: int,
) -> Source:
    if dtype is None:
        return sources.open_source(path, max_header_size=max_header_size)
    return opening.open_raw(path, dtype, shape, offset=offset, order=order)


_DEVICES = click.Choice(["auto", "cpu", "gpu"])
_WAYS = click.Choice(["auto", "mmap", "pread", "direct", "gds"])
_force = click.option(
    "--force", is_flag=True, help="Take over from a driver of another host that is dead."
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


@click.group(
    cls=_Sentences, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
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
@click.option(
    "--chunks", type=options.Chunks(), default="auto", help='As in dask: auto, "64 MiB", 100,-1'
)
@click.option("--align", callback=options.align, default="auto", help="auto, page, none, or bytes.")
@click.option("--writing", is_flag=True, help="Plan for filling the file, not for reading it.")
@click.option("--device", type=_DEVICES, default="auto", help="Where chunks would be read to.")
@click.option("--io", type=_WAYS, default="auto", help="By which way.")
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
    from mmchunks.planning.making import plan as make_plan
    from mmchunks.reading import regions

    opened = _open(path, **source)
    made = make_plan(opened, chunks, align=align, writing=writing)
    way = None
    if len(made) and not writing:
        way = regions.explain(opened, made[0].read_region, device=device, io=io)
    if as_json:
        click.echo(json.dumps(report.plan_facts(made, way)))
        return
    click.echo(made.explain())
    if way is not None:
        click.echo(f"the first chunk would now be read by {way}")


@main.command()
@click.argument("path")
@click.option("--shape", required=True, callback=options.shape, help="As 8760,12 or 8760x12.")
@click.option("--dtype", type=options.Dtype(), required=True)
@click.option("--order", type=click.Choice(["C", "F"]), default="C")
@click.option("--fill-value", help="What every element holds at first, if not zero.")
@click.option(
    "--align",
    callback=options.align,
    default="auto",
    help="The data start so: auto, none, or bytes.",
)
@click.option("--no-reserve", is_flag=True, help="Do not take the disk space now.")
@click.option("--overwrite", is_flag=True)
@_force
@_as_json
def create(
    path: str, as_json: bool, dtype: str, fill_value: str | None, no_reserve: bool, **how: Any
) -> None:
    """Make a .npy of full length at PATH, its space reserved, to be filled."""
    import numpy as np

    from mmchunks.writing.targets import create_npy

    try:
        value = None if fill_value is None else np.array(fill_value).astype(dtype)
    except (ValueError, OverflowError) as error:
        msg = f"--fill-value {fill_value!r} is no {dtype} ({error})"
        raise click.BadParameter(msg) from error
    target = create_npy(path, dtype=dtype, fill_value=value, reserve=not no_reserve, **how)
    facts = report.facts(target.source)
    click.echo(json.dumps(facts) if as_json else report.lines(facts))


@main.command()
@click.argument("function")
@click.argument("scenarios")
@click.argument("path")
@click.option("--shape", callback=options.shape, help="Of one row; else that of the first result.")
@click.option("--dtype", type=options.Dtype(), help="Of the rows; else that of the first result.")
@click.option("--part", help='Do a share only: 3/100, or "auto" in a job array.')
@click.option(
    "--workers", type=click.IntRange(min=0), default=0, help="Processes; 0 computes right here."
)
@click.option("--chunks", type=options.Chunks(), default="auto", help="Rows that are lost at most.")
@click.option("--into", is_flag=True, help="FUNCTION fills a row that it gets as out=.")
@click.option("--retries", type=int, default=0)
@click.option("--on-error", type=click.Choice(["raise", "record"]), default="raise")
@_force
@_as_json
def fill(
    function: str,
    scenarios: str,
    path: str,
    as_json: bool,
    workers: int,
    **how: Any,
) -> None:
    """Fill PATH by calling FUNCTION (module:name) for each of SCENARIOS (a JSON file, - for stdin).

    Run it again after any crash: it goes on with what is missing. In a job array, every task runs
    the same command with --part auto.
    """
    import dataclasses

    from mmchunks.filling.sweeping import sweep

    calls = options.scenarios(scenarios)
    with _processes(workers) as executor:
        done = sweep(options.function(function), calls, path, executor=executor, **how)
    click.echo(json.dumps(dataclasses.asdict(done)) if as_json else report.sweep_line(done))


def _processes(workers: int) -> Any:
    """Start so many processes; none means that the work is done right here."""
    from contextlib import nullcontext

    if not workers:
        return nullcontext()
    import multiprocessing
    import os
    from concurrent.futures import ProcessPoolExecutor

    from mmchunks.filling.executors import end_with_parent

    # Spawned, never forked: a fork inherits locks and CUDA contexts in whatever state they are.
    return ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=end_with_parent,
        initargs=(os.getpid(),),
    )


@main.command()
@click.argument("path")
@_as_json
def status(path: str, as_json: bool) -> None:
    """Tell how much of PATH is done."""
    from mmchunks.filling.checking import status as look

    found = look(path)
    click.echo(json.dumps(report.status_facts(found)) if as_json else report.status_lines(found))


@main.command()
@click.argument("path")
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    help="Processes that read; 0 reads right here.",
)
@click.option("--forget", is_flag=True, help="Let the next run compute again what differs.")
@_force
@_as_json
def verify(path: str, as_json: bool, workers: int, forget: bool, force: bool) -> None:
    """Read everything that is done back, and compare checksums. Exit status 1 if any differs."""
    import sys

    from mmchunks.filling.checking import verify as check

    with _processes(workers) as executor:
        found = check(path, executor=executor, forget=forget, force=force)
    facts = {"path": found.path, "ok": found.ok, "checked": found.checked, "bad": list(found.bad)}
    click.echo(json.dumps(facts) if as_json else report.verify_line(found))
    sys.exit(0 if found.ok else 1)


@main.command()
@_source_arguments
@click.argument("out")
@click.option("--axis", "axes", type=int, multiple=True, default=(0,), help="On which it slides.")
@click.option("--size", "sizes", type=int, multiple=True, required=True, help="Rows of a window.")
@click.option("--step", type=int, default=1, help="Rows from one window to the next.")
@click.option(
    "--reduce",
    default="mean",
    help="sum, mean, min, max, std, var, ptp, any, all, median, or a quantile: 0.9",
)
@click.option("--device", type=_DEVICES, default="auto", help="Where windows are reduced.")
@click.option("--io", type=_WAYS, default="auto", help="By which way the file is read.")
@click.option("--device-memory", help='Of each GPU, as "8 GiB"; else what is free.')
@click.option(
    "--chunks", type=options.Chunks(), default="auto", help="Of the result; each is done or not."
)
@click.option(
    "--workers",
    "n_workers",
    type=click.IntRange(min=1),
    help="Processes of a cluster; else threads.",
)
@_force
@_as_json
def window(
    path: str,
    out: str,
    as_json: bool,
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    reduce: str,
    n_workers: int | None,
    force: bool,
    step: int,
    device: str,
    io: str,
    device_memory: str | None,
    chunks: Any,
    **source: Any,
) -> None:
    """Reduce sliding windows of PATH into OUT. Run it again, and it goes on where it stopped.

    Several axes at once: --axis 0 --size 24 --axis 1 --size 5.
    """
    from contextlib import nullcontext

    from mmchunks.filling.storing import to_npy
    from mmchunks.gpu.workers import local_client
    from mmchunks.sliding.arrays import sliding_window

    if len(axes) != len(sizes):
        msg = f"{len(axes)} --axis and {len(sizes)} --size were given; give one of each for an axis"
        raise click.UsageError(msg)
    lengths = dict(zip(axes, sizes, strict=True))
    y = sliding_window(
        _open(path, **source),
        lengths,
        options.quantile_or_name(reduce),
        step=step,
        device=device,
        io=io,
        device_memory=device_memory,
        chunks=chunks,
    )
    with nullcontext() if n_workers is None else local_client(n_workers, dashboard_address=":0"):
        to_npy(y, out, force=force)
    facts = report.facts(opening.open_npy(out))
    click.echo(json.dumps(facts) if as_json else report.lines(facts))


@main.command()
@_source_arguments
@click.option(
    "--nbytes", callback=options.nbytes, default="1GiB", help="How much is read each time."
)
@click.option("--rounds", type=click.IntRange(min=1), default=3)
@_as_json
def bench(path: str, as_json: bool, nbytes: int, rounds: int, **source: Any) -> None:
    """Time every way of reading PATH, cold and warm."""
    from mmchunks.cli.timing import time_ways

    rates = time_ways(_open(path, **source), nbytes=nbytes, rounds=rounds)
    click.echo(json.dumps(rates) if as_json else report.rate_lines(rates))


@main.command()
@click.option(
    "--nbytes",
    callback=options.nbytes,
    default="256MiB",
    help="Size of the file, about; 20MiB or more.",
)
@click.option(
    "--workers",
    "n_workers",
    type=click.IntRange(min=1),
    help="Processes; else one a GPU or a core.",
)
@click.option("--folder", type=click.Path(exists=True, file_okay=False), help="Where to write.")
@_as_json
def demo(as_json: bool, **how: Any) -> None:
    """See it all at work: a sweep is killed, resumed, checked, read back and averaged."""
    from mmchunks.cli.demo import run

    measured = run(say=lambda text: click.echo(text + "\n", err=as_json), **how)
    click.echo(json.dumps(measured) if as_json else report.demo_line(measured))

"""Which chunks does a device hold? As many bytes as its memory allows for, before anything runs.

A device that runs several tasks at once holds a chunk for each, and what is made beside it: the
numbers that samples become, a field that cannot be read in place, big-endian numbers while they are
turned around. Chunks that are ours to choose take no more than half of the memory, so that there is
room for what is computed from them.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

from mmchunks.errors import DeviceError
from mmchunks.gpu import devices, ring
from mmchunks.gpu.budget import DeviceBytes, fitting_nbytes
from mmchunks.gpu.forms import device_form
from mmchunks.gpu.workers import tasks_at_once
from mmchunks.planning import making
from mmchunks.planning.grammar import parse_nbytes

if TYPE_CHECKING:
    from mmchunks.files.layout import DType
    from mmchunks.planning.grammar import Chunks
    from mmchunks.planning.plans import Plan
    from mmchunks.reading.selection import Selection

__all__ = ["check_fits", "chosen_nbytes", "fitting_plan"]

_LEAST_NBYTES = 2**16  # below, the task costs more than its bytes


def fitting_plan(
    selection: Selection,
    chunks: Chunks,
    *,
    align: str | int | None,
    device_memory: int | str | None,
) -> Plan:
    """Cut a file into chunks that the device of a selection can hold.

    Parameters
    ----------
    selection : Selection
        All of a file, on a GPU.
    chunks : object
        As in `making.plan`.
    align : str, int or None
        As in `making.plan`.
    device_memory : int, str or None
        Bytes that there are on the device, as a number or as ``"8 GiB"``; None asks the GPU of this
        process what is free now.

    Returns
    -------
    Plan
        Sizes that were left to us fit; sizes that were spelled out were checked.

    Raises
    ------
    DeviceError
        If chunks cannot fit; the sentence has the numbers.
    """
    budget = device_nbytes(device_memory)
    target_nbytes = chosen_nbytes(selection, making.wanted_nbytes(), budget=budget)
    plan = making.plan_for(
        selection.source,
        chunks,
        align=align,
        halo=None,
        writing=False,
        target_nbytes=target_nbytes,
    )
    largest = math.prod(plan.grid.largest)
    check_fits(selection, chunk=largest, halo=0, result=0, count=len(plan), budget=budget)
    return plan


def chosen_nbytes(selection: Selection, wanted: int, *, budget: int) -> int:
    """Choose how many stored bytes a task should bring onto the device of a selection.

    Parameters
    ----------
    selection : Selection
        What is read, on a GPU.
    wanted : int
        Bytes if memory were no question.
    budget : int
        Bytes that there are on the device.
    """
    tasks = tasks_at_once()
    return fitting_nbytes(
        wanted,
        least=_LEAST_NBYTES,
        stored=selection.source.layout.itemsize,
        beside=_beside(selection),
        ring=tasks * _turning_nbytes(selection.source.layout.dtype),
        tasks=tasks,
        budget=budget // 2,
    )


def check_fits(
    selection: Selection,
    *,
    chunk: int,
    halo: int,
    result: int,
    count: int,
    budget: int,
) -> None:
    """Refuse tasks that the device of a selection cannot hold.

    Parameters
    ----------
    selection : Selection
        What is read, on a GPU.
    chunk : int
        Elements that the largest task owns.
    halo : int
        Elements that it reads beyond them.
    result : int
        Bytes that it computes of them.
    count : int
        How many tasks there are.
    budget : int
        As in `chosen_nbytes`.

    Raises
    ------
    DeviceError
        With the path and the numbers.
    """
    source = selection.source
    tasks = max(min(tasks_at_once(), count), 1)
    need = DeviceBytes(
        chunk=chunk * source.layout.itemsize,
        halo=halo * source.layout.itemsize,
        result=result + (chunk + halo) * _beside(selection),
        ring=tasks * _turning_nbytes(source.layout.dtype),
        tasks=tasks,
    )
    try:
        need.check(budget)
    except DeviceError as error:
        msg = f"{source.path}: {error}"
        raise DeviceError(msg) from error


def device_nbytes(device_memory: int | str | None) -> int:
    if device_memory is None:
        return devices.memory().free
    if isinstance(device_memory, str):
        return parse_nbytes(device_memory)
    return operator.index(device_memory)


def _turning_nbytes(dtype: DType) -> int:
    """Count the bytes on the device in which a task turns big-endian numbers around."""
    return ring.RING.slot_nbytes if device_form(dtype).word > 1 else 0


def _beside(selection: Selection) -> int:
    """Count the bytes that are made of one element of the file, while its chunk is still there."""
    source = selection.source
    samples = source.samples
    if samples is not None:  # decoding may also turn the bytes of each number around, in a copy
        return samples.result.itemsize + samples.stored.itemsize
    return 0 if selection.field is None else source.dtype[selection.field].itemsize

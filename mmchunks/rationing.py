"""Which chunks does a device hold? As many bytes as its memory allows for, before anything runs.

A device that runs several tasks at once holds a chunk for each, and what is made beside it: the
numbers that samples become, a field that cannot be read in place, big-endian numbers while they are
turned around. Chunks that are ours to choose take no more than half of the memory, so that there is
room for what is computed from them.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from mmchunks import devices, planning, transfers
from mmchunks.budget import DeviceBytes, fitting_nbytes
from mmchunks.chunkspec import parse_nbytes
from mmchunks.errors import DeviceError
from mmchunks.unpacking import device_form
from mmchunks.workers import tasks_at_once

if TYPE_CHECKING:
    import numpy as np

    from mmchunks.plans import Plan
    from mmchunks.selection import Selection

__all__ = ["fitting_plan"]

_LEAST_NBYTES = 2**16  # below, the task costs more than its bytes


def fitting_plan(
    selection: Selection, chunks: Any, *, align: str | int | None, device_memory: int | str | None
) -> Plan:
    """Cut a file into chunks that the device of a selection can hold.

    Parameters
    ----------
    selection : Selection
        All of a file, on a GPU.
    chunks : object
        As in `planning.plan`.
    align : str, int or None
        As in `planning.plan`.
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
    source = selection.source
    budget = _budget(device_memory)
    stored, beside = source.layout.itemsize, _beside(selection)
    tasks = tasks_at_once()
    ring = tasks * _turning_nbytes(source.layout.dtype)
    target_nbytes = fitting_nbytes(
        planning.wanted_nbytes(),
        least=_LEAST_NBYTES,
        stored=stored,
        beside=beside,
        ring=ring,
        tasks=tasks,
        budget=budget // 2,
    )
    plan = planning.plan_for(
        source, chunks, align=align, halo=None, writing=False, target_nbytes=target_nbytes
    )
    largest = math.prod(plan.grid.largest)
    need = DeviceBytes(
        chunk=largest * stored,
        halo=0,
        result=largest * beside,
        ring=ring,
        tasks=min(tasks, max(len(plan), 1)),
    )
    try:
        need.check(budget)
    except DeviceError as error:
        msg = f"{source.path}: {error}; device_memory= says what is there, if that is wrong"
        raise DeviceError(msg) from error
    return plan


def _budget(device_memory: int | str | None) -> int:
    if device_memory is None:
        return devices.memory().free
    if isinstance(device_memory, str):
        return parse_nbytes(device_memory)
    return operator.index(device_memory)


def _turning_nbytes(dtype: np.dtype[Any]) -> int:
    """Count the bytes on the device in which a task turns big-endian numbers around."""
    return transfers.RING.slot_nbytes if device_form(dtype).word > 1 else 0


def _beside(selection: Selection) -> int:
    """Count the bytes that are made of one element of the file, while its chunk is still there."""
    source = selection.source
    samples = source.samples
    if samples is not None:  # decoding may also turn the bytes of each number around, in a copy
        return samples.result.itemsize + samples.stored.itemsize
    return 0 if selection.field is None else source.dtype[selection.field].itemsize

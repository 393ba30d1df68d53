"""Are the bytes of a chunk still those that were written? Read them again and compare checksums."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mmchunks.executors import Calls
from mmchunks.files import MAX_HEADER_NBYTES, open_source
from mmchunks.targets import Target

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mmchunks.records import Record

__all__ = ["damaged"]

_BATCH_NBYTES = 1 << 28  # what one call reads: long beside the cost of a call


def damaged(path: str, done: Sequence[Record], executor: Any) -> list[Record]:
    """Find the chunks whose bytes are not those that the journal speaks of.

    Parameters
    ----------
    path : str
        The file.
    done : sequence of dict
        Records of chunks, with their box, checksum and number of bytes.
    executor : None or anything with ``submit``
        Where to read; None reads here.

    Returns
    -------
    list of dict
        The records that are not kept.
    """
    found = Calls(executor, functools.partial(_damaged, path), list(_batches(done)))
    return [record for records in found for record in records]


def _batches(done: Iterable[Record]) -> Iterable[list[Record]]:
    """Group records so that each group is worth a call."""
    batch: list[Record] = []
    for record in sorted(done, key=lambda record: record["done"]):
        batch.append(record)
        if sum(r["nbytes"] for r in batch) >= _BATCH_NBYTES or len(batch) >= 1000:
            yield batch
            batch = []
    if batch:
        yield batch


def _damaged(path: str, records: list[Record]) -> list[Record]:
    """Read chunks again, and give the records of those that differ."""
    # Not `open_target`: whoever may only read the file may verify it.
    source = open_source(path, max_header_size=MAX_HEADER_NBYTES)
    target = Target(replace(source, filling=True), "auto")
    return [
        r
        for r in records
        if target.checksum(target.layout.region(_slices(r)), r["checksum"]) != r["checksum"]
    ]


def _slices(record: Record) -> tuple[slice, ...]:
    """Turn the box of a record into slices."""
    return tuple(slice(start, stop) for start, stop in record["done"])

"""How does a dask array become one ``.npy`` file? Every block writes its own region where it was computed.

    blocks   [b00][b01]...      each task: block -> region of the file, flushed, journalled
                |    |          and gives back only how it went, so that no block travels
    file     |hh|=b00=|=b01=|...

Blocks never overlap, so no lock is needed. `dask.array.store` does the like, but the newer of
dask's two array engines does not have it, and it knows nothing of what is done.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import time
import uuid
import warnings
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import JournalError, PlanError
from mmchunks.files.npy import dtype_text
from mmchunks.files.sources import name_of
from mmchunks.filling.progress import progress_bar, visible
from mmchunks.filling.resuming import Log, begin, begun, carry_on, note_begin, note_end, settle
from mmchunks.reading.lazyindexing import files_read_by
from mmchunks.writing.journal import Journal
from mmchunks.writing.targets import create_npy, open_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dask.array as da
    from dask.delayed import Delayed

    from mmchunks.files.layout import Array, Block, Index
    from mmchunks.files.sources import File
    from mmchunks.writing.journallines import Box
    from mmchunks.writing.targets import Target

__all__ = ["to_npy"]

_POLL_SECONDS = 1.0  # between two looks at the journal, for the progress line


def to_npy(
    dask_array: da.Array,
    path: File,
    *,
    region: Index = None,
    resume: bool = True,
    overwrite: bool = False,
    compute: bool = True,
    progress: bool | None = None,
    force: bool = False,
) -> Delayed | None:
    """Write a dask array to one ``.npy`` file, block by block, from all workers at once.

    Parameters
    ----------
    dask_array : dask.array.Array
        Blocks may be of numpy or cupy, of any chunks; those that cover whole rows write fastest.
    path : str, os.PathLike, Source or Target
        The file; with `region` it must be there, else it is made.
    region : slice or tuple of slice, optional
        Where in an existing file the array goes. No journal is kept then; if the file has one of
        the work that filled it, `verify` finds what is overwritten changed.
    resume : bool
        Go on with what an earlier call began with the same array: blocks that its journal says are
        done are not computed. It is the same if its dask name is; another one is refused. False
        refuses whatever is there.
    overwrite : bool
        Replace a file that is there, whatever it is, and begin anew.
    compute : bool
        False gives a `dask.delayed.Delayed` that does the work when it is computed. The file is
        made, of full length, in any case.
    progress : bool, optional
        Whether to show how far it is; by default where there is a terminal or a notebook. True
        writes a line a minute where there is none.
    force : bool
        Take the place of a driver on another host, of which only you know that it has ended.

    Returns
    -------
    None or dask.delayed.Delayed
        With `compute`, nothing.

    Raises
    ------
    PlanError
        If it is no dask array, chunk sizes are unknown, it does not fit the region, or it reads the
        very file that would be overwritten.
    FileExistsError
        If there is a file that no such call made, without `overwrite`; or any, without `resume`.
    JournalError
        If it was begun with another array, or another driver is at work.
    StaleFileError
        If it was begun, and is gone, truncated, replaced or changed since.

    Examples
    --------
    >>> import tempfile
    >>> import dask.array as da
    >>> import numpy as np
    >>> path = tempfile.mkdtemp() + "/out.npy"
    >>> to_npy(da.arange(10, chunks=4), path)
    >>> np.load(path)
    array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    path = os.path.realpath(name_of(path))
    _require_dask_array(dask_array, path)
    _require_plain(dask_array, path)
    if region is not None:
        if overwrite:
            msg = f"{path}: region= writes into a file as it is; it knows no overwrite="
            raise PlanError(msg)
        target = open_target(path)
        _require_not_read(dask_array, path)
        _warn_of_journal(path)
        corner = _corner(target, region, dask_array.shape)
        journal = None
    else:
        journal, target = _begun(dask_array, path, resume=resume, overwrite=overwrite, force=force)
        corner = (0,) * dask_array.ndim
    boxes = _boxes(dask_array.chunks, corner)
    _warn_of_shared_pages(target, boxes)
    if not compute:
        return _delayed(dask_array, target, boxes, journal, corner)
    if journal is None:
        _delayed(dask_array, target, boxes, None, corner).compute()
        return None
    with (
        journal.lock(force=force) as driver,
        _watched(journal, len(boxes), show=progress),
    ):
        try:
            _delayed(dask_array, target, boxes, journal, corner, owner=driver.token).compute()
        except BaseException:
            _log.cache_clear()
            # What is done is to be in the file, whatever became of the rest.
            with suppress(OSError, JournalError):
                settle(journal, target, owner=driver.token, force=force)
            raise
        finally:
            _log.cache_clear()
    return None


def _begun(
    array: da.Array, path: str, *, resume: bool, overwrite: bool, force: bool
) -> tuple[Journal, Target]:
    """Make the file of an array, or open that of an earlier call."""
    settings = {
        "kind": "array",
        "array": array.name,
        "shape": list(array.shape),
        "dtype": dtype_text(array.dtype),
        "order": "C",
        "chunks": [list(sizes) for sizes in array.chunks],
    }
    if os.path.exists(path) and (overwrite or not Journal(path=path).folder.exists()):
        _require_not_read(array, path)  # before anybody is told to remove it
    if overwrite:
        # Its journal goes with the file that goes.
        create_npy(path, array.shape, array.dtype, overwrite=True, force=force)
        journal = Journal.create(path, settings)
    else:
        journal = begun(path, settings, resume=resume) or begin(path, settings)
    return journal, carry_on(journal, executor=None)


def _delayed(
    array: da.Array,
    target: Target,
    boxes: list[Box],
    journal: Journal | None,
    corner: tuple[int, ...],
    *,
    owner: str | None = None,
) -> Delayed:
    """Build the graph: a task for each block that is not done, and one when all are."""
    import dask
    from dask.core import flatten
    from dask.delayed import Delayed

    done: set[Box] = set()
    if journal is not None:
        done = journal.ledger(durable=True).boxes
        with journal.writer(owner=owner) as writer:
            note_begin(journal, writer, alone=True)
        journal = Journal(path=journal.path)  # tasks travel without the settings that were read
    run = uuid.uuid4().hex  # makes names that no scheduler has seen, so that none skips a write
    receipts = array.map_blocks(
        functools.partial(_write, target, journal, corner, run, owner),
        dtype=object,
        chunks=tuple((1,) * blocks for blocks in array.numblocks),
        meta=np.empty((0,) * array.ndim, object),
    )
    (receipts,) = dask.optimize(receipts)
    keys = flatten(receipts.__dask_keys__())
    # Of blocks that are done nothing is asked, so that dask leaves out all that leads to them.
    left = [key for key, box in zip(keys, boxes, strict=True) if box not in done]
    name = f"to-npy-{run}"
    end = {name: (functools.partial(_end, target, journal, owner), left)}
    return Delayed(name, {**receipts.__dask_graph__(), **end})


def _write(
    target: Target,
    journal: Journal | None,
    corner: tuple[int, ...],
    run: str,
    owner: str | None,
    block: Array,
    *,
    block_info: Any,
) -> Block:
    """Write one block, and write down that it is done, in the process that computed it."""
    began = time.perf_counter()
    place = block_info[0]["array-location"]
    box = tuple((start + at, stop + at) for (start, stop), at in zip(place, corner, strict=True))
    _require_promised_shape(target, box, block)
    done = target.write_chunk(tuple(slice(*bounds) for bounds in box), block)
    if journal is not None:
        done = done._replace(seconds=time.perf_counter() - began)
        _log(target, journal.path, run, owner).append(done)
    # Where pages are shared it holds less than two of them; else nothing but how it went.
    receipt = np.empty((1,) * len(box), object)
    receipt[(0,) * len(box)] = done  # not [...], which would take the fields of a tuple apart
    return receipt


def _require_promised_shape(target: Target, box: Box, block: Array) -> None:
    """Refuse a block of another shape than dask was told, which would be broadcast or fail late."""
    promised = tuple(stop - start for start, stop in box)
    if np.shape(block) != promised:
        msg = (
            f"{target.path}: block {box} has shape {np.shape(block)}, its chunks promise {promised}; "
            "say the chunks that the blocks really have, as map_blocks(..., chunks=...)"
        )
        raise PlanError(msg)


@functools.lru_cache(maxsize=1)
def _log(target: Target, path: str, run: str, owner: str | None) -> Log:  # noqa: ARG001
    """Open a journal file for this process and run; that of the next run takes its place."""
    # When nobody holds it any more, it closes its file.
    return Log(journal=Journal(path=path), target=target, owner=owner).__enter__()


def _end(
    target: Target,
    journal: Journal | None,
    owner: str | None,
    receipts: list[Block],
) -> None:
    """Write the pages that blocks share, when all blocks are done."""
    written = [receipt.item() for receipt in receipts]
    if journal is None:
        target.settle(written)
    else:
        _log.cache_clear()
        note_end(journal, target, owner=owner, seen=written)


@contextmanager
def _watched(journal: Journal, blocks: int, *, show: bool | None) -> Iterator[None]:
    """Show how many blocks the journal has, while the block runs, whoever writes them."""
    if not visible(show):
        yield
        return
    ended = threading.Event()
    seen = before = len(journal.ledger().boxes)

    def look() -> None:
        nonlocal seen
        found = len(journal.ledger().boxes)
        bar.advance(found - seen)
        seen = found

    def keep_looking() -> None:
        while not ended.wait(_POLL_SECONDS):
            look()

    with progress_bar(blocks, what="blocks", done=before, show=show, console=None) as bar:
        thread = threading.Thread(target=keep_looking, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            look()


def _boxes(chunks: tuple[tuple[int, ...], ...], corner: tuple[int, ...]) -> list[Box]:
    """Say where each block lies in the file, in the order of dask's keys."""
    axes = []
    for sizes, start in zip(chunks, corner, strict=True):
        stops = list(itertools.accumulate(sizes, initial=start))
        axes.append(list(itertools.pairwise(stops)))
    return list(itertools.product(*axes))


def _corner(target: Target, region: Index, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Find where a region of the shape of the array begins."""
    slices = target.layout.region(region)
    found = target.layout[slices].shape
    if found != shape:
        msg = f"{target.path}: the region has shape {found}, the array {shape}; they must agree"
        raise PlanError(msg)
    return tuple(part.start for part in slices)


def _warn_of_shared_pages(target: Target, boxes: list[Box]) -> None:
    """Say so before the run, if blocks share so many pages that no one can own them."""
    strided = (
        box
        for box in boxes
        if not target.layout[tuple(slice(*bounds) for bounds in box)].contiguous
    )
    if target.local or next(strided, None) is None:
        return
    axes = ", ".join(f"{axis}: -1" for axis in range(1, target.layout.ndim))
    msg = (
        f"{target.path}: lies on a network file system, and blocks that are cut along inner axes "
        "share pages with each other; that is safe with all workers on one host only: else "
        f"rechunk({{{axes}}}) first"
    )
    warnings.warn(msg, stacklevel=3)


def _require_not_read(array: da.Array, path: str) -> None:
    """Refuse to write where the array reads: its blocks would be made of what is there no more."""
    if path in files_read_by(array):
        msg = (
            f"{path}: the array reads this file; write elsewhere, and rename the result if need be"
        )
        raise PlanError(msg)


def _warn_of_journal(path: str) -> None:
    """Say so before the run, if the journal of other work will not fit the file any more."""
    folder = Journal(path=path).folder
    if folder.exists():
        msg = (
            f"{path}: was filled by a sweep or to_npy, whose journal does not know of region=: verify "
            f"will find these chunks changed; remove {folder} when that work is complete"
        )
        warnings.warn(msg, stacklevel=3)


def _require_dask_array(array: da.Array, path: str) -> None:
    """Refuse what is no dask array, and say how to write it."""
    import dask.array as da

    if not isinstance(array, da.Array):
        msg = (
            f"{path}: to_npy writes dask arrays, got {type(array).__name__}; use numpy.save for what "
            "is in memory, else dask.array.from_array, or the .data of an xarray.DataArray"
        )
        raise PlanError(msg)


def _require_plain(array: da.Array, path: str) -> None:
    """Refuse an array whose shape not even dask knows, or whose mask would be lost."""
    if any(size != size for sizes in array.chunks for size in sizes):  # noqa: PLR0124  (nan)
        msg = f"{path}: the array has chunks of unknown size; call its compute_chunk_sizes() first"
        raise PlanError(msg)
    if isinstance(array._meta, np.ma.MaskedArray):
        msg = f"{path}: the array is masked, and a .npy holds no mask; pass da.ma.filled(array, value)"
        raise PlanError(msg)

"""How does one region become one block? Look, choose, act.

A block that is mapped follows its file: if another process truncates the file while the block
lives, touching the lost part ends this process with SIGBUS, and nothing in here can prevent that.
A block that is read (``io="pread"`` or ``"direct"``) is a copy, and safe from then on.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.files import blocks
from mmchunks.files.mapping import REFUSALS, map_region
from mmchunks.files.mounts import mount_of
from mmchunks.files.preading import read_region, warm
from mmchunks.gpu.devices import chosen_device
from mmchunks.reading import routes, uploading
from mmchunks.reading.opening import waiting
from mmchunks.reading.pagecache import resident_fraction

if TYPE_CHECKING:
    from mmchunks.files.layout import Block, Index, Region
    from mmchunks.files.sources import Source

__all__ = ["block", "explain", "fill", "route"]

# One stream of 4 MiB pieces ran at 0.95 to 1.00 of the fastest read, and two no faster.
_PIECE_NBYTES = 4 << 20
_DIRECT_PIECE_NBYTES = 16 << 20
_THREADS = 1
_MEMORY_NBYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def block(source: Source, region: Region, *, io: str, device: str) -> Any:
    """Bring one region into memory, by the way that was asked for or the best one.

    Parameters
    ----------
    source : Source
        The file; its identity is checked before the region is touched, and again after a read.
    region : tuple of slice
        As ``source.layout.region`` makes it.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        The way the bytes take; see `load`.
    device : {"cpu", "gpu"}
        Where the block goes.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        The block, writable, samples decoded; it owns its memory, or its map.

    Raises
    ------
    StaleFileError
        If the file is not the one that was opened, or changes while it is being read.
    DeviceError
        If the device has not enough memory.
    """
    if device == "gpu":
        return uploading.gpu_block(source, region, io=io, out=None)
    stored = _stored(source, region, io)
    return stored if source.samples is None else source.samples.decode(stored, np)


def _stored(source: Source, region: Region, io: str) -> Block:
    """Bring the stored elements of a region into the memory of this host."""
    subarray = source.layout[region]
    edges = waiting(source, subarray)
    with source.opened() as fd:
        way = route(source, fd, region, io=io)
        if way.io == "mmap" and not edges:
            if way.warm:
                warm(fd, subarray)
            try:
                return map_region(fd, subarray)
            except OSError as error:
                # A process may hold some 65,000 maps (vm.max_map_count), but any number of blocks;
                # and mounts that look like a disk of this host may have none (ENODEV).
                if io != "auto" or error.errno not in REFUSALS:
                    raise
        try:
            out = blocks.take(subarray.shape, subarray.dtype, subarray.order)
        except (OSError, MemoryError) as error:
            msg = (
                f"{source.path}: no memory for a block of {subarray.nbytes:,} bytes; "
                "make chunks smaller, or raise the limit of this process ('ulimit -v')"
            )
            raise MemoryError(msg) from error
        _read(source, fd, region, out, direct=way.io == "direct")
    _mend(source, out, edges)
    return out


def fill(source: Source, region: Region, out: Block, *, io: str) -> None:
    """Bring one region into memory of this host that is there already.

    Parameters
    ----------
    source : Source
        The file.
    region : tuple of slice
        As ``source.layout.region`` makes it.
    out : numpy.ndarray
        Of the region's shape and the source's dtype, without gaps, in the layout's order.
    io : {"auto", "mmap", "pread", "direct"}
        The way the bytes take; ``"auto"`` reads, which fills memory faster than copying from a map.
    """
    way = routes.asked(io, "cpu")
    if source.samples is not None or (way is not None and way.io == "mmap"):
        out[...] = block(source, region, io=io, device="cpu")
        return
    edges = waiting(source, source.layout[region])
    with source.opened() as fd:
        _read(source, fd, region, out, direct=way is not None and way.io == "direct")
    _mend(source, out, edges)


def route(source: Source, fd: int, region: Region, *, io: str) -> routes.Route:
    """Find the way of a region into the memory of this host.

    Parameters
    ----------
    source : Source
        The file.
    fd : int
        The same file, open for reading.
    region : tuple of slice
        As ``source.layout.region`` makes it.
    io : {"auto", "mmap", "pread", "direct"}
        ``"auto"`` looks before it chooses.

    Returns
    -------
    Route
        The way, and the reason.
    """
    way = routes.asked(io, "cpu")
    if way is not None:
        return way
    subarray, mount = source.layout[region], mount_of(source.path)
    span = subarray.span
    return routes.choose(
        routes.Facts(
            kind=mount.kind,
            local=mount.local,
            readahead_nbytes=mount.readahead_nbytes,
            resident=resident_fraction(fd, span) if mount.local else None,
            span_nbytes=span.nbytes,
            nbytes=subarray.nbytes,
            memory_nbytes=_MEMORY_NBYTES,
        )
    )


def explain(source: Source, region: Index = None, *, device: str = "auto", io: str = "auto") -> str:
    """Say by which way a region would come into memory now, and why.

    Parameters
    ----------
    source : Source
        The file.
    region : slice or tuple of slice, optional
        What would be read; None is everything.
    device : {"auto", "cpu", "gpu"}
        Where it would go; see `load`.
    io : {"auto", "mmap", "pread", "direct", "gds"}
        The way that would be asked for; see `load`.

    Returns
    -------
    str
        The way and the reason. With ``io="auto"`` on a GPU, a region that is large enough for it is
        measured, if no such region was before.

    Examples
    --------
    >>> import tempfile
    >>> from mmchunks.reading.opening import open_npy
    >>> path = tempfile.mkdtemp() + "/ramp.npy"
    >>> np.save(path, np.arange(12))
    >>> explain(open_npy(path), device="cpu", io="pread")
    'pread: io="pread" was asked for'
    """
    part = source.layout.region(region)
    find = uploading.gpu_way if chosen_device(device) == "gpu" else route
    with source.opened() as fd:
        way = find(source, fd, part, io=io)
    return f"{way.io}: {way.reason}"


def _mend(source: Source, out: Block, edges: list[tuple[int, bytes]]) -> None:
    """Lay over a block what is done, but not in the file yet."""
    if edges:
        from mmchunks.writing.pages import patch

        patch(blocks.flattened(out, source.layout), 0, edges)


def _read(source: Source, fd: int, region: Region, out: Block, *, direct: bool) -> None:
    read_region(
        fd,
        source.layout[region],
        out,
        direct=direct,
        threads=_THREADS,
        piece_nbytes=_DIRECT_PIECE_NBYTES if direct else _PIECE_NBYTES,
    )
    # Opened once more: what changed in the meantime may have left old and new bytes in the block.
    with source.opened():
        pass

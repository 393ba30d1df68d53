"""How does one region of a file come onto a GPU? By the way asked for, or the one that won here.

    pread     read by rows into the slots of a ring, from the page cache or the disk
    direct    the same around the page cache (O_DIRECT), where the region has no gaps
    mmap      copied out of a map into the slots; where the device addresses pageable memory
              (HMM, Grace), the map itself is the block
    gds       whole pages straight from the disk, the edges by the ring
    auto      a few MB by each way, once for every mount, device and state of the page cache

A way that cannot be taken leads to ``pread``, and the route says why.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mmchunks.errors import DeviceError
from mmchunks.files.layout import PAGE, Layout
from mmchunks.files.mapping import map_region
from mmchunks.files.mounts import mount_of
from mmchunks.files.preading import read_range, read_region
from mmchunks.gpu import devices, gds, transfers
from mmchunks.gpu.forms import Fields, field
from mmchunks.reading import routes
from mmchunks.reading.opening import waiting
from mmchunks.reading.pagecache import resident_fraction
from mmchunks.reading.trials import Trials

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmchunks.files.layout import Array, Block, DType, Region, Subarray
    from mmchunks.files.raw import Samples
    from mmchunks.files.runs import Runs
    from mmchunks.files.sources import Source
    from mmchunks.gpu.cupytypes import CuArray

__all__ = ["Way", "gpu_block", "gpu_bytes", "gpu_field", "gpu_way"]

_TRIAL_NBYTES = 2**25  # a whole ring: less would not show what several readers are good for

_trials = Trials()


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the bytes of a region travel, and why that way."""

    io: str
    """``"pread"``, ``"direct"``, ``"mmap"`` or ``"gds"``."""

    readers: int = 1
    """Threads that read."""

    reason: str = ""
    """One sentence."""


# In the order in which they are tried; one thread first, because it wins where the disk is slow.
_WAYS = {
    "pread x 1": Way(io="pread"),
    "pread x 2": Way(io="pread", readers=2),
    "pread x 4": Way(io="pread", readers=4),
    "direct x 1": Way(io="direct"),
    "direct x 2": Way(io="direct", readers=2),
    "mmap x 2": Way(io="mmap", readers=2),
    "gds": Way(io="gds"),
}
_READERS = {"pread": 2, "direct": 1, "mmap": 2, "gds": 1}  # where nothing was tried


def gpu_block(source: Source, region: Region, *, io: str, out: CuArray | None) -> Array:
    """Bring one region onto the GPU of this process.

    Parameters
    ----------
    source : Source
        The file; its identity is checked before the region is touched, and again after.
    region : tuple of slice
        As ``source.layout.region`` makes it.
    io : {"auto", "pread", "direct", "mmap", "gds"}
        The way the bytes take.
    out : cupy.ndarray or None
        Filled, if given.

    Returns
    -------
    cupy.ndarray
        Ready on the current stream, samples decoded. What a device cannot count arrives as bytes,
        see `forms`.

    Raises
    ------
    StaleFileError
        If the file is not the one that was opened, or changes while it is being read.
    DeviceError
        If the device has not enough memory, or `out` is not an array for these elements.
    """
    if source.samples is not None:
        return _decoded(source, source.samples, region, io, out)
    subarray = source.layout[region]
    edges = waiting(source, subarray)
    with source.opened() as fd:
        if io == "mmap" and out is None and not edges:
            try:
                return devices.addressable(map_region(fd, subarray))
            except DeviceError:
                pass  # most devices are fed by the ring
        way = gpu_way(source, fd, region, io=io)
        if edges:  # which only what goes through the host can be patched with
            way = dataclasses.replace(way, io="pread", readers=_READERS["pread"])
        block = _upload(source.path, fd, subarray, way, out, edges)
    # Opened once more: what changed in the meantime may have left old and new bytes in the block.
    with source.opened():
        return block


def _decoded(
    source: Source, samples: Samples, region: Region, io: str, out: CuArray | None
) -> Array:
    """Bring samples, and decode them."""
    if out is not None:
        shape, gpu = source.layout[region].shape, devices.place()
        transfers.check_out(out, shape, samples.result, gpu)
    stored = gpu_block(dataclasses.replace(source, samples=None), region, io=io, out=None)
    block: CuArray = _decode(stored, samples)
    if out is None:
        return block
    out[...] = block
    return out


def _decode(block: Array, samples: Samples) -> Any:
    """Turn stored samples into numbers, on their device."""
    cupy = devices.cupy_module()
    stored = Fields(block, samples.stored, cupy) if samples.stored.names else block
    return samples.decode(stored, cupy)


def gpu_bytes(memory: Block, dtype: DType, samples: Samples | None) -> Array:
    """Bring bytes of this host onto the GPU of this process, as an array of one axis.

    Parameters
    ----------
    memory : numpy.ndarray of uint8
        A whole number of elements, one axis, dense; a map or any other memory.
    dtype : dtype
        Type of the elements, byte order included.
    samples : Samples or None
        Kind of the samples that they are, if they are to be decoded.

    Returns
    -------
    cupy.ndarray
        Ready on the current stream; a copy.
    """
    shape = (memory.nbytes // dtype.itemsize,)
    block = transfers.upload(memory.nbytes, partial(_fill_mapped, memory), shape, dtype, "C")
    return block if samples is None else _decode(block, samples)


def gpu_field(block: CuArray, dtype: DType, name: str) -> Array:
    """Take one field out of the bytes that `gpu_block` brought of structured elements.

    Parameters
    ----------
    block : cupy.ndarray of uint8
        The bytes of each element along the last axis.
    dtype : dtype
        The structured type that was stored.
    name : str
        A field of it.

    Returns
    -------
    cupy.ndarray
        A view where the device can read the field in place, see `forms.field`; else a copy.
    """
    return field(block, dtype, name, devices.cupy_module())


def gpu_way(source: Source, fd: int, region: Region, *, io: str) -> Way:
    """Find the way of a region onto the GPU of this process.

    Parameters
    ----------
    source : Source
        The file.
    fd : int
        The same file, open for reading.
    region : tuple of slice
        As ``source.layout.region`` makes it.
    io : {"auto", "pread", "direct", "mmap", "gds"}
        ``"auto"`` tries every way on the first large region.

    Returns
    -------
    Way
        One that can be taken, and the reason.
    """
    asked = routes.asked(io, "gpu")
    if asked is None:
        return _winner(source, fd, region)
    why = _refusal(source.layout[region], io)
    if why is None:
        return Way(io=io, readers=_READERS[io], reason=asked.reason)
    return Way(io="pread", readers=_READERS["pread"], reason=f"{asked.reason}, but {why}")


def _refusal(subarray: Subarray, io: str) -> str | None:
    """Say why a way cannot be taken; None if it can."""
    if io == "pread":
        return None
    if not subarray.contiguous:
        return "the region has gaps, which only pread gathers"
    return gds.refusal() if io == "gds" else None


def _winner(source: Source, fd: int, region: Region) -> Way:
    """Try every way on its own part of the region, so that none finds what another one read."""
    subarray = source.layout[region]
    ways = {n: w for n, w in _WAYS.items() if _refusal(subarray, w.io) is None}
    if subarray.nbytes < _TRIAL_NBYTES * len(ways):
        reason = "the region is too small to try every way"
        return Way(io="pread", readers=_READERS["pread"], reason=reason)
    resident = resident_fraction(fd, subarray.span)
    warm = resident is not None and resident >= routes.WARM_FRACTION
    attempts = {
        name: partial(_try, source.path, fd, subarray, way, number * _TRIAL_NBYTES)
        for number, (name, way) in enumerate(ways.items())
    }
    key = (mount_of(source.path).point, devices.place(), warm, subarray.contiguous)
    verdict = _trials.winner(key, attempts)
    way = ways[verdict.way]
    return Way(io=way.io, readers=way.readers, reason=f"{verdict.way} won here: {verdict.reason}")


def _try(path: str, fd: int, subarray: Subarray, way: Way, start: int) -> float:
    """Bring a few MB of the region onto the GPU, and say how long it took."""
    fill = _filling(fd, subarray, way)

    def part(first: int, memory: memoryview) -> None:
        fill(start + first, memory)

    direct = None
    if way.io == "gds":
        offset = subarray.span.offset + start
        direct = gds.plan_direct(path, offset, _TRIAL_NBYTES, PAGE)

    def bring(fill: Callable[[int, memoryview], None], direct: gds.DirectRead | None) -> CuArray:
        shape, dtype = (_TRIAL_NBYTES,), np.dtype("u1")
        return transfers.upload(
            _TRIAL_NBYTES, fill, shape, dtype, "C", readers=way.readers, direct=direct
        )

    bring(_fill_nothing, None)  # the first ring and the first memory take long, by any way
    return devices.seconds(lambda: bring(part, direct))


def _fill_nothing(_start: int, _memory: memoryview) -> None:
    """Leave a slot as it is."""


def _upload(
    path: str,
    fd: int,
    subarray: Subarray,
    way: Way,
    out: CuArray | None,
    edges: list[tuple[int, bytes]],
) -> CuArray:
    nbytes = subarray.nbytes
    direct = None
    if way.io == "gds":
        direct = gds.plan_direct(path, subarray.span.offset, nbytes, PAGE)
    fill = _filling(fd, subarray, way)
    if edges:
        fill = partial(_fill_mended, fill, edges)
    return transfers.upload(
        nbytes,
        fill,
        subarray.shape,
        subarray.dtype,
        subarray.order,
        out=out,
        readers=way.readers,
        direct=direct,
    )


def _filling(fd: int, subarray: Subarray, way: Way) -> Callable[[int, memoryview], None]:
    """Make the function that fills a slot with the dense stream of the region from a byte on."""
    if way.io == "direct":
        return partial(_fill_direct, fd, subarray.span.offset)
    if way.io == "mmap":
        return partial(_fill_mapped, map_region(fd, subarray).ravel("K").view(np.uint8))
    return partial(_fill_read, fd, subarray.runs)


def _fill_mended(
    fill: Callable[[int, memoryview], None],
    edges: list[tuple[int, bytes]],
    start: int,
    memory: memoryview,
) -> None:
    """Fill a slot, and lay over it what is done, but not in the file yet."""
    from mmchunks.writing.pages import patch

    fill(start, memory)
    patch(np.frombuffer(memory, np.uint8), start, edges)


def _fill_read(fd: int, runs: Runs, start: int, memory: memoryview) -> None:
    read_range(fd, runs, start, memory)


def _fill_direct(fd: int, offset: int, start: int, memory: memoryview) -> None:
    """Read bytes that have no gaps: an array of them, of which all is wanted."""
    layout = Layout(shape=(memory.nbytes,), dtype=np.dtype("u1"), offset=offset + start)
    out = np.frombuffer(memory, np.uint8)
    whole = layout[layout.whole]
    read_region(fd, whole, out, direct=True, threads=1, piece_nbytes=memory.nbytes)


def _fill_mapped(data: Block, start: int, memory: memoryview) -> None:
    np.frombuffer(memory, np.uint8)[:] = data[start : start + memory.nbytes]

"""How is a file to be cut? The one public entry to plans, the home of its defaults, and its arithmetic."""

from __future__ import annotations

import os
import reprlib
from typing import TYPE_CHECKING

from mmchunks.errors import PlanError
from mmchunks.files.layout import Layout
from mmchunks.files.sources import Fillable, Source, open_source
from mmchunks.planning.alignment import Alignment, align_grid, is_aligned
from mmchunks.planning.grammar import parse_align, parse_chunks, parse_halo, parse_nbytes
from mmchunks.planning.plans import GROWTH, Plan

if TYPE_CHECKING:
    from mmchunks.files.sources import File
    from mmchunks.planning.grammar import Align, Chunks, HaloLike

__all__ = ["plan", "plan_chunks", "plan_for", "wanted_nbytes"]


def plan(
    path_or_source: File | Layout,
    chunks: Chunks = "auto",
    *,
    align: Align = "auto",
    halo: HaloLike = None,
    writing: bool = False,
) -> Plan:
    """Cut a file into chunks, without reading its data.

    Parameters
    ----------
    path_or_source : str, os.PathLike, Source, Target or Layout
        A ``.npy`` file, or what describes one. A Target implies `writing`, and ``"auto"`` then
        means what it was created with.
    chunks : int, str, tuple, list, dict or None
        dask's whole grammar. A whole ``"auto"`` or ``"64 MiB"`` makes contiguous slabs along the
        slowest axis; ``"auto"`` aims at dask's setting ``array.chunk-size``.
    align : "auto", "page", int or None
        ``"auto"``: sizes that were spelled out are kept for reading; sizes chosen here, and all
        sizes for writing, fall on pages where they can. ``"page"`` or a number of bytes: make
        chunks coarser until they fall on those, at most 4 times. None: leave them.
    halo : None, int or dict
        What a chunk reads beyond what it owns: elements at both sides of axis 0, or
        ``{axis: n}``, or ``{axis: (before, after)}``.
    writing : bool
        Whether the chunks are to be written.

    Returns
    -------
    Plan
        A list of chunks in the order of the file, which takes no memory for them.

    Raises
    ------
    PlanError
        If the request does not fit the array; the sentence begins with the path.
    OSError, HeaderError
        If there is no such ``.npy`` file.

    Examples
    --------
    >>> import numpy as np
    >>> layout = Layout(shape=(10**6, 1000), dtype=np.dtype("f4"), offset=4096)
    >>> len(plan(layout)), plan(layout, 500).numblocks
    (30, (2000, 2))
    """
    source: Source | Layout
    if isinstance(path_or_source, Fillable):
        source, writing = path_or_source.source, True
        chunks = path_or_source.chunks if isinstance(chunks, str) and chunks == "auto" else chunks
    elif isinstance(path_or_source, Source | Layout):
        source = path_or_source
    else:
        source = open_source(path_or_source)
    return plan_for(
        source, chunks, align=align, halo=halo, writing=writing, target_nbytes=wanted_nbytes()
    )


def wanted_nbytes() -> int:
    """Read dask's setting ``array.chunk-size``, in bytes."""
    import dask.config
    from dask.utils import parse_bytes

    return int(parse_bytes(dask.config.get("array.chunk-size")))


def plan_for(
    source: Source | Layout,
    chunks: Chunks,
    *,
    align: Align,
    halo: HaloLike,
    writing: bool,
    target_nbytes: int,
) -> Plan:
    """Cut an opened file into chunks, of which those that are ours to choose have a known size.

    Parameters
    ----------
    source : Source or Layout
        What describes the file.
    chunks : object
        As in `plan`.
    align : str, int or None
        As in `plan`.
    halo : object
        As in `plan`.
    writing : bool
        Whether the chunks are to be written.
    target_nbytes : int
        Bytes of a chunk that ``"auto"`` aims at.

    Returns
    -------
    Plan
        As from `plan`.

    Raises
    ------
    PlanError
        If the request does not fit the array; the sentence begins with the path.
    """
    layout = source if isinstance(source, Layout) else source.layout
    try:
        return plan_chunks(
            layout,
            chunks,
            align=align,
            halo=halo,
            writing=writing,
            page=os.sysconf("SC_PAGE_SIZE"),
            target_nbytes=target_nbytes,
        )
    except PlanError as error:
        if isinstance(source, Layout):
            raise
        msg = f"{source.path}: {error}"
        raise PlanError(msg) from error


def plan_chunks(
    layout: Layout,
    chunks: Chunks,
    *,
    align: Align,
    halo: HaloLike,
    writing: bool,
    page: int,
    target_nbytes: int,
) -> Plan:
    """Cut `layout` into chunks.

    Parameters
    ----------
    layout : Layout
        The array to cut.
    chunks : int, str, tuple, list, dict, array or None
        dask's grammar. A whole ``"auto"`` or ``"64 MiB"`` makes contiguous slabs along the
        slowest axis, cutting the next one only where one row is larger than that.
    align : "auto", "page", int, str or None
        ``"auto"``: sizes that were spelled out are kept for reading; sizes chosen here, and all
        sizes for writing, fall on pages where they can. ``"page"`` or a number of bytes (or
        ``"2 MiB"``): make chunks coarser until they fall on those. None: leave them. Chunks grow
        to at most 4 times what was asked or `target_nbytes`, whichever is more; for reading by
        ``"auto"`` they do not grow.
    halo : None, int or dict
        What a chunk reads beyond what it owns: elements at both sides of axis 0, or
        ``{axis: n}``, or ``{axis: (before, after)}``.
    writing : bool
        Whether the chunks are to be written.
    page : int
        Bytes of a page, where `align` is not a number.
    target_nbytes : int
        Bytes of a chunk where ``"auto"`` does not say how many.

    Returns
    -------
    Plan
        Its first chunk may be shorter than the others, so that these fall on pages.

    Raises
    ------
    PlanError
        If `chunks`, `align` or `halo` cannot be understood or does not fit the shape.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(1000, 1000), dtype=np.dtype("f4"), offset=128)
    >>> plan = plan_chunks(
    ...     layout, "1 MiB", align="auto", halo=None, writing=False, page=4096, target_nbytes=2**27
    ... )
    >>> plan.chunks[0], plan.shared_pages
    ((172, 256, 256, 256, 60), 0)
    """
    chosen = isinstance(chunks, str)
    if isinstance(chunks, str) and chunks != "auto":
        target_nbytes = parse_nbytes(chunks)
    grid = parse_chunks(chunks, layout, target_nbytes=target_nbytes)
    page = parse_align(align, page) or page
    limit_nbytes = max(target_nbytes, grid.chunk_nbytes)
    if is_aligned(grid, page) or (align is not None and (chosen or writing or align != "auto")):
        grid, alignment = align_grid(
            grid,
            page=page,
            grow=not chosen,
            limit_nbytes=limit_nbytes * (GROWTH if writing or align != "auto" else 1),
        )
    else:
        why = (
            "align=None was asked for"
            if align is None
            else "sizes that were spelled out are kept for reading"
        )
        alignment = Alignment(outcome="kept as asked", reason=why)
    return Plan(
        grid=grid,
        halo=parse_halo(halo, layout.ndim),
        page=page,
        alignment=alignment,
        target_nbytes=target_nbytes,
        asked=reprlib.repr(chunks),
        chosen=chosen,
        start=0,
        stop=grid.count,
    )

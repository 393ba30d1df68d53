"""How is a file to be cut? The one public entry to plans, and the home of its defaults."""

from __future__ import annotations

import os
from typing import Any

from mmchunks.errors import PlanError
from mmchunks.layout import Layout
from mmchunks.plans import Plan, plan_chunks

__all__ = ["plan", "plan_for", "wanted_nbytes"]


def plan(
    path_or_source: Any,
    chunks: Any = "auto",
    *,
    align: str | int | None = "auto",
    halo: Any = None,
    writing: bool = False,
) -> Plan:
    """Cut a file into chunks, without reading its data.

    Parameters
    ----------
    path_or_source : str, os.PathLike, Source, Target or Layout
        A ``.npy`` file, or what describes one. A Target implies `writing`.
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
    source = _opened(path_or_source)
    writing = writing or hasattr(source, "flush")  # only a Target has anything to flush
    return plan_for(
        source, chunks, align=align, halo=halo, writing=writing, target_nbytes=wanted_nbytes()
    )


def wanted_nbytes() -> int:
    """Read dask's setting ``array.chunk-size``, in bytes."""
    import dask.config
    from dask.utils import parse_bytes

    return int(parse_bytes(dask.config.get("array.chunk-size")))


def plan_for(
    source: Any,
    chunks: Any,
    *,
    align: str | int | None,
    halo: Any,
    writing: bool,
    target_nbytes: int,
) -> Plan:
    """Cut an opened file into chunks, of which those that are ours to choose have a known size.

    Parameters
    ----------
    source : Source, Target or Layout
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


def _opened(path_or_source: Any) -> Any:
    """Open what is only a path."""
    if isinstance(path_or_source, Layout) or hasattr(path_or_source, "layout"):
        return path_or_source
    if not isinstance(path_or_source, str | os.PathLike):
        msg = (
            f"a {type(path_or_source).__name__} is no file; pass a path, or what open_npy, open_raw "
            "or open_target gives"
        )
        raise TypeError(msg)
    from mmchunks.files import MAX_HEADER_NBYTES, open_source

    return open_source(path_or_source, max_header_size=MAX_HEADER_NBYTES)

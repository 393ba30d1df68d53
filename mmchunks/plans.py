"""Which bytes does each process handle? A layout cut into chunks: pure arithmetic, no file.

    page      |.......|.......|.......|.......|.......|.......|
    file      |header|r0|r1|r2|r3|r4|r5|r6|r7|r8|r9|
    chunk 1               |<- region ->|
    it reads           |<- read_region -->|                      with a halo of one row
    part 0    |<- chunks 0 and 1 ----->|<- part 1 ...

Chunks are numbered as they lie in the file (the fastest axis counts fastest), so a run of numbers,
and with it every part, is one stretch of the file wherever chunks are contiguous.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import reprlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from mmchunks.alignment import Alignment, align_grid, is_aligned
from mmchunks.chunks import Chunk, promise
from mmchunks.chunkspec import parse_chunks, parse_nbytes
from mmchunks.errors import MMChunksError, PlanError
from mmchunks.explaining import sentences, typical_touch
from mmchunks.grids import Grid
from mmchunks.halospec import parse_halo
from mmchunks.jobarrays import as_part
from mmchunks.jsonforms import decode_cuts, decode_layout, encode_cuts, encode_layout
from mmchunks.pictures import figure
from mmchunks.sharing import shared_pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmchunks.layout import Layout

__all__ = ["Chunk", "Plan", "plan_chunks"]

# A chunk may grow this many times for the sake of pages: beyond that it is no longer what was
# asked for, and a worker that has memory for one has not for the other.
_GROWTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All chunks of a layout, or a stretch of them, in memory that does not grow with them.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.layout import Layout
    >>> layout = Layout(shape=(10**12, 4), dtype=np.dtype("f4"), offset=4096)
    >>> plan = plan_chunks(
    ...     layout, (1024, -1), align=None, halo=1, writing=False, page=4096, target_nbytes=2**27
    ... )
    >>> len(plan), plan[-1].index, plan[5].aligned
    (976562500, (976562499, 0), True)
    >>> plan.part(3, 1000)[0].read_region[0]
    slice(2999999487, 3000000513, None)
    """

    grid: Grid
    """The chunks of the whole file."""

    halo: tuple[tuple[int, int], ...]
    """What a chunk reads before and after what it owns, along each axis."""

    page: int
    """Bytes of the pages that boundaries are held against."""

    alignment: Alignment
    """Whether they fall on pages, and why."""

    target_nbytes: int
    """Bytes of a chunk that ``"auto"`` aimed at."""

    asked: str
    """What was written as ``chunks=``, shortened."""

    chosen: bool
    """Whether that left the sizes to us."""

    start: int
    """Number of the first chunk of this stretch."""

    stop: int
    """Number after the last one."""

    @property
    def layout(self) -> Layout:
        """The array that is cut."""
        return self.grid.layout

    @property
    def numblocks(self) -> tuple[int, ...]:
        """Chunks along each axis of the whole plan, as in dask."""
        return self.grid.numblocks

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        """Lengths of the chunks of the whole plan as dask's tuple of tuples, made when asked."""
        return tuple(cut.sizes() for cut in self.grid.cuts)

    @property
    def shared_pages(self) -> int:
        """Pages that hold bytes of more than one chunk of the whole plan, counted exactly."""
        return shared_pages(self.grid, self.page)

    def __len__(self) -> int:
        return self.stop - self.start

    def __iter__(self) -> Iterator[Chunk]:
        return map(self._chunk, range(self.start, self.stop))

    @overload
    def __getitem__(self, key: int) -> Chunk: ...
    @overload
    def __getitem__(self, key: slice) -> Plan: ...
    def __getitem__(self, key: int | slice) -> Chunk | Plan:
        found = range(self.start, self.stop)[key]
        if isinstance(found, int):
            return self._chunk(found)
        if found.step != 1:
            msg = f"a plan is one stretch of chunks, got {key!r}; write a slice without a step"
            raise PlanError(msg)
        return dataclasses.replace(self, start=found.start, stop=found.start + len(found))

    def part(self, i: int, n: int) -> Plan:
        """Give process `i` of `n` its share: a stretch of chunks, as long as any other but one.

        Parameters
        ----------
        i : int
            Number of the process, ``0 <= i < n``.
        n : int
            Number of processes; those beyond the number of chunks get empty shares.

        Returns
        -------
        Plan
            The shares of all processes are disjoint, and together they are this plan.

        Raises
        ------
        PlanError
            If there is no process `i` among `n`.
        """
        i, n = as_part((i, n))
        count = len(self)
        return self[count * i // n : count * (i + 1) // n]

    def explain(self) -> str:
        """Say why the plan is as it is and what to write instead, a line for each decision."""
        return "\n".join(
            sentences(
                self.grid,
                asked=self.asked,
                chosen=self.chosen,
                target_nbytes=self.target_nbytes,
                alignment=self.alignment,
                page=self.page,
                halo=self.halo,
                limit_nbytes=_GROWTH * max(self.target_nbytes, self.grid.chunk_nbytes),
            )
        )

    def to_json(self) -> str:
        """Write the plan as one line of JSON; only chunks that the user listed are listed."""
        form = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name not in {"grid", "alignment"}
        }
        form["layout"] = encode_layout(self.layout)
        form["cuts"] = [encode_cuts(cut) for cut in self.grid.cuts]
        form["alignment"] = dataclasses.asdict(self.alignment)
        return json.dumps(form)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote.

        Parameters
        ----------
        text : str
            One plan.

        Returns
        -------
        Plan
            Equal to the one that was written.

        Raises
        ------
        PlanError
            If `text` is something else.
        """
        try:
            form = json.loads(text)
            cuts = tuple(decode_cuts(cut) for cut in form.pop("cuts"))
            return cls(
                grid=Grid(layout=decode_layout(form.pop("layout")), cuts=cuts),
                halo=tuple((before, after) for before, after in form.pop("halo")),
                alignment=Alignment(**form.pop("alignment")),
                **form,
            )
        except (ValueError, TypeError, KeyError, AttributeError, MMChunksError) as error:
            msg = f"not a plan: {error!r}; pass what Plan.to_json wrote"
            raise PlanError(msg) from error

    def __repr__(self) -> str:
        return (
            f"<Plan: {len(self):,} of {self.grid.count:,} chunks, each up to {self.grid.largest} "
            f"{self.layout.dtype}, {self.grid.chunk_nbytes:,} bytes, {self.alignment.outcome}>"
        )

    def _repr_html_(self) -> str:
        owned, touched = typical_touch(self.grid, self.page)
        facts = {
            "shape": f"{self.layout.shape} {self.layout.dtype}, {self.layout.order} order",
            "bytes": f"{self.layout.nbytes:,} from byte {self.layout.offset:,}",
            "chunks": f"up to {self.grid.largest}, {self.numblocks} of them along the axes",
            "count": f"{self.grid.count:,}, numbers {self.start:,} to {self.stop:,} in this plan",
            "bytes a chunk": f"{owned:,} owned, {touched:,} in the pages it touches",
            "alignment": f"{self.alignment.outcome}: {self.alignment.reason}",
            "shared pages": f"{self.shared_pages:,} of {self.page:,} bytes",
        }
        return figure(self.grid, page=self.page, facts=facts.items())

    def _chunk(self, number: int) -> Chunk:
        """Make chunk `number` of the whole plan."""
        return promise(self.grid, number, halo=self.halo, page=self.page)


def plan_chunks(
    layout: Layout,
    chunks: Any,
    *,
    align: str | int | None,
    halo: Any,
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
    >>> from mmchunks.layout import Layout
    >>> layout = Layout(shape=(1000, 1000), dtype=np.dtype("f4"), offset=128)
    >>> plan = plan_chunks(
    ...     layout, "1 MiB", align="auto", halo=None, writing=False, page=4096, target_nbytes=2**27
    ... )
    >>> plan.chunks[0], plan.shared_pages
    ((172, 256, 256, 256, 60), 0)
    """
    chosen = isinstance(chunks, str)
    if chosen and chunks != "auto":
        target_nbytes = parse_nbytes(chunks)
    grid = parse_chunks(chunks, layout, target_nbytes=target_nbytes)
    page = _page(align, page)
    limit_nbytes = max(target_nbytes, grid.chunk_nbytes)
    if is_aligned(grid, page) or (align is not None and (chosen or writing or align != "auto")):
        grid, alignment = align_grid(
            grid,
            page=page,
            grow=not chosen,
            limit_nbytes=limit_nbytes * (_GROWTH if writing or align != "auto" else 1),
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


def _page(align: str | int | None, page: int) -> int:
    """Give the bytes of the pages that `align` means."""
    if align is None or align in {"auto", "page"}:
        return page
    found = parse_nbytes(align) if isinstance(align, str) else align
    if not hasattr(found, "__index__") or found < 1:
        msg = (
            f'align must be a whole number of bytes, got {align!r}; write "page", 65536 or "2 MiB"'
        )
        raise PlanError(msg)
    return operator.index(found)

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
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from mmchunks.errors import MMChunksError, PlanError
from mmchunks.planning.alignment import Alignment
from mmchunks.planning.explaining import sentences, typical_touch
from mmchunks.planning.grids import Grid
from mmchunks.planning.jobarrays import as_part
from mmchunks.planning.jsonforms import decode_cuts, decode_layout, encode_cuts, encode_layout
from mmchunks.planning.pagecounts import runs_on_pages, shared_pages
from mmchunks.planning.pictures import figure

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmchunks.files.layout import Layout, Region
    from mmchunks.planning.grammar import Halo

__all__ = ["GROWTH", "Chunk", "Plan", "promise"]

# A chunk may grow this many times for the sake of pages: beyond that it is no longer what was
# asked for, and a worker that has memory for one has not for the other.
GROWTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All chunks of a layout, or a stretch of them, in memory that does not grow with them.

    Attributes
    ----------
    grid : Grid
        The chunks of the whole file.
    halo : tuple[tuple[int, int], ...]
        What a chunk reads before and after what it owns, along each axis.
    page : int
        Bytes of the pages that boundaries are held against.
    alignment : Alignment
        Whether they fall on pages, and why.
    target_nbytes : int
        Bytes of a chunk that ``"auto"`` aimed at.
    asked : str
        What was written as ``chunks=``, shortened.
    chosen : bool
        Whether that left the sizes to us.
    start : int
        Number of the first chunk of this stretch.
    stop : int
        Number after the last one.

    Examples
    --------
    >>> import mmchunks as mm
    >>> import numpy as np
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(10**12, 4), dtype=np.dtype("f4"), offset=4096)
    >>> plan = mm.plan(layout, (1024, -1), align=None, halo=1)
    >>> len(plan), plan[-1].index, plan[5].aligned
    (976562500, (976562499, 0), True)
    >>> plan.part(3, 1000)[0].read_region[0]
    slice(2999999487, 3000000513, None)
    """

    grid: Grid
    halo: tuple[tuple[int, int], ...]
    page: int
    alignment: Alignment
    target_nbytes: int
    asked: str
    chosen: bool
    start: int
    stop: int

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

    def part(self, i: int | str | tuple[int, int], n: int | None = None) -> Plan:
        """Give process `i` of `n` its share: a stretch of chunks, as long as any other but one.

        Parameters
        ----------
        i : int, (int, int) or str
            Number of the process, ``0 <= i < n``; or both numbers; or ``"auto"``: what the job
            array says that runs this process (``"auto/1-100"`` where it does not say all).
        n : int, optional
            Number of processes; those beyond the number of chunks get empty shares.

        Returns
        -------
        Plan
            The shares of all processes are disjoint, and together they are this plan.

        Raises
        ------
        PlanError
            If there is no process `i` among `n`, or no job array runs this.
        """
        i, n = as_part(i if n is None else (i, n))  # type: ignore[arg-type]
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
                limit_nbytes=GROWTH * max(self.target_nbytes, self.grid.chunk_nbytes),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A promise about a region: who handles it reads and writes these bytes, and no others.

    Attributes
    ----------
    index : tuple[int, ...]
        Block index in the dask array of the whole plan.
    region : Region
        The elements it owns.
    read_region : Region
        The elements it reads: `region` and the halo, clipped to the array.
    offset : int
        Byte of its first owned element, counted from the start of the file.
    nbytes : int
        Bytes from there to the end of its last owned element, gaps included.
    contiguous : bool
        Whether there are no gaps: all those bytes are its own.
    aligned : bool
        Whether no page that holds bytes of it holds bytes of another chunk.
    """

    index: tuple[int, ...]
    region: Region
    read_region: Region
    offset: int
    nbytes: int
    contiguous: bool
    aligned: bool


def promise(grid: Grid, number: int, *, halo: Halo, page: int) -> Chunk:
    """Make chunk `number` of `grid`, counted in the order of the file.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.planning.cuts import even
    >>> from mmchunks.planning.grids import Grid
    >>> from mmchunks.files.layout import Layout
    >>> grid = Grid(layout=Layout(shape=(9,), dtype=np.dtype("f8")), cuts=(even(9, 4),))
    >>> chunk = promise(grid, 2, halo=((3, 3),), page=4096)
    >>> chunk.region, chunk.read_region, chunk.offset, chunk.nbytes, chunk.aligned
    ((slice(8, 9, None),), (slice(5, 9, None),), 64, 8, False)
    """
    layout = grid.layout
    index = grid.index(number)
    region = grid.region(index)
    span = layout[region].span
    return Chunk(
        index=index,
        region=region,
        read_region=tuple(
            slice(max(0, part.start - before), min(length, part.stop + after))
            for part, (before, after), length in zip(region, halo, layout.shape, strict=True)
        ),
        offset=min(span.offset, layout.stop),  # where nothing is owned, any place will do
        nbytes=span.nbytes,
        contiguous=layout[region].contiguous,
        aligned=runs_on_pages(layout, layout[region].runs, page),
    )

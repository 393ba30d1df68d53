"""What does a plan look like? One bar of bytes as SVG, and a table, for a notebook.

header chunk 0       chunk 1       chunk 2
|##|==============|--------------|==============| ...
|      |      |      |      |      |      |          pages, where they are wide enough to see
"""

from __future__ import annotations

import html
import itertools
from typing import TYPE_CHECKING

from mmchunks.files.layout import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mmchunks.planning.grids import Grid

__all__ = ["figure", "pieces"]

_WIDTH = 640
_COLOURS = ("#4c78a8", "#9ecae9", "#f58518", "#ffbf79")
_MOST = 12


def figure(grid: Grid, *, page: int, facts: Iterable[tuple[str, str]]) -> str:
    """Draw the first chunks of `grid` in their file, above a table of `facts`.

    Parameters
    ----------
    grid : Grid
        The chunks. However many they are, a dozen pieces are drawn.
    page : int
        Bytes of a page.
    facts : iterable of (str, str)
        Names and values of the table, as plain text.

    Returns
    -------
    str
        HTML with an inline SVG, valid XML too.
    """
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(value)}</td></tr>'
        for name, value in facts
    )
    return f"<div>{_bar(grid, page)}<table>{rows}</table></div>"


def pieces(grid: Grid) -> Iterator[tuple[Span, int]]:
    """Walk through the file: each stretch of bytes with one owner, and the owner's number.

    Examples
    --------
    >>> import numpy as np
    >>> from mmchunks.planning.cuts import even
    >>> from mmchunks.planning.grids import Grid
    >>> from mmchunks.files.layout import Layout
    >>> layout = Layout(shape=(2, 3), dtype=np.dtype("u1"))
    >>> [owner for _, owner in pieces(Grid(layout=layout, cuts=(even(2, 2), even(3, 2))))]
    [0, 1, 0, 1]
    """
    layout, axis = grid.layout, grid.cut_axis
    index = [cut.find(0) for cut in grid.cuts]
    if axis is None:
        if layout.nbytes:
            yield Span(offset=layout.offset, nbytes=layout.nbytes), grid.number(tuple(index))
        return
    stride, cuts = layout.strides[axis], grid.cuts[axis]
    slower = layout.axes[: layout.axes.index(axis)]
    for row in range(grid.rows(axis)):
        rest = row
        for other in reversed(slower):
            rest, place = divmod(rest, layout.shape[other])
            index[other] = grid.cuts[other].find(place)
        start = layout.offset + row * stride * cuts.length
        for number in range(len(cuts)):
            piece = cuts.piece(number)
            index[axis] = number
            if piece.start < piece.stop:
                nbytes = (piece.stop - piece.start) * stride
                yield (
                    Span(offset=start + piece.start * stride, nbytes=nbytes),
                    grid.number(tuple(index)),
                )


def _bar(grid: Grid, page: int) -> str:
    """Draw header, pieces and pages to scale, as far as they fit."""
    found = list(itertools.islice(pieces(grid), _MOST + 1))
    drawn = found[:_MOST]
    stop = drawn[-1][0].stop if drawn else max(grid.layout.offset, 1)
    scale = _WIDTH / stop
    parts = [_box(Span(offset=0, nbytes=grid.layout.offset), scale, "#888888", "header", "")]
    parts += [
        _box(span, scale, _COLOURS[number % len(_COLOURS)], f"chunk {number}", str(number))
        for span, number in drawn
    ]
    if page * scale >= 4:
        parts += [
            f'<line x1="{at * scale:.2f}" x2="{at * scale:.2f}" y1="34" y2="42" '
            'stroke="currentColor" stroke-width="1"/>'
            for at in range(0, stop + 1, page)
        ]
    if len(found) > len(drawn):
        parts.append(f'<text x="{_WIDTH + 6}" y="24" fill="currentColor">…</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 30}" height="46" '
        f'font-family="sans-serif" font-size="11">{"".join(parts)}</svg>'
    )


def _box(span: Span, scale: float, colour: str, name: str, label: str) -> str:
    """Draw one stretch of bytes, labelled where there is room, named when pointed at."""
    if not span.nbytes:
        return ""
    left, width = span.offset * scale, max(span.nbytes * scale, 0.5)
    text = (
        f'<text x="{left + width / 2:.2f}" y="24" text-anchor="middle">{label}</text>'
        if width > 8 * len(label)
        else ""
    )
    return (
        f'<g><title>{name}: bytes {span.offset:,} to {span.stop:,}</title><rect x="{left:.2f}" '
        f'y="8" width="{width:.2f}" height="24" fill="{colour}"/>{text}</g>'
    )

"""How many rows are computed, written and journalled at once, and which are whose? Arithmetic only.

A *unit* is the range of rows that a process that dies can lose. Small ones cost a flush and a
line each, large ones cost memory and, when a worker dies, time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmchunks.planning.ranges import Rows

__all__ = ["choose_unit_rows", "granule", "share"]


def granule(row_nbytes: int, page: int) -> int:
    """Count the rows after which a row starts on a page again, in data that starts on one.

    Examples
    --------
    >>> granule(4000, 4096), granule(8192, 4096)
    (128, 1)
    """
    return page // math.gcd(row_nbytes, page)


def share(rows: int, part: tuple[int, int]) -> Rows:
    """Give part ``i`` of ``n`` its fair, contiguous rows.

    Parameters
    ----------
    rows : int
        Rows of the whole.
    part : (int, int)
        ``(i, n)``, counted from 0.

    Returns
    -------
    (int, int)
        First row, and the row after the last. Shares are not quite equal, because they
        begin at multiples of a power of two: so do pages, whatever a row's size turns out to be.

    Examples
    --------
    >>> [share(1000, (i, 3)) for i in range(3)]
    [(0, 320), (320, 672), (672, 1000)]
    """
    index, parts = part
    align = min(4096, 1 << max(0, (rows // (8 * parts)).bit_length() - 1))
    blocks = -(-rows // align)
    start, stop = (min(rows, blocks * i // parts * align) for i in (index, index + 1))
    return start, stop


def choose_unit_rows(
    *,
    rows: int,
    row_nbytes: int,
    row_seconds: float,
    seconds: tuple[float, float],
    nbytes: int,
    page: int,
) -> int:
    """Choose how many rows make a unit.

    Parameters
    ----------
    rows : int
        Rows of the whole.
    row_nbytes : int
        Bytes of one row.
    row_seconds : float
        What one row takes to compute.
    seconds : (float, float)
        Least and most that a unit should take. Between them a unit is a thousandth of the whole:
        many enough for many workers, few enough not to be felt.
    nbytes : int
        Most bytes of a unit, which its worker holds in memory.
    page : int
        Units are whole pages of this many bytes, where that many rows are within the limits.

    Returns
    -------
    int
        At least 1: a single row may be over the limits.

    Examples
    --------
    >>> limits = {"seconds": (0.5, 20.0), "nbytes": 2**26, "page": 4096}
    >>> choose_unit_rows(rows=100_000, row_nbytes=48, row_seconds=1e-5, **limits)
    49920
    >>> choose_unit_rows(rows=100_000, row_nbytes=48, row_seconds=3600, **limits)
    1
    """
    least, most = seconds
    aim = min(most, max(least, rows * row_seconds / 1000))
    fitting = min(rows, nbytes // max(row_nbytes, 1), aim / max(row_seconds, 1e-9))
    step = granule(row_nbytes, page)
    return max(1, int(fitting // step * step if fitting >= step else fitting))

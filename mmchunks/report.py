"""What does a person want to know of a file? Facts, and how they are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmchunks import mounts, pagecache
from mmchunks.layout import Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mmchunks.files import Source

__all__ = ["facts", "lines", "quantity"]


def facts(source: Source) -> dict[str, Any]:
    """Collect what the header, the file system and the page cache say of a file."""
    layout = source.layout
    mount = mounts.mount_of(source.path)
    with source.opened() as fd:
        resident = pagecache.resident_fraction(fd, Span(offset=layout.offset, nbytes=layout.nbytes))
    return {
        "path": source.path,
        "shape": list(layout.shape),
        "dtype": str(source.dtype),
        "samples": source.samples and source.samples.name,
        "order": layout.order,
        "offset": layout.offset,
        "nbytes": layout.nbytes,
        "trailing_nbytes": source.trailing_nbytes,
        "filesystem": mount.kind,
        "local": mount.local,
        "resident": resident,
    }


def lines(facts: Mapping[str, Any]) -> str:
    """Lay facts out for reading, one a line."""
    shown = {
        "path": facts["path"],
        "shape": " x ".join(f"{n:,}" for n in facts["shape"]) or "one element (0-d)",
        "dtype": facts["dtype"],
        "stored as": facts["samples"],
        "order": {"C": "C (last axis contiguous)", "F": "F (first axis contiguous)"}[
            facts["order"]
        ],
        "data": f"{quantity(facts['nbytes'])} from byte {facts['offset']:,}",
        "after it": facts["trailing_nbytes"] and f"{quantity(facts['trailing_nbytes'])} not read",
        "on": f"{facts['filesystem']}, {'local' if facts['local'] else 'shared or unknown'}",
        "in memory": facts["resident"] is not None and f"{facts['resident']:.0%} of it is cached",
    }
    return "\n".join(f"{name:>10}  {value}" for name, value in shown.items() if value)


def quantity(nbytes: float) -> str:
    """Write a number of bytes as people do.

    Examples
    --------
    >>> quantity(512), quantity(3 * 2**30)
    ('512 B', '3.00 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if nbytes < 1024 or unit == "TiB":
            break
        nbytes /= 1024
    return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.2f} {unit}"

"""What does a person want to know of a file? Facts, and how they are shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mmchunks.files import mounts
from mmchunks.files.layout import Span
from mmchunks.reading import pagecache

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mmchunks.files.sources import Source
    from mmchunks.filling.checking import Status, VerifyReport
    from mmchunks.filling.sweeping import SweepReport
    from mmchunks.planning.plans import Plan

__all__ = [
    "demo_line",
    "facts",
    "lines",
    "plan_facts",
    "quantity",
    "rate_lines",
    "status_facts",
    "status_lines",
    "sweep_line",
    "verify_line",
]


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


def plan_facts(plan: Plan, way: str | None) -> dict[str, Any]:
    """Collect what a plan decided, for programs; ``Plan.from_json`` takes the part "plan"."""
    return {
        "plan": json.loads(plan.to_json()),
        "chunks": len(plan),
        "numblocks": list(plan.numblocks),
        "chunk_shape": list(plan.layout[plan[0].region].shape) if len(plan) else None,
        "alignment": plan.alignment.outcome,
        "reason": plan.alignment.reason,
        "shared_pages": plan.shared_pages,
        "io": way,
    }


def sweep_line(done: SweepReport) -> str:
    """Say what a sweep did."""
    return f"{done} (mmchunks status tells why)" if done.failed else str(done)


def status_facts(status: Status) -> dict[str, Any]:
    """Collect how much of a file is done, for programs."""
    return {
        "path": status.path,
        "unit": status.unit,
        "total": status.total,
        "done": status.done,
        "failed": status.failed,
        "missing": status.missing,
        "fraction": status.fraction,
        "rate": status.rate,
        "hosts": list(status.hosts),
        "left": [list(rows) for rows in status.left],
        "failures": status.failures,
    }


def status_lines(status: Status) -> str:
    """Say how much of a file is done, draw where, and name what failed."""
    facts = [str(status), f"  [{_map(status)}]", f"  by {', '.join(status.hosts) or 'nobody yet'}"]
    if status.rate:
        facts[-1] += f", {status.rate:,.3g} {status.unit} a second"
    shown = sorted(status.failures)[:5]
    facts += [f"  {row}: {status.scenario(row)!r}: {status.failures[row]}" for row in shown]
    if len(status.failures) > len(shown):
        facts.append(f"  and {len(status.failures) - len(shown):,} more failed")
    return "\n".join(facts)


def _map(status: Status, *, cells: int = 60) -> str:
    """Draw the file as a line: done, partly done, or not."""
    cells = max(min(cells, status.total), 1)
    left = [0.0] * cells
    for start, stop in status.left:
        first, last = start * cells // status.total, (stop - 1) * cells // status.total
        for cell in range(first, last + 1):
            begin, end = cell * status.total / cells, (cell + 1) * status.total / cells
            left[cell] += (min(stop, end) - max(start, begin)) / (end - begin)
    return "".join("#" if part < 1e-9 else "." if part > 1 - 1e-9 else "+" for part in left)


def verify_line(found: VerifyReport) -> str:
    """Say whether what is done still holds what was written."""
    if found.ok:
        return str(found)
    remedy = (
        "run the same work again to compute them"
        if found.forgotten
        else "with --forget the next run computes them again"
    )
    return f"{found}; {remedy}"


def rate_lines(rates: Mapping[str, Mapping[str, float]]) -> str:
    """Lay the speeds of several ways of reading out, the fastest of each state marked."""
    best = {state: max(rate[state] for rate in rates.values()) for state in ("cold", "warm")}
    rows = [f"{'io':8s} {'cold GB/s':>10s} {'warm GB/s':>10s}"]
    for way, rate in rates.items():
        cells = (
            f"{rate[state]:9.2f}{'*' if rate[state] == best[state] else ' '}" for state in best
        )
        rows.append(f"{way:8s} {' '.join(cells)}")
    return "\n".join([*rows, "* the fastest; auto chooses one of the others before each read"])


def demo_line(measured: Mapping[str, Any]) -> str:
    """Sum the demonstration up."""
    return (
        f"{measured['scenarios']:,} scenarios, {measured['resumed']:,} of them done before the "
        f"kill and not computed again; {quantity(measured['nbytes'])} read and averaged at "
        f"{measured['gb_per_s']:.2f} GB/s; peak memory of a worker "
        f"{quantity(measured['peak_nbytes'])}"
    )

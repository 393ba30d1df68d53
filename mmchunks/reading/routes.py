"""By which way should a region come into memory? A pure decision, from what was seen.

                               asked for ---------------------> that way
auto:  several hosts ----------------------------------------> pread
       in the page cache ------------------------------------> mmap
       cold, read ahead far by the kernel, without gaps ------> mmap
       cold otherwise ---------------------------------------> warm, then mmap
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mmchunks.errors import DeviceError, PlanError

__all__ = ["WARM_FRACTION", "Facts", "Route", "asked", "choose"]

Io: TypeAlias = Literal["mmap", "pread", "direct", "gds"]

WARM_FRACTION = 0.95
"""From which part in the page cache on a region counts as warm."""

# Measured cold. 64 MiB blocks: with 8 MiB of readahead a bare map ran at the pace of the fastest
# read, and warming at 0.87 of it; with the usual 128 KiB a bare map ran at 0.72 of warming.
# A thousand single rows of 4 KiB, with 8 MiB of readahead: a bare map took ten times as long,
# because the kernel reads those 8 MiB around every touch.
_FAR_NBYTES = 2 << 20
_READAHEADS = 4
# Pieces of 4 KiB in spans of 64 to 256 MiB: a map that is read ahead won until 15 of 16 bytes
# were gaps, and lost when 63 of 64 were.
_SPARSE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was seen of a region before it is read."""

    kind: str
    """Type of the file system."""

    local: bool
    """Whether this host alone writes to it."""

    readahead_nbytes: int | None
    """How far the kernel reads ahead there; None if unknown."""

    resident: float | None
    """Part of the region's span that is in the page cache; None if unknown."""

    span_nbytes: int
    """Bytes from the region's first element to its last."""

    nbytes: int
    """Bytes of the region, gaps not counted."""

    memory_nbytes: int
    """Memory of this host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A way to read, and why it was chosen."""

    io: Io
    """``"mmap"``, ``"pread"``, ``"direct"`` or ``"gds"``."""

    warm: bool = False
    """Whether to pull the region into the page cache before it is mapped."""

    reason: str
    """One sentence."""


def asked(io: str, device: str) -> Route | None:
    """Take what the user asked for.

    Parameters
    ----------
    io : str
        ``"mmap"``, ``"pread"``, ``"direct"``, ``"gds"`` or ``"auto"``.
    device : {"cpu", "gpu"}
        Where the block goes.

    Returns
    -------
    Route or None
        None for ``"auto"``: look, then `choose`.

    Raises
    ------
    PlanError
        If there is no such way.
    DeviceError
        If it does not lead to `device`.

    Examples
    --------
    >>> asked("pread", "cpu").reason
    'io="pread" was asked for'
    """
    if io == "auto":
        return None
    if io not in {"mmap", "pread", "direct", "gds"}:
        msg = f'io must be "auto", "mmap", "pread", "direct" or "gds", got {io!r}'
        raise PlanError(msg)
    if io == "gds" and device != "gpu":
        msg = f'io="gds" leads to a GPU, and the device is {device!r}; write io="direct" or "auto"'
        raise DeviceError(msg)
    return Route(io=io, reason=f'io="{io}" was asked for')  # type: ignore[arg-type]


def choose(facts: Facts) -> Route:
    """Choose the way of a region into the memory of the host.

    Parameters
    ----------
    facts : Facts
        What was seen.

    Returns
    -------
    Route
        Never one that is much slower than the best.
    """
    if not facts.nbytes:
        return Route(io="mmap", reason="the region is empty")
    if not facts.local:
        return Route(
            io="pread",
            reason=(
                f"{facts.kind} may be written by other hosts, whose changes a map does not see, and "
                "whose truncation it does not survive"
            ),
        )
    if facts.resident is not None and facts.resident >= WARM_FRACTION:
        return Route(
            io="mmap",
            reason=f"{facts.resident:.0%} is in the page cache, so that a map copies nothing",
        )
    found = "unknown" if facts.resident is None else f"{facts.resident:.0%}"
    cold = f"part of it in the page cache: {found}"
    ahead = facts.readahead_nbytes or 0
    large = facts.span_nbytes >= _READAHEADS * ahead
    dense = facts.span_nbytes <= _SPARSE * facts.nbytes
    if ahead >= _FAR_NBYTES and large and dense:
        return Route(
            io="mmap", reason=f"{cold}; the kernel reads {ahead:,} bytes ahead of a map by itself"
        )
    if facts.nbytes > facts.memory_nbytes // 2:
        return Route(io="mmap", reason=f"{cold}; the page cache would not hold it if it were read")
    return Route(
        io="mmap", warm=True, reason=f"{cold}; a bare map would wait for the disk at every step"
    )

"""Can a file go straight into a device's memory? GPUDirect Storage, by kvikio.

file     |....|page|page|page|..|
region      |###############|         any bytes
by GDS          |---------|           its whole pages, disk to device
by ring     |##|           |#|        its edges
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mmchunks.errors import DeviceError

if TYPE_CHECKING:
    from mmchunks.gpu.cupytypes import CuArray

__all__ = ["DirectRead", "plan_direct", "refusal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectRead:
    """The part of a contiguous region that GPUDirect reads."""

    path: str
    """File to read."""

    offset: int
    """First byte of that part in the file; a multiple of the page."""

    start: int
    """First byte of that part in the region."""

    stop: int
    """The byte after its last one in the region."""

    def read(self, data: CuArray) -> None:
        """Read the part into a device array of ``stop - start`` uint8; done on return.

        Raises
        ------
        DeviceError
            If fewer bytes came than the file was to hold.
        """
        import kvikio

        with kvikio.CuFile(self.path, "r") as file:
            got = file.pread(data, self.stop - self.start, self.offset).get()
        if got != self.stop - self.start:
            msg = f"{self.path}: {self.stop - self.start:,} bytes were asked for, {got:,} came"
            raise DeviceError(msg)


def plan_direct(path: str, offset: int, nbytes: int, page: int) -> DirectRead | None:
    """Cut the edges off a contiguous region that starts at byte `offset` of the file.

    Returns
    -------
    DirectRead or None
        The whole pages of the region, if it holds any.

    Examples
    --------
    >>> direct = plan_direct("x.npy", 5000, 10_000, 4096)
    >>> direct.offset, direct.start, direct.stop
    (8192, 3192, 7288)
    """
    start = -offset % page
    stop = (offset + nbytes) // page * page - offset
    if stop <= start:
        return None
    return DirectRead(path=path, offset=offset + start, start=start, stop=stop)


def refusal() -> str | None:
    """Say why GPUDirect Storage cannot be used here; None if it can.

    Notes
    -----
    In compatibility mode kvikio reads through its own slots; that is the ring once more, and no
    reason to prefer it.
    """
    try:
        import kvikio.cufile_driver
        import kvikio.defaults
    except ImportError:
        return "kvikio is not installed; install mmchunks[cuda13] or mmchunks[cuda12]"
    try:
        if kvikio.defaults.is_compat_mode_preferred():
            return "kvikio runs in compatibility mode, without GPUDirect"
        if not kvikio.cufile_driver.get("is_gds_available"):
            return "cuFile finds no GPUDirect Storage (is nvidia-fs loaded?)"
    except (RuntimeError, AttributeError) as error:
        return f"cuFile does not answer ({error})"
    return None

"""Does a task fit on its device? Bytes in flight, term by term, before anything runs.

    device bytes of a task   |ring|halo|chunk ...........|result ....|
    of all tasks at once     |ring|halo|chunk ...........|result ....|halo|chunk .....

The tasks of a process share one ring, and every other term is theirs alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from mmchunks.errors import DeviceError

__all__ = ["DeviceBytes", "fitting_nbytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBytes:
    """Device memory that the tasks of one process hold at once.

    Examples
    --------
    >>> need = DeviceBytes(chunk=100, halo=20, result=10, ring=50, tasks=2)
    >>> need.total
    310
    >>> need.check(1000)
    >>> need.check(300)
    Traceback (most recent call last):
      ...
    mmchunks.errors.DeviceError: 2 tasks at once take 310 bytes of device memory ...
    """

    chunk: int
    """Bytes of the elements that a task owns."""

    halo: int
    """Bytes that it reads beyond them."""

    result: int
    """Bytes of the block that it returns."""

    ring: int
    """Bytes that the copies of a process take on the device, whatever the chunk."""

    tasks: int = 1
    """Tasks that one process runs at once."""

    @property
    def total(self) -> int:
        """All terms together, in bytes."""
        return self.ring + self.tasks * (self.chunk + self.halo + self.result)

    def check(self, budget: int) -> None:
        """Refuse what does not fit into `budget` bytes.

        Raises
        ------
        DeviceError
            With every term, and the numbers to change.
        """
        if self.total <= budget:
            return
        msg = (
            f"{self.tasks} tasks at once take {self.total:,} bytes of device memory "
            f"(each a chunk of {self.chunk:,}, a halo of {self.halo:,} and a result of "
            f"{self.result:,}, together a ring of {self.ring:,}), and {budget:,} are there; "
            "pass smaller chunks=, or fewer threads per worker"
        )
        raise DeviceError(msg)


def fitting_nbytes(
    wanted: int, *, least: int, stored: int, beside: int, ring: int, tasks: int, budget: int
) -> int:
    """Choose how many bytes of a file a chunk may own on a device.

    Parameters
    ----------
    wanted : int
        Bytes that a chunk would have if memory were no question.
    least : int
        Bytes below which a chunk is not worth a task.
    stored : int
        Bytes of one element in the file.
    beside : int
        Bytes that are made of each element, beside the chunk.
    ring : int
        Bytes that the copies take on the device.
    tasks : int
        Tasks that one process runs at once.
    budget : int
        Bytes of device memory that there are.

    Returns
    -------
    int
        `wanted`, or as many as fit, but `least` at least: `DeviceBytes.check` refuses those.

    Examples
    --------
    >>> fitting_nbytes(900, least=60, stored=4, beside=8, ring=64, tasks=2, budget=664)
    100
    """
    elements = (budget - ring) // tasks // max(stored + beside, 1)
    return min(wanted, max(elements * stored, least))

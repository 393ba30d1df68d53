"""Arrays that are larger than memory and live in one ordinary file.

Read one huge ``.npy`` or raw binary file from many processes and GPUs, fill one from many
processes at once without losing a byte, and aggregate it with sliding windows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmchunks.errors import (
        DeviceError,
        HeaderError,
        JournalError,
        LayoutError,
        MMChunksError,
        PlanError,
        StaleFileError,
        SweepError,
    )
    from mmchunks.files.sources import Source
    from mmchunks.filling.checking import Status, VerifyReport, status, verify
    from mmchunks.filling.storing import to_npy
    from mmchunks.filling.sweeping import SweepReport, sweep
    from mmchunks.gpu.workers import local_client
    from mmchunks.planning.making import plan
    from mmchunks.planning.plans import Chunk, Plan
    from mmchunks.reading.lazy import from_npy, from_raw
    from mmchunks.reading.loading import load, load_raw, to_device
    from mmchunks.reading.opening import open_npy, open_raw
    from mmchunks.reading.stacks import from_npy_stack
    from mmchunks.sliding.arrays import sliding_window
    from mmchunks.writing.targets import Target, create_npy, open_target

__version__ = "0.1.0"

# Names are handed on when they are asked for, so that importing mmchunks costs no more than
# importing NumPy does, and the command line answers at once.
_HOMES = {
    "errors": [
        "DeviceError",
        "HeaderError",
        "JournalError",
        "LayoutError",
        "MMChunksError",
        "PlanError",
        "StaleFileError",
        "SweepError",
    ],
    "files.sources": ["Source"],
    "filling.checking": ["Status", "VerifyReport", "status", "verify"],
    "filling.storing": ["to_npy"],
    "filling.sweeping": ["SweepReport", "sweep"],
    "gpu.workers": ["local_client"],
    "planning.making": ["plan"],
    "planning.plans": ["Chunk", "Plan"],
    "reading.lazy": ["from_npy", "from_raw"],
    "reading.loading": ["load", "load_raw", "to_device"],
    "reading.opening": ["open_npy", "open_raw"],
    "reading.stacks": ["from_npy_stack"],
    "sliding.arrays": ["sliding_window"],
    "writing.targets": ["Target", "create_npy", "open_target"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Chunk",
    "DeviceError",
    "HeaderError",
    "JournalError",
    "LayoutError",
    "MMChunksError",
    "Plan",
    "PlanError",
    "Source",
    "StaleFileError",
    "Status",
    "SweepError",
    "SweepReport",
    "Target",
    "VerifyReport",
    "create_npy",
    "from_npy",
    "from_npy_stack",
    "from_raw",
    "load",
    "load_raw",
    "local_client",
    "open_npy",
    "open_raw",
    "open_target",
    "plan",
    "sliding_window",
    "status",
    "sweep",
    "to_device",
    "to_npy",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        msg = f"module 'mmchunks' has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(import_module(f"mmchunks.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Arrays that are larger than memory and live in one ordinary file.

Read one huge ``.npy`` or raw binary file from many processes and GPUs, fill one from many
processes at once without losing a byte, and aggregate it with sliding windows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmchunks.checking import Status, VerifyReport, status, verify
    from mmchunks.chunks import Chunk
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
    from mmchunks.files import Source, open_npy, open_raw
    from mmchunks.filling import to_npy
    from mmchunks.lazy import from_npy, from_npy_stack, from_raw
    from mmchunks.loading import load, load_raw, to_device
    from mmchunks.planning import plan
    from mmchunks.plans import Plan
    from mmchunks.sliding import sliding_window
    from mmchunks.sweeping import SweepReport, sweep
    from mmchunks.targets import Target, create_npy, open_target
    from mmchunks.workers import local_client

__version__ = "0.1.0"

# Names are handed on when they are asked for, so that importing mmchunks costs no more than
# importing NumPy does, and the command line answers at once.
_HOMES = {
    "checking": ["Status", "VerifyReport", "status", "verify"],
    "chunks": ["Chunk"],
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
    "filling": ["to_npy"],
    "files": ["Source", "open_npy", "open_raw"],
    "lazy": ["from_npy", "from_npy_stack", "from_raw"],
    "loading": ["load", "load_raw", "to_device"],
    "planning": ["plan"],
    "plans": ["Plan"],
    "sliding": ["sliding_window"],
    "sweeping": ["SweepReport", "sweep"],
    "targets": ["Target", "create_npy", "open_target"],
    "workers": ["local_client"],
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

"""What do we ask of CuPy? Its arrays, devices, streams and memory as types; none of it is imported.

mypy skips what types CuPy has (see ``pyproject.toml``), so these stand for it: what this room asks
for and no more, each under CuPy's own name with a Cu before it. While a program runs nobody needs them.
"""
# ruff: noqa: D102, N802  # CuPy documents and names them

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from mmchunks.files.layout import Array, ArrayModule

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from mmchunks.files.layout import Block
    from mmchunks.gpu.ring import Event

__all__ = ["CuArray", "CuPy", "CuRuntime", "CuStream"]

CuEvent: TypeAlias = "Event"


class CuPointer(Protocol):
    """A place in the memory of a GPU."""

    @property
    def ptr(self) -> int: ...


class CuDevice(Protocol):
    """A GPU."""

    @property
    def id(self) -> int: ...
    def use(self) -> object: ...


class CuArray(Array, Protocol):
    """An array in the memory of a GPU."""

    def __init__(
        self, shape: tuple[int, ...], dtype: DTypeLike, *, memptr: object, strides: tuple[int, ...]
    ) -> None: ...
    @property
    def data(self) -> CuPointer: ...
    @property
    def device(self) -> CuDevice: ...
    def get(self) -> Block: ...


class CuStream(Protocol):
    """A queue of work for a GPU."""

    @property
    def ptr(self) -> int: ...
    def record(self, event: CuEvent = ..., /) -> CuEvent: ...
    def wait_event(self, event: CuEvent, /) -> None: ...
    def synchronize(self) -> None: ...


class CuRuntime(Protocol):
    """CUDA's own functions."""

    CUDARuntimeError: type[Exception]
    memcpyDeviceToHost: int  # noqa: N815
    memcpyHostToDevice: int  # noqa: N815

    def getDevice(self) -> int: ...
    def getDeviceCount(self) -> int: ...
    def deviceGetAttribute(self, attribute: int, gpu: int, /) -> int: ...
    def memGetInfo(self) -> tuple[int, int]: ...
    def memcpyAsync(
        self, target: int, source: int, nbytes: int, kind: int, stream: int, /
    ) -> None: ...


class CuMemory(Protocol):
    """The module ``cupy.cuda.memory``."""

    OutOfMemoryError: type[Exception]


class Cuda(Protocol):
    """The module ``cupy.cuda``."""

    @property
    def memory(self) -> CuMemory: ...
    @property
    def runtime(self) -> CuRuntime: ...
    def Device(self, gpu: int, /) -> CuDevice: ...
    def Event(self, *, block: bool, disable_timing: bool) -> CuEvent: ...
    def Stream(self, *, non_blocking: bool) -> CuStream: ...
    def get_current_stream(self) -> CuStream: ...
    # Any: a buffer, of which NumPy's stubs know Python's own alone.
    def alloc_pinned_memory(self, nbytes: int, /) -> Any: ...
    def UnownedMemory(self, address: int, nbytes: int, owner: object, gpu: int, /) -> object: ...
    def MemoryPointer(self, memory: object, offset: int, /) -> object: ...


class CuPool(Protocol):
    """What CuPy keeps of memory that was freed."""

    def free_bytes(self) -> int: ...
    def used_bytes(self) -> int: ...
    def get_limit(self) -> int: ...


class CuPy(ArrayModule, Protocol):
    """The module ``cupy``."""

    ndarray: type[CuArray]

    @property
    def cuda(self) -> Cuda: ...
    def asarray(self, array: object, /) -> CuArray: ...
    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike, /) -> CuArray: ...
    def get_default_memory_pool(self) -> CuPool: ...

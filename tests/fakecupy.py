"""A CuPy of NumPy arrays, whose copies come as late as CUDA allows.

It holds what `mmchunks.gpu.devices` uses, and is as unkind as a GPU may be:

- an asynchronous copy happens only when an event is waited for, or its stream is;
- it reads page-locked memory at that moment, and other memory when it was asked for;
- fresh device memory is full of rubbish, and there may be too little of it: what `empty`, `array`
  and their like make is counted as long as it lives.

What runs on the user's stream is NumPy, which is at once.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from types import ModuleType, SimpleNamespace

import numpy as np


class CUDARuntimeError(RuntimeError):
    """An error of the CUDA runtime."""


class OutOfMemoryError(MemoryError):
    """An error of CuPy's memory pool."""


def make(*, devices=1, total=2**30, limit=0, pinned_nbytes=2**30, attributes=()):
    """Build a module to put into ``sys.modules["cupy"]``; `log` holds what was asked of CUDA."""
    cupy = ModuleType("cupy")
    cupy.log = []
    own = threading.local()
    lock = threading.RLock()
    streams = {}
    locked = []
    memory = SimpleNamespace(live=0, peak=0)

    def device():
        return getattr(own, "device", 0)

    def is_locked(address):
        return any(start <= address < start + nbytes for start, nbytes in locked)

    class Event:
        def __init__(self, **_):
            self.stream = self.count = None
            self.device = device()

        def synchronize(self):
            if self.stream is not None:
                self.stream.catch_up(self.count)

        @property
        def done(self):
            return self.stream is None or self.stream.finished >= self.count

    class Stream:
        def __init__(self, null=False, non_blocking=False):
            self.non_blocking, self.device = non_blocking, device()
            self.todo, self.finished = [], 0
            self.ptr = 0 if null else max(streams) + 1
            streams[self.ptr] = self

        def __enter__(self):
            own.stream, self._previous = self, get_current_stream()
            return self

        def __exit__(self, *error):
            own.stream = self._previous

        def catch_up(self, count):
            with lock:
                for step in self.todo[self.finished : count]:
                    step()
                self.finished = max(self.finished, count)

        def record(self, event=None):
            with lock:
                event = event or Event()
                if self.ptr and event.device != self.device:  # the null stream is every device's
                    msg = "cudaErrorInvalidResourceHandle: invalid resource handle"
                    raise CUDARuntimeError(msg)
                event.stream, event.count = self, len(self.todo)
                return event

        def wait_event(self, event):
            cupy.log.append(("wait", self.ptr, event.stream.ptr))
            event.synchronize()

        def synchronize(self):
            cupy.log.append(("synchronize", self.ptr))
            self.catch_up(len(self.todo))

    Stream(null=True)

    def get_current_stream():
        return getattr(own, "stream", streams[0])

    def memcpy_async(target, source, nbytes, kind, stream):
        cupy.log.append(("copy", stream, nbytes))
        if kind == 1 and not is_locked(source):
            staged = (ctypes.c_char * nbytes).from_buffer_copy(ctypes.string_at(source, nbytes))
            source = ctypes.addressof(staged)
        else:
            staged = None
        with lock:
            streams[stream].todo.append(
                lambda _=staged: ctypes.memmove(target, source, nbytes)  # keeps what was staged
            )

    class Device:
        def __init__(self, index=None):
            self.id = device() if index is None else index

        def use(self):
            own.device = self.id
            return self

    class NDArray(np.ndarray):
        __array_priority__ = 100  # as CuPy's: what is joined is one of these again

        def __new__(cls, shape, dtype=float, memptr=None, strides=None):
            last = sum((n - 1) * step for n, step in zip(shape, strides or (), strict=True))
            buffer = (ctypes.c_char * (last + np.dtype(dtype).itemsize)).from_address(memptr.ptr)
            array = super().__new__(cls, shape, dtype, buffer, strides=strides)
            array._memptr = memptr
            return array

        def __array_finalize__(self, parent):
            self._gpu = getattr(parent, "_gpu", device())

        @property
        def data(self):
            return SimpleNamespace(ptr=self.ctypes.data)

        @property
        def device(self):
            return SimpleNamespace(id=self._gpu)

        @property
        def __cuda_array_interface__(self):
            return self.__array_interface__

        def __array_function__(self, func, types, args, kwargs):
            """Have one, so that dask joins blocks by it, as it does CuPy's."""
            if func is np.broadcast_to:
                kwargs = kwargs | {"subok": True}
            return super().__array_function__(func, types, args, kwargs)

        def get(self):
            return np.array(self.view(np.ndarray))

    def take(nbytes):
        with lock:
            if memory.live + nbytes > total:
                msg = f"Out of memory allocating {nbytes:,} bytes"
                raise OutOfMemoryError(msg)
            memory.live += nbytes
            memory.peak = max(memory.peak, memory.live)

    def give_back(nbytes):
        with lock:
            memory.live -= nbytes

    def counted(make, nbytes):
        """Make an array that owns its memory, and count it until the last view of it is gone."""
        take(nbytes)
        array = make()
        weakref.finalize(array, give_back, nbytes).atexit = False
        return array.view(NDArray)

    def empty(shape, dtype=float):
        nbytes = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize

        def rubbish():
            return np.frombuffer(b"\xa5" * nbytes, np.uint8).copy()

        return counted(rubbish, nbytes).view(dtype).reshape(shape)

    def empty_like(array, dtype=None):
        dtype = np.dtype(dtype or array.dtype)
        return counted(lambda: np.empty_like(array, dtype), array.size * dtype.itemsize)

    def copied(array, order="K", **_):
        return counted(lambda: np.array(array, order=order), np.asarray(array).nbytes)

    def alloc_pinned_memory(nbytes):
        if sum(n for _, n in locked) + nbytes > pinned_nbytes:
            msg = "cudaErrorMemoryAllocation: out of memory"
            raise CUDARuntimeError(msg)
        memory = np.full(nbytes, 0x5A, np.int8)
        locked.append((memory.ctypes.data, nbytes))
        return memory

    def get_device_count():
        if devices == 0:
            msg = "cudaErrorNoDevice: no CUDA-capable device is detected"
            raise CUDARuntimeError(msg)
        return devices

    def host_register(start, nbytes, flags):
        cupy.log.append(("register", nbytes, flags))
        if "refuse" in attributes:
            msg = "cudaErrorInvalidValue: invalid argument"
            raise CUDARuntimeError(msg)
        locked.append((start, nbytes))

    def host_unregister(start):
        locked.remove(next(entry for entry in locked if entry[0] == start))

    def unowned(ptr, size, owner, device_id):
        return SimpleNamespace(ptr=ptr, size=size, owner=owner, device_id=device_id)

    cupy.ndarray = NDArray
    cupy.empty = empty
    cupy.empty_like = empty_like
    cupy.array = copied
    cupy.asarray = lambda array: array if isinstance(array, NDArray) else copied(array)
    cupy.asnumpy = lambda array: np.array(array.view(np.ndarray))
    cupy.get_default_memory_pool = lambda: SimpleNamespace(
        free_bytes=lambda: 0,
        free_all_blocks=lambda: None,
        get_limit=lambda: limit,
        used_bytes=lambda: memory.live,
    )
    cupy.memory = memory
    cupy.load = lambda path: np.load(path).view(NDArray)
    cupy.locked = locked
    cupy.cuda = SimpleNamespace(
        Device=Device,
        Event=Event,
        Stream=Stream,
        get_current_stream=get_current_stream,
        alloc_pinned_memory=alloc_pinned_memory,
        UnownedMemory=unowned,
        MemoryPointer=lambda memory, offset: SimpleNamespace(
            ptr=memory.ptr + offset, memory=memory
        ),
        memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        runtime=SimpleNamespace(
            CUDARuntimeError=CUDARuntimeError,
            memcpyHostToDevice=1,
            memcpyDeviceToHost=2,
            memcpyAsync=memcpy_async,
            getDeviceCount=get_device_count,
            getDevice=device,
            memGetInfo=lambda: (total - memory.live, total),
            deviceGetAttribute=lambda attribute, _: int(attribute in attributes),
            hostRegister=host_register,
            hostUnregister=host_unregister,
        ),
    )
    return cupy

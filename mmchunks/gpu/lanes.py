"""How do bytes come into a device's memory, and out of it? By a ring, on a stream of its own.

    file --fill--> page-locked slots --our stream--> device memory --event--> your stream

Copies run on a stream of our own, one for each thread that asks. It waits for your stream first:
memory that CuPy's pool hands out may still be read by kernels that you queued before it was freed.
Your stream waits for ours last; the host waits for neither. No work is put on another stream.
"""

from __future__ import annotations

import functools
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from mmchunks.gpu import hostmemory
from mmchunks.gpu.ring import Ring, RingSpec, drain, feed, pieces

if TYPE_CHECKING:
    from collections.abc import Callable

    from mmchunks.gpu.cupytypes import CuArray, CuPy, CuStream
    from mmchunks.gpu.gds import DirectRead
    from mmchunks.gpu.ring import Event, Piece

__all__ = ["Lane"]


class Lane:
    """What a process keeps for one device: a ring, and a stream for every thread that copies.

    Parameters
    ----------
    cupy : module
        ``cupy``.
    gpu : int
        Index of the device, which must be the current one.
    spec : RingSpec
        Slots to make. Where page-locked memory is refused, they are pageable, and a warning says
        so once a process.

    Notes
    -----
    Safe to share among threads.
    """

    def __init__(self, cupy: CuPy, gpu: int, spec: RingSpec) -> None:
        self._cupy = cupy
        self._runtime = cupy.cuda.runtime
        self.gpu = gpu
        self._own = threading.local()
        self.ring = Ring([self._slot(spec.slot_nbytes) for _ in range(spec.slots)])

    def fill(
        self,
        data: CuArray,
        fill: Callable[[int, memoryview], None],
        readers: int,
        direct: DirectRead | None,
    ) -> None:
        """Bring a stream of bytes into `data`, which on return is ready on the current stream.

        Parameters
        ----------
        data : cupy.ndarray of uint8
            Memory of the device, one axis, dense.
        fill : callable
            ``fill(start, memory)`` reads the bytes of the stream from `start` on.
        readers : int
            Threads that call `fill`.
        direct : DirectRead or None
            The part of the stream that GPUDirect Storage reads.
        """
        consumer, stream = self._cupy.cuda.get_current_stream(), self._stream()
        stream.wait_event(consumer.record())
        edges = [(0, data.size)]
        if direct is not None:
            edges = [(0, direct.start), (direct.stop, data.size)]
            consumer.synchronize()  # cuFile knows no streams: the memory must be free by now
            direct.read(data[direct.start : direct.stop])
        todo = [piece for edge in edges for piece in pieces(*edge, self.ring.slot_nbytes)]
        copy = self._copying(data, self._runtime.memcpyHostToDevice, stream)
        try:
            if readers == 1 or len(todo) < 2:
                feed(self.ring, todo, fill, copy, None)
            else:
                with self._threads(min(readers, len(todo))) as executor:
                    feed(self.ring, todo, fill, copy, executor)
        except BaseException:
            stream.synchronize()  # the memory goes back to the pool: nothing may write to it then
            raise
        consumer.wait_event(stream.record())

    def drain(self, data: CuArray, write: Callable[[int, memoryview], None]) -> None:
        """Bring the bytes of `data` to the host, in order; all is written on return.

        Parameters
        ----------
        data : cupy.ndarray of uint8
            Memory of the device, one axis, dense.
        write : callable
            ``write(start, memory)`` stores the bytes of the stream from `start` on.
        """
        consumer, stream = self._cupy.cuda.get_current_stream(), self._stream()
        stream.wait_event(consumer.record())
        todo = pieces(0, data.size, self.ring.slot_nbytes)
        try:
            drain(
                self.ring,
                todo,
                self._copying(data, self._runtime.memcpyDeviceToHost, stream),
                write,
            )
        finally:
            stream.synchronize()  # after an error too, nothing may read memory that is given back

    def _stream(self) -> CuStream:
        # One a thread: what is asked for on a stream is done in order, and would wait for the copies
        # of other threads. Non-blocking, because others wait for, and hold up, the null stream.
        if not hasattr(self._own, "stream"):
            self._own.stream = self._cupy.cuda.Stream(non_blocking=True)
        stream: CuStream = self._own.stream
        return stream

    def _threads(self, count: int) -> ThreadPoolExecutor:
        """Start threads whose current device is this lane's."""
        # A thread begins on GPU 0, and an event that is made there cannot be recorded on a stream of
        # another one: "invalid resource handle".
        return ThreadPoolExecutor(
            count, "mmchunks-reader", initializer=self._cupy.cuda.Device(self.gpu).use
        )

    def _copying(
        self, data: CuArray, kind: int, stream: CuStream
    ) -> Callable[[memoryview, Piece], Event]:
        """Make the ring's `copy` between a slot and the bytes of `data`."""

        def copy(memory: memoryview, piece: Piece) -> Event:
            host, device = hostmemory.address(memory), data.data.ptr + piece.start
            inward = kind == self._runtime.memcpyHostToDevice
            target, source = (device, host) if inward else (host, device)
            self._runtime.memcpyAsync(target, source, piece.nbytes, kind, stream.ptr)
            # A blocking event lets the thread sleep: a spinning one would take a reader's core.
            return stream.record(self._cupy.cuda.Event(block=True, disable_timing=True))

        return copy

    def _slot(self, nbytes: int) -> memoryview:
        try:
            pinned = self._cupy.cuda.alloc_pinned_memory(nbytes)
        except self._runtime.CUDARuntimeError as error:
            _say_once(f"page-locked memory was refused ({error}); copies to the GPU are slower")
            return np.empty(nbytes, np.uint8).data
        return np.frombuffer(pinned, np.uint8, nbytes).data


@functools.cache
def _say_once(sentence: str) -> None:
    warnings.warn(sentence, RuntimeWarning, stacklevel=2)

"""How do calls run elsewhere, and their results come back as they end? Whatever has ``submit`` will do.

items   0 1 2 3 4 5 6 7 8 9 ...
        |-ended-|-- in flight --|--- not submitted yet ---
                    `-> its done callback puts the future into one queue, which is what we wait on
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
from concurrent.futures import CancelledError
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from mmchunks.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

__all__ = ["Calls", "Executor", "end_with_parent"]

Item = TypeVar("Item")
Result = TypeVar("Result")

_SET_DEATH_SIGNAL = 1  # of prctl(2)
_IN_FLIGHT = 2000  # futures that wait at once: more than workers, fewer than a scheduler minds


class Executor(Protocol):
    """Whatever runs calls elsewhere: a pool of `concurrent.futures`, of MPI or of Flux, a dask client."""

    def submit(self, func: Callable[..., Any], /, *args: Any) -> Any:
        """Begin a call, and give its future."""


def end_with_parent(parent: int) -> None:
    """Let this process end when the one that started it does, however that ends.

    Workers of a pool whose driver was killed wait for it for ever, with all that they hold.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_SET_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # it was killed before we asked
        os.kill(os.getpid(), signal.SIGTERM)


class Calls(Generic[Item, Result]):
    """Results of ``func(item)`` as they end; without an executor, of one after the other, right here.

    Parameters
    ----------
    executor : None, concurrent.futures.Executor or distributed.Client
        Anything whose ``submit`` gives futures of `concurrent.futures` will do.
    func : callable
        Called with one item. Must be picklable if the executor is made of processes.
    items : iterable
        Taken one by one as there is room.

    Raises
    ------
    PlanError
        If the executor is nothing of the kind.

    Examples
    --------
    >>> list(Calls(None, abs, [-1, -2]))
    [1, 2]
    """

    def __init__(
        self,
        executor: Executor | None,
        func: Callable[[Item], Result],
        items: Iterable[Item],
    ) -> None:
        takes_calls = hasattr(executor, "submit") and not isinstance(executor, type)
        if executor is not None and not takes_calls:
            msg = (
                f"executor is {executor!r}, which has no submit(); pass a pool such as "
                "concurrent.futures.ProcessPoolExecutor(3), a distributed.Client, or None"
            )
            raise PlanError(msg)
        if (cluster := getattr(executor, "get_executor", None)) is not None:
            # A distributed.Client. It takes calls to be pure, and would not write a second time.
            executor = cluster(pure=False)
        self._executor: Any = executor
        self._func = func
        self._items = iter(items)
        self._in_flight: set[Future[Result]] = set()
        self._unended: dict[Future[Result], Item] = {}  # oldest first; those that raised stay
        self._raised: Future[Result] | None = None
        self._ended: queue.SimpleQueue[Future[Result]] = queue.SimpleQueue()

    def __iter__(self) -> Iterator[Result]:
        """Give results in the order in which they end, until all did.

        What a call raised is raised here; it may be iterated again for those that are left.
        """
        if self._executor is None:
            yield from map(self._func, self._items)
            return
        self._submit(_IN_FLIGHT - len(self._in_flight))
        while self._in_flight:
            future = self._ended.get()
            self._in_flight.discard(future)
            if future.cancelled():  # not by us: what it was to do is not done
                msg = "its executor cancelled a call that had not ended"
                raise CancelledError(msg)
            # Given before another is submitted, because a broken pool refuses that.
            self._raised = future
            result = future.result()
            del self._unended[future]
            yield result
            self._submit(1)

    def _submit(self, count: int) -> None:
        """Put up to `count` more items in flight."""
        for item in islice(self._items, count):
            future = self._executor.submit(self._func, item)
            self._in_flight.add(future)
            self._unended[future] = item
            future.add_done_callback(self._ended.put)

    def suspects(self) -> list[Item]:
        """Name the items one of whose calls lost its worker, when that was raised.

        A pool of processes breaks as a whole: then they are those that were at work, which are as
        many of the oldest as there are workers.
        """
        workers = getattr(self._executor, "_max_workers", None)
        if workers:
            return list(self._unended.values())[:workers]
        return [item for future, item in self._unended.items() if future is self._raised]

    def rest(self) -> Iterator[Result]:
        """Begin no further call, and give the results of those in flight, errors left out.

        Nothing is cancelled: a pool of processes that breaks afterwards would never end the futures
        that are left (CPython before 3.13), and a cluster would forget what it is computing.
        """
        self._items = iter(())
        while self._in_flight:
            future = self._in_flight.pop()
            with suppress(Exception, CancelledError):
                yield future.result()

"""Who does the work on this machine? One process per GPU, or one per core."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mmchunks.errors import DeviceError, PlanError
from mmchunks.gpu import devices
from mmchunks.gpu.devices import chosen_device
from mmchunks.gpu.placement import check_workers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Client, LocalCluster

__all__ = ["local_client", "tasks_at_once"]

_GIVEN_BACK = "65536"  # bytes; distributed's own setting for what workers keep of what they free
_KEPT = {"MALLOC_TRIM_THRESHOLD_": str(2**26), "MALLOC_MMAP_THRESHOLD_": str(2**25)}


def local_client(n_workers: int | None = None, *, device: str = "auto", **kwargs: object) -> Client:
    """Start workers on this machine, and connect to them.

    Parameters
    ----------
    n_workers : int, optional
        Processes to start. One per GPU where GPUs answer (and never more), else one per core.
    device : {"auto", "cpu", "gpu"}
        What the workers compute on.
    **kwargs
        Passed on to ``dask_cuda.LocalCUDACluster`` or ``distributed.LocalCluster``, for example
        ``memory_limit=`` or ``threads_per_worker=``, which is 1 otherwise.

    Returns
    -------
    distributed.Client
        It owns the workers: closing it, or leaving its ``with`` block, ends them.

    Raises
    ------
    DeviceError
        If a GPU was asked for and none answers, or more workers than there are GPUs.
    PlanError
        If `n_workers` is below 1.

    Notes
    -----
    Workers keep what they free, up to 64 MiB each, for the next block. Those of other clusters
    give it back at once, which makes sliding windows several times slower; dask's settings
    ``distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_: 67108864`` and
    ``...MALLOC_MMAP_THRESHOLD_: 33554432`` cure them, too.

    Processes are spawned, never forked. In a script, call this below ``if __name__ ==
    "__main__":``, because a spawned process imports the script first.

    Examples
    --------
    >>> import dask.array as da
    >>> with local_client(1, device="cpu", dashboard_address=":0") as client:  # doctest: +SKIP
    ...     int(da.arange(10).sum().compute())
    45
    """
    if n_workers is not None and n_workers < 1:
        msg = f"{n_workers} workers were asked for; write n_workers=1 or more, or leave it out"
        raise PlanError(msg)
    chosen = chosen_device(device)
    kwargs.setdefault("threads_per_worker", 1)
    from dask.system import CPU_COUNT
    from distributed import LocalCluster

    with _keeping_memory():
        if chosen == "gpu":
            return _owner(_cuda_cluster(check_workers(n_workers, devices.count()), kwargs))
        kwargs.setdefault("processes", True)
        return _owner(LocalCluster(n_workers=n_workers or CPU_COUNT, **kwargs))


@contextmanager
def _keeping_memory() -> Iterator[None]:
    """Let workers keep what they free, for the next block, as any other process does.

    distributed has them give back whatever is freed, and glibc then maps every array of 128 KiB
    or more anew: sliding deviations took four to nine times as long. So unless the user has
    settings of their own, workers get the bounds that glibc's own ones end up at.
    """
    import dask.config
    import distributed  # noqa: F401  its settings are there from here on

    environ = "distributed.nanny.pre-spawn-environ"
    given = dask.config.get(environ, None) or {}
    before = {name: os.environ.get(name) for name in _KEPT}
    trim, mapped = _KEPT
    trims = {before[trim], str(given.get(trim))}  # an earlier cluster leaves it in the environment
    if trims - {None, _GIVEN_BACK} or before[mapped] or mapped in given:
        yield
        return
    os.environ.update(_KEPT)  # which wins over dask's settings, and distributed writes to it
    try:
        with dask.config.set({environ: {**given, **_KEPT}}):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _cuda_cluster(n_workers: int, kwargs: dict[str, object]) -> LocalCluster:
    try:
        from dask_cuda import LocalCUDACluster
    except ImportError as error:
        msg = (
            "one worker per GPU needs dask-cuda, which is not installed; "
            'install mmchunks[cuda13] or mmchunks[cuda12], or write device="cpu"'
        )
        raise DeviceError(msg) from error
    return LocalCUDACluster(n_workers=n_workers, **kwargs)


def _owner(cluster: LocalCluster) -> Client:
    """Connect to a cluster whose life ends with the connection."""
    from distributed import Client

    class OwningClient(Client):  # type: ignore[misc]
        """A client that closes its cluster; distributed's own does so only for its default one."""

        def close(self, *args: object, **kwargs: object) -> None:
            super().close(*args, **kwargs)
            cluster.close()

    try:
        return OwningClient(cluster)
    except BaseException:
        cluster.close()
        raise


def tasks_at_once() -> int:
    """Count the tasks that share one device: the threads of a worker, or of dask's own scheduler.

    Notes
    -----
    Asks whom dask would compute with now. A client whose loop is the caller's own cannot be
    asked without ``await``; its workers are taken to have one thread each, as those of `local_client` have.
    """
    import dask.config
    from dask.system import CPU_COUNT

    scheduler = dask.config.get("scheduler", None)
    if scheduler in {"sync", "synchronous", "single-threaded"}:
        return 1
    client = _current_client() if scheduler in {None, "distributed", "dask.distributed"} else None
    if client is None:
        return int(dask.config.get("num_workers", None) or CPU_COUNT)
    threads = {} if client.asynchronous else client.nthreads()
    return max(threads.values(), default=1)


def _current_client() -> Client | None:
    """Find the client that dask would compute with; distributed is not imported to ask."""
    module = sys.modules.get("distributed")
    if module is None:
        return None
    try:
        client: Client = module.get_client()
    except ValueError:
        return None
    return client

"""Which device does a process compute on? Decided from numbers and names alone.

device=       "cpu" | "gpu" | "auto": dask's array.backend, else a GPU that answers, else the CPU
which GPU     the only one that the process sees
              the first one, where dask-cuda rotated CUDA_VISIBLE_DEVICES for every worker
              the one of the process's rank on its host, where plain workers see several
              the current one, in a process that is nobody's worker
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from mmchunks.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["check_workers", "choose_device", "choose_gpu", "local_rank", "no_cupy"]

# Each launcher's rank of a process on its host, and how many it started there. A lone task's rank
# is no news: in a SLURM batch script every dask worker inherits SLURM_LOCALID=0.
_LAUNCHERS = (
    ("SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"),
    ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)


def no_cupy(what: str) -> str:
    """Say what to install; `what` needs it.

    Examples
    --------
    >>> no_cupy("this")
    'this needs CuPy, which is not installed; install mmchunks[cuda13] or mmchunks[cuda12]'
    """
    return (
        f"{what} needs CuPy, which is not installed; install mmchunks[cuda13] or mmchunks[cuda12]"
    )


def choose_device(
    asked: str, *, backend: str | None, installed: bool, count: int
) -> Literal["cpu", "gpu"]:
    """Choose between the CPU and a GPU.

    Parameters
    ----------
    asked : str
        ``"cpu"``, ``"gpu"`` or ``"auto"``.
    backend : str or None
        Dask's ``array.backend``, if the user set it: ``"numpy"`` or ``"cupy"``.
    installed : bool
        Whether CuPy can be imported.
    count : int
        How many GPUs answer.

    Raises
    ------
    DeviceError
        If a GPU was asked for and cannot be had; the sentence says what to install.

    Examples
    --------
    >>> choose_device("auto", backend=None, installed=True, count=0)
    'cpu'
    >>> choose_device("auto", backend="cupy", installed=True, count=2)
    'gpu'
    """
    if asked not in {"cpu", "gpu", "auto"}:
        msg = f'device must be "cpu", "gpu" or "auto", got {asked!r}'
        raise DeviceError(msg)
    if asked == "cpu" or (asked == "auto" and backend == "numpy"):
        return "cpu"
    reason = 'device="gpu"' if asked == "gpu" else "dask's array.backend is cupy: a GPU"
    wanted = asked == "gpu" or backend == "cupy"
    if wanted and not installed:
        raise DeviceError(no_cupy(reason))
    if wanted and not count:
        msg = f'{reason} was asked for and none answers; write device="cpu", or look at nvidia-smi'
        raise DeviceError(msg)
    return "gpu" if installed and count else "cpu"


def local_rank(environ: Mapping[str, str], worker: str | int | None) -> int | None:
    """Tell which of its host's processes this one is; None where nobody numbered it.

    Parameters
    ----------
    environ : mapping
        The environment of the process.
    worker : str, int or None
        Name of its dask worker: a number in a local cluster, and ``"job-0"``, ``"job-1"`` where
        ``dask worker --nworkers`` started several.

    Examples
    --------
    >>> local_rank({"SLURM_LOCALID": "2", "SLURM_STEP_NUM_TASKS": "4"}, worker="job-0")
    2
    >>> local_rank({"SLURM_LOCALID": "0"}, worker=3)
    3
    """
    lone = None
    for rank, tasks in _LAUNCHERS:
        if not environ.get(rank, "").isdecimal():
            continue
        if environ.get(tasks, "").isdecimal() and int(environ[tasks]) > 1:
            return int(environ[rank])
        lone = int(environ[rank])
    numbered = re.fullmatch(r"(?:.*-)?(\d+)", str(worker))
    return int(numbered[1]) if numbered else lone


def choose_gpu(count: int, *, rank: int | None, rotated: bool) -> int | None:
    """Choose the index of a process's GPU among those that it sees; None leaves the current one.

    Parameters
    ----------
    count : int
        GPUs that the process sees, one at least.
    rank : int or None
        What `local_rank` says.
    rotated : bool
        Whether dask-cuda started this worker: its ``CUDA_VISIBLE_DEVICES`` names all GPUs, its
        own one first.

    Raises
    ------
    DeviceError
        If the host runs more workers than it has GPUs.

    Examples
    --------
    >>> [choose_gpu(4, rank=rank, rotated=False) for rank in (None, 0, 3)]
    [None, 0, 3]
    >>> choose_gpu(4, rank=3, rotated=True)
    0
    """
    if count == 1 or rotated:
        return 0
    if rank is not None and rank >= count:
        msg = (
            f"worker {rank} of this host has no GPU of its own: {count} are visible, counted from "
            f"0; start at most {count} workers a host, or give each its CUDA_VISIBLE_DEVICES"
        )
        raise DeviceError(msg)
    return rank


def check_workers(n_workers: int | None, count: int) -> int:
    """Count the workers of a cluster with one process per GPU.

    Raises
    ------
    DeviceError
        If more workers were asked for than there are GPUs.

    Examples
    --------
    >>> check_workers(None, 4), check_workers(2, 4)
    (4, 2)
    """
    if n_workers is not None and n_workers > count:
        msg = (
            f"{n_workers} workers were asked for and {count} GPUs answer, one a worker; "
            f'write n_workers={count}, or device="cpu" for one worker a core'
        )
        raise DeviceError(msg)
    return count if n_workers is None else n_workers

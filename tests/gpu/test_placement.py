"""Every worker its own GPU: tables of fake counts and environments."""

from __future__ import annotations

import pytest

from mmchunks.errors import DeviceError
from mmchunks.gpu.placement import check_workers, choose_device, choose_gpu, local_rank


@pytest.mark.parametrize(
    ("asked", "backend", "installed", "count", "chosen"),
    [
        ("cpu", "cupy", True, 8, "cpu"),
        ("gpu", "numpy", True, 1, "gpu"),
        ("auto", None, True, 1, "gpu"),
        ("auto", None, True, 0, "cpu"),
        ("auto", None, False, 0, "cpu"),
        ("auto", "numpy", True, 8, "cpu"),
        ("auto", "cupy", True, 1, "gpu"),
    ],
)
def test_the_users_word_comes_before_dasks_backend_before_what_answers(
    asked, backend, installed, count, chosen
):
    assert choose_device(asked, backend=backend, installed=installed, count=count) == chosen


@pytest.mark.parametrize(("asked", "backend"), [("gpu", None), ("auto", "cupy")])
def test_missing_cupy_names_the_extra_to_install(asked, backend):
    with pytest.raises(DeviceError, match=r"mmchunks\[cuda13\] or mmchunks\[cuda12\]"):
        choose_device(asked, backend=backend, installed=False, count=0)
    with pytest.raises(DeviceError, match='none answers; write device="cpu"'):
        choose_device(asked, backend=backend, installed=True, count=0)


def test_another_word_for_a_device_is_refused():
    with pytest.raises(DeviceError, match="got 'cuda'"):
        choose_device("cuda", backend=None, installed=True, count=1)


@pytest.mark.parametrize(
    ("environ", "worker", "rank"),
    [
        ({}, None, None),
        ({}, "tcp://10.0.0.1:40331", None),
        ({}, 3, 3),
        ({}, "3", 3),
        ({}, "host-job-2", 2),
        # A local cluster, or dask worker --nworkers, within a SLURM batch script.
        ({"SLURM_LOCALID": "0"}, 3, 3),
        ({"SLURM_LOCALID": "0", "SLURM_STEP_NUM_TASKS": "1"}, "SLURMCluster-0-2", 2),
        # dask-mpi names its workers by their rank in the whole job.
        ({"SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8"}, 5, 1),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, 5, 1),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2"}, None, 2),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}, None, 3),
        ({"SLURM_LOCALID": "none"}, None, None),
        # mpirun within a SLURM batch script: the inner launcher knows.
        (
            {
                "SLURM_LOCALID": "0",
                "OMPI_COMM_WORLD_LOCAL_RANK": "1",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            },
            None,
            1,
        ),
    ],
)
def test_the_rank_is_the_launchers_where_it_started_several_else_the_workers_name(
    environ, worker, rank
):
    assert local_rank(environ, worker) == rank


@pytest.mark.parametrize("count", [2, 4, 8])
def test_plain_workers_that_see_all_gpus_share_none(count):
    chosen = [choose_gpu(count, rank=rank, rotated=False) for rank in range(count)]
    assert sorted(chosen) == list(range(count))


def test_a_worker_that_sees_one_gpu_takes_it_whatever_its_rank():
    assert choose_gpu(1, rank=5, rotated=False) == 0


def test_dask_cuda_puts_the_workers_own_gpu_first():
    assert [choose_gpu(4, rank=rank, rotated=True) for rank in range(4)] == [0, 0, 0, 0]


def test_nobodys_worker_keeps_the_device_that_is_current():
    assert choose_gpu(4, rank=None, rotated=False) is None


def test_more_workers_than_gpus_are_refused_with_the_number():
    with pytest.raises(DeviceError, match=r"worker 4 of this host .* at most 4 workers"):
        choose_gpu(4, rank=4, rotated=False)
    with pytest.raises(DeviceError, match="8 workers were asked for and 4 GPUs answer"):
        check_workers(8, 4)

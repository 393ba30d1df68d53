"""Workers of this machine: how many, of which kind, and whose."""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace

import dask
import distributed
import pytest
from dask.system import CPU_COUNT

from mmchunks.errors import DeviceError, PlanError
from mmchunks.gpu import devices
from mmchunks.gpu.devices import chosen_backend
from mmchunks.gpu.workers import local_client, tasks_at_once
from tests.fakecupy import make


@pytest.fixture
def gpus(monkeypatch):
    """Install a fake CuPy that sees four GPUs."""
    monkeypatch.setitem(sys.modules, "cupy", make(devices=4))
    devices.count.cache_clear()
    yield 4
    devices.count.cache_clear()


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_workers_are_processes_of_one_thread_and_end_with_the_client():
    with local_client(2, device="cpu", dashboard_address=":0") as client:
        pids = set(client.run(os.getpid).values())
        assert len(pids) == 2
        assert os.getpid() not in pids
        assert set(client.nthreads().values()) == {1}
        cluster = client.cluster
    assert cluster.status == distributed.core.Status.closed
    ends = time.monotonic() + 30
    while any(map(alive, pids)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not any(map(alive, pids))


MALLOC = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


@pytest.mark.parametrize(
    ("setting", "environ", "kept"),
    [
        (65536, {}, ("67108864", "33554432")),
        (65536, {MALLOC[0]: "65536"}, ("67108864", "33554432")),  # an earlier cluster left it
        (12345, {}, ("12345", None)),
        (65536, {MALLOC[0]: "777"}, ("777", None)),
        (65536, {MALLOC[1]: "65536"}, ("65536", "65536")),
    ],
)
def test_workers_keep_what_they_free_unless_the_user_says_otherwise(
    monkeypatch, setting, environ, kept
):
    def bounds():
        return tuple(os.environ.get(name) for name in MALLOC)

    for name in MALLOC:
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    before = bounds()
    with (
        dask.config.set({f"distributed.nanny.pre-spawn-environ.{MALLOC[0]}": setting}),
        local_client(1, device="cpu", dashboard_address=":0") as client,
    ):
        assert set(client.run(bounds).values()) == {kept}
    if kept[0] == "67108864":
        assert bounds() == before


def test_without_a_number_there_is_one_worker_a_core(monkeypatch):
    asked = {}

    def cluster(**kwargs):
        asked.update(kwargs)
        return original(n_workers=0, processes=False, dashboard_address=":0")

    original = distributed.LocalCluster
    monkeypatch.setattr(distributed, "LocalCluster", cluster)
    local_client(device="cpu").close()
    assert asked["n_workers"] == dask.system.CPU_COUNT
    assert asked["processes"]


@pytest.mark.parametrize(("n_workers", "started"), [(None, 4), (3, 3)])
def test_where_gpus_answer_there_is_one_worker_a_gpu(gpus, monkeypatch, n_workers, started):
    asked = {}

    def cluster(**kwargs):
        asked.update(kwargs)
        return distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0")

    monkeypatch.setitem(sys.modules, "dask_cuda", SimpleNamespace(LocalCUDACluster=cluster))
    client = local_client(n_workers, memory_limit="1GB")
    client.close()
    assert asked == {"n_workers": started, "threads_per_worker": 1, "memory_limit": "1GB"}
    assert client.cluster.status == distributed.core.Status.closed


def test_more_workers_than_gpus_and_a_missing_dask_cuda_are_refused(gpus, monkeypatch):
    with pytest.raises(DeviceError, match="5 workers were asked for and 4 GPUs answer"):
        local_client(5)
    monkeypatch.setitem(sys.modules, "dask_cuda", None)
    with pytest.raises(DeviceError, match=r"needs dask-cuda.*mmchunks\[cuda13\]"):
        local_client()


@pytest.mark.parametrize("n_workers", [0, -1])
def test_fewer_workers_than_one_are_refused(n_workers):
    with pytest.raises(PlanError, match="write n_workers=1 or more"):
        local_client(n_workers, device="cpu")


def test_gpus_that_do_not_answer_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", make(devices=0))
    devices.count.cache_clear()
    with pytest.raises(DeviceError, match="none answers"):
        local_client(device="gpu")
    devices.count.cache_clear()


def test_dasks_backend_counts_where_the_user_set_it(monkeypatch):
    assert chosen_backend() is None
    with dask.config.set({"array.backend": "cupy"}):
        assert chosen_backend() == "cupy"
    monkeypatch.setenv("DASK_ARRAY__BACKEND", "numpy")
    assert chosen_backend() == "numpy"


@pytest.mark.gpu
def test_every_worker_has_its_own_gpu():
    cupy = pytest.importorskip("cupy")
    pytest.importorskip("dask_cuda")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        pytest.skip("no CUDA device answers")

    def bus():
        devices.place()
        return cupy.cuda.Device().pci_bus_id

    with local_client(device="gpu", dashboard_address=":0") as client:
        assert len(set(client.run(bus).values())) == devices.count()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"scheduler": "sync"}, 1),
        ({"scheduler": "threads", "num_workers": 3}, 3),
        ({"scheduler": None, "num_workers": None}, CPU_COUNT),
    ],
)
def test_tasks_at_once_are_those_of_dasks_own_scheduler(config, expected):
    with dask.config.set(config):
        assert tasks_at_once() == expected


def test_tasks_at_once_are_the_threads_of_the_largest_worker():
    kwargs = {"processes": False, "dashboard_address": ":0"}
    with local_client(1, device="cpu", threads_per_worker=3, **kwargs):
        assert tasks_at_once() == 3
        with dask.config.set(scheduler="sync"):
            assert tasks_at_once() == 1

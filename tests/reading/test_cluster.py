"""Lazy arrays on a real cluster of processes: values, laziness and faults."""

import os

import numpy as np
import pytest
from distributed import Client, LocalCluster

import mmchunks as mm


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=2, processes=True, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("io", ["auto", "mmap", "pread", "direct"])
def test_workers_read_the_file_by_themselves(client, ramp, io):
    path, array = ramp
    x = mm.from_npy(path, chunks=150, io=io)
    np.testing.assert_array_equal(x[3:900].compute(), array[3:900])
    assert x.mean(axis=1)[[5, 800]].compute().tolist() == array.mean(axis=1)[[5, 800]].tolist()


def test_workers_need_no_copy_from_the_client(client, tmp_path):
    np.save(tmp_path / "big.npy", np.ones((4096, 1024)))
    x = mm.from_npy(tmp_path / "big.npy", chunks=512)
    assert x.sum().compute() == 4096 * 1024
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir("/")  # paths in tasks are absolute
        assert x[7].compute().tolist() == [1.0] * 1024


def truncate(path):
    os.truncate(path, 1000)


def replace(path):
    np.save(path + ".new.npy", np.zeros((1000, 17), "f4"))
    os.replace(path + ".new.npy", path)


@pytest.mark.parametrize("io", ["auto", "mmap", "pread", "direct"])
@pytest.mark.parametrize("harm", [truncate, replace, os.unlink])
def test_a_changed_file_is_an_error_and_no_worker_dies(client, ramp, harm, io):
    path, _ = ramp
    pids = client.run(os.getpid)
    x = mm.from_npy(path, chunks=150, io=io)
    harm(path)
    with pytest.raises(mm.StaleFileError, match=r"ramp\.npy"):
        x.sum().compute()
    assert client.run(os.getpid) == pids


@pytest.mark.parametrize("harm", [replace, os.unlink])
def test_blocks_on_workers_keep_the_bytes_of_the_old_file(client, ramp, harm):
    path, array = ramp
    x = mm.from_npy(path, chunks=150).persist()
    x.sum().compute()
    pids = client.run(os.getpid)
    harm(path)
    np.testing.assert_array_equal(x.compute(), array)
    assert client.run(os.getpid) == pids


def test_blocks_that_were_read_survive_truncation(client, ramp):
    path, array = ramp
    x = mm.from_npy(path, chunks=150, io="pread").persist()
    assert x.max().compute() == array.max()
    truncate(path)
    np.testing.assert_array_equal(x.compute(), array)

"""Sources: a file that is still the one that was opened, or a sentence."""

import bz2
import dataclasses
import gzip
import lzma
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from dask.base import tokenize
from hypothesis import given
from hypothesis import strategies as st

import mmchunks
from mmchunks.errors import HeaderError, LayoutError, StaleFileError
from mmchunks.files import npy
from mmchunks.files.identity import identify
from mmchunks.files.layout import Layout
from mmchunks.files.raw import raw_layout
from mmchunks.files.sources import Source
from mmchunks.reading.opening import open_npy, open_raw


def rewrite_in_place(path, array):
    """Other bytes in the same inode, at another time."""
    with open(path, "r+b") as file:
        np.save(file, array)
    status = os.stat(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))


# --- reading ------------------------------------------------------------------------------------


def test_a_source_says_what_numpy_says(ramp):
    path, array = ramp
    source = open_npy(path)
    assert (source.shape, source.dtype, source.ndim) == (array.shape, array.dtype, 2)
    assert (source.order, source.offset, source.nbytes) == ("C", 128, array.nbytes)
    assert source.layout == Layout(shape=array.shape, dtype=array.dtype, offset=128)
    assert source.trailing_nbytes == 0
    assert repr(source) == (
        f"Source({os.path.realpath(path)!r}, shape=(1000, 17), dtype=float32, order='C', offset=128)"
    )


@pytest.mark.parametrize(
    "index",
    [
        ...,
        (),
        0,
        -1,
        (3, 4),
        slice(10, 20),
        slice(None, None, 7),
        slice(20, 10, -3),
        slice(5, 5),
        (slice(2, 900, 100), slice(None, None, -1)),
        (..., 5),
        (None, slice(3)),
        np.int64(7),
    ],
    ids=str,
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_brackets_mean_what_they_mean_in_numpy(ramp, tmp_path, order, index):
    path, array = str(tmp_path / "array.npy"), np.asarray(ramp[1], order=order)
    np.save(path, array)
    np.testing.assert_array_equal(open_npy(path)[index], array[index])


def test_a_source_of_no_axes_or_no_elements_is_read(tmp_path):
    np.save(tmp_path / "point.npy", np.float64(3))
    np.save(tmp_path / "nothing.npy", np.zeros((0, 3)))
    assert open_npy(tmp_path / "point.npy")[...] == 3
    assert open_npy(tmp_path / "point.npy")[()].shape == ()
    assert open_npy(tmp_path / "nothing.npy")[...].shape == (0, 3)


def test_a_block_is_writable_and_the_file_never_changes(ramp):
    path, array = ramp
    block = open_npy(path)[10:20]
    block += 1
    np.testing.assert_array_equal(np.load(path), array)


def test_numpy_takes_a_source_for_an_array(ramp):
    path, array = ramp
    np.testing.assert_array_equal(np.asarray(open_npy(path)), array)
    assert np.asarray(open_npy(path), dtype="f8").dtype == np.float64


def test_bytes_after_the_data_are_told_and_not_read(ramp):
    path, array = ramp
    with open(path, "ab") as file:
        file.write(b"another array")
    source = open_npy(path)
    assert source.trailing_nbytes == 13
    np.testing.assert_array_equal(source[...], array)


def test_a_path_is_resolved_once(ramp, tmp_path, monkeypatch):
    path, _ = ramp
    (tmp_path / "link.npy").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    assert open_npy("link.npy") == open_npy(Path("ramp.npy")) == open_npy(path)
    assert open_npy("link.npy").path == os.path.realpath(path)


def test_a_header_above_the_limit_is_read_when_asked(tmp_path):
    dtype = [(f"field{i}", "<f4") for i in range(1000)]
    path = tmp_path / "wide.npy"
    np.save(path, np.zeros(3, dtype))
    with pytest.raises(
        HeaderError, match=f"^{path}: .*if you trust the file, pass max_header_size="
    ):
        open_npy(path)
    assert open_npy(path, max_header_size=30_000)[...].dtype == np.dtype(dtype)


def test_only_the_header_is_read(tmp_path):
    path = tmp_path / "sparse.npy"
    head = npy.encode(2**38, "<f4", "C", align=4096)
    path.write_bytes(head)
    os.truncate(path, 4096 + 2**40)
    tracemalloc.start()
    start = time.perf_counter()
    source = open_npy(path)
    raw = open_raw(path, "<f4", offset=4096)
    seconds = time.perf_counter() - start
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert source.layout == raw.layout
    assert source[-3:].tolist() == [0, 0, 0]
    assert seconds < 0.3
    assert peak < 1_000_000


# --- identity -----------------------------------------------------------------------------------


def truncate(path, array):
    os.truncate(path, os.path.getsize(path) - 1)


def grow(path, array):
    with open(path, "ab") as file:
        file.write(b"x")


def replace(path, array):
    status = os.stat(path)
    shutil.copy(path, f"{path}.new")
    os.utime(f"{path}.new", ns=(status.st_atime_ns, status.st_mtime_ns))
    os.replace(f"{path}.new", path)


def delete(path, array):
    os.unlink(path)


def delete_the_folder(path, array):
    os.rename(os.path.dirname(path), f"{os.path.dirname(path)}.old")
    Path(os.path.dirname(path)).write_text("a file now")


def put_a_pipe_there(path, array):
    os.unlink(path)
    os.mkfifo(path)


def put_a_folder_there(path, array):
    os.unlink(path)
    os.mkdir(path)


CHANGES = [truncate, grow, replace, delete, put_a_pipe_there, put_a_folder_there, delete_the_folder]


@pytest.mark.parametrize("filling", [False, True])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_another_file_in_its_place_is_stale_and_the_sentence_says_how(ramp, change, filling):
    path, array = ramp
    opened = open_npy(path)
    source = Source(
        path=opened.path, layout=opened.layout, identity=opened.identity, filling=filling
    )
    change(path, array)
    with pytest.raises(StaleFileError, match=rf"^{source.path}: expected 68,128 bytes .* found "):
        source[0]


def test_a_rewritten_file_is_stale_unless_it_is_our_own_that_is_being_filled(ramp):
    path, array = ramp
    source = open_npy(path)
    rewrite_in_place(path, array + 1)
    with pytest.raises(StaleFileError, match=r"expected .*Z, found .*Z; open it again"):
        source[0]
    filling = Source(path=source.path, layout=source.layout, identity=source.identity, filling=True)
    np.testing.assert_array_equal(filling[0], array[0] + 1)


def test_the_descriptor_is_closed_when_the_block_ends(ramp):
    path, _ = ramp
    source = open_npy(path)
    before = len(os.listdir("/proc/self/fd"))
    with source.opened() as fd:
        assert os.pread(fd, 6, 0) == npy.MAGIC
    rewrite_in_place(path, ramp[1])
    with pytest.raises(StaleFileError):
        source[0]
    for bad in ("no such file", "/dev/null"):
        with pytest.raises(OSError, match=bad):
            open_npy(bad)
    assert len(os.listdir("/proc/self/fd")) == before


def test_two_hosts_may_number_the_file_system_differently(ramp):
    found = identify(ramp[0])
    assert found == dataclasses.replace(found, device=found.device + 1)


def test_a_source_travels_in_a_few_hundred_bytes(ramp):
    source = open_npy(ramp[0])
    data = pickle.dumps(source)
    assert len(data) < 700
    assert pickle.loads(data) == source


def test_the_same_file_has_the_same_token_and_a_rewritten_one_another(ramp):
    path, array = ramp
    token = tokenize(open_npy(path))
    assert tokenize(open_npy(path)) == token
    assert tokenize(open_raw(path, "f4", offset=128)) != token
    rewrite_in_place(path, array)
    assert tokenize(open_npy(path)) != token


def test_a_token_tells_structures_of_one_size_apart(ramp):
    one, other = [("a", "<f4"), ("b", "<f4")], [("a", "<f4"), ("c", "<i4")]
    path, _ = ramp
    tokens = {tokenize(open_raw(path, dtype, 100)) for dtype in (one, other)}
    assert len(tokens) == 2


def test_a_token_does_not_read_the_data(ramp):
    path, _ = ramp
    source = open_npy(path)
    os.unlink(path)
    assert tokenize(source)


# --- what is not there, or something else --------------------------------------------------------


def test_a_truncated_file_is_a_header_error_with_both_numbers(ramp):
    path, _ = ramp
    os.truncate(path, 128 + 1000)
    sentence = (
        f"^{path}: header promises 68,000 bytes of data, file holds 1,000: 14 of 1,000 whole rows "
    )
    with pytest.raises(HeaderError, match=sentence):
        open_npy(path)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", [">f4", "U3", [("a", "<i2"), ("b", "f8", (2,))]], ids=str)
def test_what_there_is_of_a_truncated_file_is_had_as_the_error_says(tmp_path, order, dtype):
    array = np.asarray(np.zeros((6, 5), dtype), order=order)
    array[...] = np.arange(30).reshape(6, 5).astype("i4") if dtype == ">f4" else array
    path = tmp_path / "x.npy"
    np.save(path, array)
    row = array.nbytes // (6 if order == "C" else 5)
    os.truncate(path, path.stat().st_size - row - 1)
    with pytest.raises(HeaderError, match=r"write open_raw\(path, ") as caught:
        open_npy(path)
    call = str(caught.value).partition("write ")[2]
    found = eval(call, {"open_raw": open_raw, "path": path})[...]
    np.testing.assert_array_equal(found, array[:4] if order == "C" else array[:, :3])


CONTENTS = {
    "empty": (b"", "is empty"),
    "gzip": (gzip.compress(b"data"), "is gzip, .*unpack"),
    "bzip2": (bz2.compress(b"data"), "is bzip2, .*unpack"),
    "xz": (lzma.compress(b"data"), "is xz, .*unpack"),
    "zstd": (b"\x28\xb5\x2f\xfd data", "is zstd, .*unpack"),
    "hdf5": (b"\x89HDF\r\n\x1a\n\0\0", "is HDF5.*h5py"),
    "netcdf": (b"CDF\x01\0\0", "is NetCDF.*xarray"),
    "pickle": (pickle.dumps([1, 2]), "is a pickle.*nothing is unpickled"),
    "pickle 2": (pickle.dumps([1, 2], protocol=2), "is a pickle"),
    "parquet": (b"PAR1\x15", "is Parquet.*read_parquet"),
    "matlab": (b"MATLAB 5.0 MAT-file, Platform", "is a MATLAB file.*loadmat"),
    "matlab 7.3": (b"MATLAB 7.3 MAT-file, Platform", "HDF5.*h5py"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:1", "Git LFS.*git lfs pull"),
    "html": (b"<!DOCTYPE html><html>", "is a web page"),
    "raw": (np.arange(4.0).tobytes(), "is not .npy: it begins with .*open_raw"),
    "half a magic": (b"\x93NUM", "cut short"),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_another_format_is_named_with_what_to_do(tmp_path, name):
    path = tmp_path / "given.npy"
    content, sentence = CONTENTS[name]
    path.write_bytes(content)
    with pytest.raises(HeaderError, match=f"^{path}: .*{sentence}") as caught:
        open_npy(path)
    assert "\n" not in str(caught.value)


def test_npz_is_named(tmp_path):
    np.savez(tmp_path / "given.npz", a=np.arange(3))
    with pytest.raises(HeaderError, match=r"is a zip archive such as \.npz"):
        open_npy(tmp_path / "given.npz")


def test_objects_are_refused_and_never_unpickled(tmp_path):
    np.save(tmp_path / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    with pytest.raises(HeaderError, match="Python objects, which are a pickle"):
        open_npy(tmp_path / "objects.npy")


def both(path):
    """Open in both ways: what is wrong with a path is wrong for either."""
    return [lambda: open_npy(path), lambda: open_raw(path, "u1")]


def refused(path, kind, sentence):
    for opening in both(path):
        with pytest.raises(kind, match=f"^{path}: .*{sentence}"):
            opening()


def test_a_path_that_cannot_be_mapped_is_told_in_one_sentence(tmp_path):
    refused(tmp_path / "nothing", FileNotFoundError, "no such file")
    refused(tmp_path, IsADirectoryError, "is a directory.*from_npy_stack")
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", OSError, "is a pipe; only regular files can be mapped")
    refused("/dev/zero", OSError, "is a device; only regular files")
    refused("s3://bucket/key.npy", FileNotFoundError, "is a URL.*download it.*fsspec")
    refused("file:///data/x.npy", FileNotFoundError, "is a URL; write the path")


def test_a_socket_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # paths of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        refused("socket", OSError, "is a socket")


@pytest.mark.parametrize("key", [".zarray", ".zgroup", "zarr.json"])
def test_a_zarr_store_is_named(tmp_path, key):
    (tmp_path / key).write_text("{}")
    refused(tmp_path, IsADirectoryError, "is a Zarr store; open it with zarr")


def test_a_file_that_may_not_be_read_is_a_permission_error(ramp, monkeypatch):
    def deny(path, flags):  # root may read everything, so the system is played here
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", deny)
    refused(ramp[0], PermissionError, "permission denied")


def test_a_system_error_keeps_its_number(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        open_npy(tmp_path / "nothing")
    assert caught.value.errno == 2


@pytest.mark.parametrize("path", [b"bytes.npy", 3, None])
def test_a_path_is_a_str_or_a_path(path):
    for opening in both(path):
        with pytest.raises(TypeError, match=r"is no file; pass a path"):
            opening()


# --- raw files ----------------------------------------------------------------------------------


@pytest.fixture
def samples(tmp_path):
    path = tmp_path / "samples.bin"
    np.arange(60, dtype="<i2").tofile(path)
    return path


@pytest.mark.parametrize("order", ["C", "F"])
def test_raw_bytes_are_what_memmap_makes_of_them(samples, order):
    judge = np.memmap(samples, "<i2", "r", offset=6, shape=(3, 4), order=order)
    source = open_raw(samples, "<i2", (3, 4), offset=6, order=order)
    np.testing.assert_array_equal(source[...], judge)
    assert source.trailing_nbytes == 120 - 6 - 24


def test_without_a_shape_a_raw_file_is_one_axis_to_its_end(samples):
    np.testing.assert_array_equal(open_raw(samples, "<i2")[...], np.arange(60))
    assert open_raw(samples, ">i4", offset=4).shape == (29,)
    assert open_raw(samples, "u1", 7).shape == (7,)


@given(st.integers(0, 300), st.integers(0, 300), st.lists(st.integers(1, 5), max_size=3))
def test_minus_one_is_as_many_as_reshape_finds(nbytes, offset, others):
    array = np.zeros(max(0, nbytes - offset), "u1")
    try:
        judge = array.view("<i2").reshape(-1, *others).shape
    except ValueError:
        judge = None
    if nbytes < offset:
        judge = None
    try:
        found = raw_layout("<i2", (-1, *others), offset=offset, order="C", file_nbytes=nbytes).shape
    except LayoutError:
        found = None
    assert found == judge


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("<i8", None, 1), "which is 7 more than 14 times 8 bytes.*write 14 instead of -1"),
        (("<i2", (-1, 7), 0), "which is 8 more than 8 times 14 bytes"),
        (("<i2", (61,), 0), r"takes 122 bytes, file holds 120 after offset 0"),
        (("<i2", (1,), 200), "offset 200 lies outside the file, which holds 120 bytes"),
        (("<i2", (-1, -1), 0), "leaves open what -1 stands for"),
        (("<i2", (-1, 0), 0), "leaves open what -1 stands for"),
        (("V0", None, 0), "leaves open what -1 stands for"),
        (("<i2", (-2,), 0), "no negative length"),
        (("<i2", None, -1), "offset -1 lies outside the file"),
        (("O", None, 0), "Python objects"),
        ((("<i2", (3,)), None, 0), r"write int16 and add \(3,\) to shape"),
    ],
)
def test_a_raw_array_that_is_not_in_the_file_is_a_layout_error(samples, arguments, sentence):
    dtype, shape, offset = arguments
    with pytest.raises(LayoutError, match=f"^{samples}: .*{sentence}"):
        open_raw(samples, dtype, shape, offset=offset)


def test_an_order_that_is_none_is_refused(samples):
    with pytest.raises(LayoutError, match='order must be "C" or "F"'):
        open_raw(samples, "u1", order="A")


@pytest.mark.parametrize(
    "read",
    [mmchunks.open_npy, mmchunks.from_npy, mmchunks.load, lambda p: mmchunks.sliding_window(p, 2)],
)
def test_an_incomplete_target_is_read_with_a_warning(tmp_path, read):
    path = str(tmp_path / "out.npy")
    scenarios = [(7, 2), (8, 3), (1, 0)]
    mmchunks.sweep(divmod, scenarios, path, on_error="record", progress=False)
    with pytest.warns(UserWarning, match=r"out\.npy: only 2 of 3 rows are done \(66\.7%\)") as seen:
        read(path)
    assert seen[0].filename == __file__
    mmchunks.plan(path)  # says nothing of the data
    os.utime(path)
    with pytest.warns(UserWarning, match="only 2 of 3"):
        x = mmchunks.from_npy(path, device="cpu")
    os.utime(path)  # as a worker that goes on writing does
    assert x[1].compute(scheduler="sync").tolist() == [2, 2]


def test_a_file_that_took_the_name_of_a_target_is_no_target(tmp_path):
    path = str(tmp_path / "out.npy")
    mmchunks.sweep(divmod, [(7, 2), (1, 0)], path, on_error="record", progress=False)
    np.save(tmp_path / "other.npy", np.zeros(3))
    os.replace(tmp_path / "other.npy", path)
    assert mmchunks.load(path, device="cpu").shape == (3,)


_FORKS = """
import os, signal, sys, threading
from mmchunks.files import npy
from mmchunks import open_npy

held, go = threading.Event(), threading.Event()

def hold():
    with npy.FILTERS:  # as another thread does while it reads a header
        held.set()
        go.wait(0.3)

threading.Thread(target=hold).start()
assert held.wait(10)
child = os.fork()
if not child:
    signal.alarm(10)
    open_npy(sys.argv[1])
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_opens_files_whatever_other_threads_did(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3))
    command = [sys.executable, "-W", "ignore", "-c", _FORKS, str(tmp_path / "x.npy")]
    assert subprocess.run(command, check=False).returncode == 0

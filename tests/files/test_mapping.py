"""Maps of regions, judged by np.load and counted in /proc/self."""

import gc
import os
import resource
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.errors import StaleFileError
from mmchunks.files import identity
from mmchunks.files.layout import Layout
from mmchunks.files.mapping import map_region
from tests.conftest import maps_of


def maps_in_bytes(path):
    """Lengths of the maps of this process that name `path`."""
    text = Path("/proc/self/maps").read_text()
    lines = [x.split()[0] for x in text.splitlines() if x.endswith(path)]
    return [int(stop, 16) - int(start, 16) for start, stop in (x.split("-") for x in lines)]


def write(path, array, offset=0):
    """Write `array` in its own order after `offset` bytes; give its layout."""
    order = "C" if array.flags.c_contiguous else "F"
    path.write_bytes(bytes(offset) + array.tobytes("A"))
    return Layout(shape=array.shape, dtype=array.dtype, order=order, offset=offset)


def mapped(path, layout, region):
    fd = os.open(path, os.O_RDONLY)
    try:
        return map_region(fd, layout[region])
    finally:
        os.close(fd)


@pytest.fixture
def file(tmp_path):
    """16 pages of bytes that count up, as (path, layout, array)."""
    array = np.arange(2**16, dtype="<u4").astype("u1").reshape(256, 256)
    return str(tmp_path / "f"), write(tmp_path / "f", array), array


@st.composite
def regions(draw, shape):
    starts = [draw(st.integers(0, n)) for n in shape]
    return tuple(slice(a, draw(st.integers(a, n))) for a, n in zip(starts, shape, strict=True))


DTYPES = [
    "?", "u1", "<i2", ">f8", "<c16", "f2", "g", "<M8[ns]", "S3", "<U2", "V5", "V0",
    [("a", "<f4"), ("b", ">i2", (2,))], [("n", [("x", "u1"), ("y", "<f8")])],
]  # fmt: skip


@given(st.data())
def test_every_region_equals_what_numpy_selects(tmp_path_factory, data):
    shape = tuple(data.draw(st.lists(st.integers(0, 7), max_size=4)))
    dtype = np.dtype(data.draw(st.sampled_from(DTYPES)))
    nbytes = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(0).integers(0, 2, nbytes, dtype="u1")  # valid as bool and text
    array = np.ndarray(shape, dtype, buffer=raw, order=data.draw(st.sampled_from("CF")))
    layout = write(tmp_path_factory.getbasetemp() / "m", array, data.draw(st.integers(0, 9000)))
    region = data.draw(regions(shape))
    block = mapped(tmp_path_factory.getbasetemp() / "m", layout, region)
    judge = array[(*region, ...)]
    assert (block.shape, block.dtype) == (judge.shape, judge.dtype)
    assert block.tobytes() == judge.tobytes()


def test_a_sub_array_dtype_adds_axes_as_numpy_does(tmp_path):
    np.arange(24, dtype="f4").tofile(tmp_path / "s")
    dtype = np.dtype(("f4", (2,)))
    layout = Layout(shape=(3, 4), dtype=dtype)
    judge = np.memmap(tmp_path / "s", dtype, "r", shape=(3, 4))
    block = mapped(tmp_path / "s", layout, (slice(1, 3), slice(1, 3)))
    np.testing.assert_array_equal(block, judge[1:3, 1:3])


def test_only_the_pages_of_the_region_are_mapped(file):
    path, layout, array = file
    block = mapped(path, layout, (slice(17, 33), slice(0, 256)))  # bytes 4352 to 8448
    np.testing.assert_array_equal(block, array[17:33])
    assert maps_in_bytes(path) == [2 * 4096]


def test_a_map_lives_exactly_as_long_as_its_last_view(file):
    path, layout, array = file
    block = mapped(path, layout, layout.whole)
    view = block[3:5, 1:]
    del block
    np.testing.assert_array_equal(view, array[3:5, 1:])
    assert maps_of(path) == 1
    del view
    gc.collect()
    assert maps_of(path) == 0


def test_nothing_that_a_block_shows_can_close_its_map(file):
    path, layout, array = file
    block = owner = mapped(path, layout, layout.whole)
    while (owner := getattr(owner, "base", None)) is not None:
        assert not hasattr(owner, "close")
    np.testing.assert_array_equal(block, array)


def test_maps_go_in_whatever_thread_their_last_view_dies(file):
    path, layout, _ = file
    block = [mapped(path, layout, layout.whole)]
    thread = threading.Thread(target=block.clear)
    thread.start()
    thread.join()
    assert maps_of(path) == 0


def test_a_map_lies_where_huge_pages_can_be_mapped_in_one_piece(tmp_path):
    nbytes, huge = 16 << 20, 2 << 20
    np.zeros(nbytes, "u1").tofile(tmp_path / "f")
    layout = Layout(shape=(nbytes - 5000,), dtype=np.dtype("u1"), offset=5000)
    addresses = {mapped(tmp_path / "f", layout, layout.whole).ctypes.data for _ in range(3)}
    judge = np.memmap(tmp_path / "f", "u1", "r", offset=4096)
    if (judge.ctypes.data - 4096) % huge:
        pytest.skip("this kernel does not align maps of files")
    assert all((address - 5000) % huge == 0 for address in addresses)


def test_blocks_are_writable_and_the_file_never_changes(file):
    path, layout, array = file
    before = Path(path).read_bytes()
    block = mapped(path, layout, layout.whole)
    block[:] = 7
    assert (block == 7).all()
    assert Path(path).read_bytes() == before == array.tobytes()


def test_maps_hold_no_descriptors(file):
    path, layout, _ = file
    before = len(os.listdir("/proc/self/fd"))
    blocks = [mapped(path, layout, (slice(i, i + 1), slice(0, 256))) for i in range(100)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(blocks) == 100


def test_a_file_larger_than_memory_can_be_mapped_whole(tmp_path):
    os.truncate(os.open(tmp_path / "big", os.O_CREAT | os.O_RDWR), 2**42)
    layout = Layout(shape=(2**42,), dtype=np.dtype("u1"))
    assert mapped(tmp_path / "big", layout, layout.whole)[-1] == 0


@pytest.mark.parametrize("keep", [0, 1, 65_535])
def test_a_truncated_file_is_stale_not_a_signal(file, keep):
    path, layout, _ = file
    os.truncate(path, keep)
    with pytest.raises(StaleFileError, match=rf"^{path}.* end at 65,536, the file holds {keep:,};"):
        mapped(path, layout, layout.whole)


def test_the_bytes_of_a_deleted_or_replaced_file_stay(file):
    path, layout, array = file
    block = mapped(path, layout, layout.whole)
    Path(path + ".new").write_bytes(bytes(layout.nbytes))
    os.replace(path + ".new", path)
    os.unlink(path)
    np.testing.assert_array_equal(block, array)


def test_a_descriptor_is_named_after_its_file(file):
    fd = os.open(file[0], os.O_RDONLY)
    assert identity.path_of(fd) == file[0]
    os.close(fd)
    assert identity.path_of(fd) == f"file descriptor {fd}"
    with pytest.raises(OSError, match="Bad file"):
        identity.require(fd, 1)


def test_nothing_is_mapped_that_the_kernel_refuses(file, tmp_path):
    _, layout, _ = file
    fd = os.open(tmp_path, os.O_RDONLY)
    resource.getpagesize()
    with pytest.raises(OSError, match=rf"^{tmp_path}: cannot be mapped \(no such device\)"):
        map_region(fd, Layout(shape=(1,), dtype=np.dtype("u1"))[slice(0, 1),])
    os.close(fd)
    assert layout.nbytes == 65_536

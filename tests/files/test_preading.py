"""Reads of regions, judged by numpy and by the slow list of their bytes."""

import fcntl
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmchunks.errors import StaleFileError
from mmchunks.files import preading
from mmchunks.files.blocks import dense
from mmchunks.files.layout import Layout
from tests.files.test_layout import bytes_of, layouts_and_regions

PIECE = 4 << 20


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """8 MiB of noise, as (descriptor, array of bytes)."""
    path = tmp_path_factory.mktemp("reading") / "noise"
    array = np.random.default_rng(0).integers(0, 256, 8 << 20, dtype="u1")
    array.tofile(path)
    fd = os.open(path, os.O_RDONLY)
    yield fd, array
    os.close(fd)


@pytest.fixture
def calls(monkeypatch):
    """Bytes that each call to preadv asks for."""
    asked, preadv = [], os.preadv

    def counted(fd, buffers, offset):
        asked.append(sum(len(buffer) for buffer in buffers))
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", counted)
    return asked


def read(fd, layout, region, *, direct=False, threads=1, piece_nbytes=PIECE):
    memory = np.zeros(layout[region].nbytes, "u1")
    out = dense(memory, layout[region])
    preading.read_region(
        fd, layout[region], out, direct=direct, threads=threads, piece_nbytes=piece_nbytes
    )
    return memory


@given(
    layouts_and_regions(),
    st.booleans(),
    st.integers(1, 2),
    st.integers(1, 40),
    st.sampled_from([0, 3, 30, 16_384]),
    st.sampled_from([1, 16, 100, 4 << 20]),
)
def test_every_region_is_read_as_its_bytes_in_the_file(
    noise, case, direct, threads, piece, gap, scratch
):
    (fd, array), (layout, region) = noise, case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preading, "_SHORT_GAP_NBYTES", gap)
        patch.setattr(preading, "_SCRATCH_NBYTES", scratch if not direct else 4 << 20)
        found = read(fd, layout, region, direct=direct, threads=threads, piece_nbytes=piece)
    np.testing.assert_array_equal(found, array[bytes_of(layout, region)])


@given(layouts_and_regions(), st.data())
def test_any_range_of_the_stream_can_be_read_alone(noise, case, data):
    (fd, array), (layout, region) = noise, case
    judge = array[bytes_of(layout, region)]
    start = data.draw(st.integers(0, len(judge)))
    found = np.zeros(data.draw(st.integers(0, len(judge) - start)), "u1")
    if len(judge):
        preading.read_range(fd, layout[region].runs, start, memoryview(found))
    np.testing.assert_array_equal(found, judge[start : start + len(found)])


@given(st.integers(0, 10_000), st.integers(0, 5_000_000), st.integers(0, 9), st.booleans())
@settings(max_examples=30)
def test_direct_reads_give_equal_bytes_from_any_offset(noise, offset, nbytes, shift, threads):
    fd, array = noise
    layout = Layout(shape=(nbytes,), dtype=np.dtype("u1"), offset=offset)
    out = np.zeros(nbytes + shift + 4096, "u1")
    out = out[shift + -out.ctypes.data % 4096 :][:nbytes]  # shift 0: on a page
    preading.read_region(
        fd, layout[layout.whole], out, direct=True, threads=1 + threads, piece_nbytes=1 << 20
    )
    np.testing.assert_array_equal(out, array[offset : offset + nbytes])


def test_the_end_of_a_file_off_a_page_can_be_read_directly(tmp_path):
    array = np.arange(5000, dtype="u2").view("u1")[:9999]
    array.tofile(tmp_path / "f")
    layout = Layout(shape=(9999,), dtype=np.dtype("u1"))
    with open(tmp_path / "f", "rb") as file:
        np.testing.assert_array_equal(read(file.fileno(), layout, layout.whole, direct=True), array)


def test_direct_reads_go_around_the_page_cache(noise, monkeypatch):
    flags, preadv = [], os.preadv

    def noted(fd, buffers, offset):
        flags.append(fcntl.fcntl(fd, fcntl.F_GETFL))
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", noted)
    layout = Layout(shape=(1 << 20,), dtype=np.dtype("u1"))
    read(noise[0], layout, layout.whole, direct=True)
    assert flags
    assert all(flag & os.O_DIRECT for flag in flags)


def test_a_file_system_that_refuses_at_the_first_read_is_read_through_the_cache(noise, monkeypatch):
    fd, array = noise
    layout = Layout(shape=(100,), dtype=np.dtype("u1"))
    preadv = os.preadv

    def refusing(fd, buffers, offset):
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", refusing)
    with pytest.warns(RuntimeWarning, match="noise: its file system refuses O_DIRECT"):
        found = read(fd, layout, layout.whole, direct=True)
    np.testing.assert_array_equal(found, array[:100])


def test_a_file_system_without_direct_reads_is_read_through_the_cache(noise, monkeypatch):
    fd, array = noise
    layout = Layout(shape=(100,), dtype=np.dtype("u1"))
    real = os.open

    def refusing(path, flags):
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(path, flags)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.warns(RuntimeWarning, match="noise: its file system refuses O_DIRECT"):
        found = read(fd, layout, layout.whole, direct=True)
    np.testing.assert_array_equal(found, array[:100])


def test_tiny_runs_do_not_cost_a_call_each(noise, calls):
    layout = Layout(shape=(2048, 1024), dtype=np.dtype("u4"))
    read(noise[0], layout, (slice(0, 2048), slice(5, 6)))
    assert len(calls) == 2  # 2048 runs of 4 bytes, within 8 MiB


def test_tiny_runs_in_two_axes_do_not_cost_a_call_each(noise, calls):
    layout = Layout(shape=(100_000, 3, 4), dtype=np.dtype("u1"))
    read(noise[0], layout, (slice(0, 100_000), slice(0, 2), slice(0, 2)))
    assert len(calls) == 1


def test_wide_gaps_are_not_read(noise, calls):
    layout = Layout(shape=(16, 512 << 10), dtype=np.dtype("u1"))
    read(noise[0], layout, (slice(0, 16), slice(100, 1100)))
    assert calls == [1000] * 16


def test_a_contiguous_region_is_read_in_pieces(noise, calls):
    layout = Layout(shape=(6 << 20,), dtype=np.dtype("u1"))
    read(noise[0], layout, layout.whole)
    assert calls == [4 << 20, 2 << 20]


def test_warming_asks_for_the_region_and_takes_no_fresh_memory(noise, calls):
    fd, _ = noise
    layout = Layout(shape=(4, 2 << 20), dtype=np.dtype("u1"))
    preading.warm(fd, layout[slice(0, 4), slice(0, 1 << 20)])
    assert sum(calls) == 4 << 20
    scratch = preading._scratch.sink
    preading.warm(fd, layout[layout.whole])
    assert preading._scratch.sink is scratch
    assert len(scratch) == 4 << 20


@pytest.mark.parametrize("direct", [False, True])
def test_a_truncated_file_is_stale(tmp_path, direct):
    (tmp_path / "f").write_bytes(bytes(5000))
    layout = Layout(shape=(6000,), dtype=np.dtype("u1"))
    with open(tmp_path / "f", "rb") as file:
        with pytest.raises(StaleFileError, match=f"^{tmp_path}/f: .* 6,000, the file holds 5,000"):
            read(file.fileno(), layout, layout.whole, direct=direct)
        with pytest.raises(StaleFileError, match="ended at 5,000 while it was being read"):
            preading.warm(file.fileno(), layout[layout.whole])


@pytest.mark.parametrize("direct", [False, True])
def test_truncation_during_a_read_is_stale(tmp_path, direct, monkeypatch):
    (tmp_path / "f").write_bytes(bytes(5000))
    monkeypatch.setattr(preading, "require", lambda *_: None)
    layout = Layout(shape=(6000,), dtype=np.dtype("u1"))
    with (
        open(tmp_path / "f", "rb") as file,
        pytest.raises(StaleFileError, match="ended at 5,000 while it was being read"),
    ):
        read(file.fileno(), layout, layout.whole, direct=direct)


def test_threads_end_with_the_read_and_descriptors_are_closed(noise):
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    layout = Layout(shape=(8 << 20,), dtype=np.dtype("u1"))
    read(noise[0], layout, layout.whole, direct=True, threads=2)
    assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before

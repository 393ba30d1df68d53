"""One region, every way, judged by numpy; and files that change on the way."""

import errno
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mmchunks.cli.commands import main
from mmchunks.errors import DeviceError, LayoutError, PlanError, StaleFileError
from mmchunks.files import blocks, mapping, mounts, sources
from mmchunks.files.layout import Span
from mmchunks.gpu import gds
from mmchunks.reading import loading, pagecache, regions
from mmchunks.reading.opening import open_npy, open_raw
from tests.conftest import maps_of
from tests.files.test_layout import bytes_of, layouts_and_regions

WAYS = ["mmap", "pread", "direct", "auto"]


@pytest.fixture(params=WAYS)
def io(request):
    return request.param


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    path = tmp_path_factory.mktemp("loading") / "noise"
    array = np.random.default_rng(0).integers(0, 256, 100_000, dtype="u1")
    array.tofile(path)
    return path, array


@given(layouts_and_regions(), st.booleans())
def test_every_way_gives_the_same_bytes(noise, case, cold):
    (path, array), (layout, region) = noise, case
    source = open_raw(path, layout.dtype, layout.shape, offset=layout.offset, order=layout.order)
    judge = np.ndarray(layout.shape, layout.dtype, array, layout.offset, order=layout.order)
    judge = judge[(*region, ...)]
    if cold:
        with source.opened() as fd:
            pagecache.evict(fd, Span(offset=0, nbytes=array.nbytes))
    for io in WAYS:
        block = regions.block(source, region, io=io, device="cpu")
        assert (block.shape, block.dtype) == (judge.shape, judge.dtype)
        assert block.tobytes() == judge.tobytes()
        assert block.flags.writeable
        out = np.zeros(judge.shape, judge.dtype, order=layout.order)
        loading._load(source, region, device="cpu", io=io, out=out)
        assert out.tobytes() == judge.tobytes()
    assert len(bytes_of(layout, region)) == judge.nbytes


@pytest.mark.parametrize(
    "region", [None, ..., slice(3, 9), (slice(-10, None), slice(2, 5)), (..., slice(0, 1))]
)
def test_load_selects_as_numpy_does(ramp, region, io):
    path, array = ramp
    judge = array if region is None else array[region]
    np.testing.assert_array_equal(loading.load(path, region, io=io), judge)


def test_load_raw_reads_what_tofile_wrote(tmp_path, io):
    array = np.arange(60, dtype=">i2").reshape(5, 12)
    (tmp_path / "f").write_bytes(b"header" + array.tobytes())
    block = loading.load_raw(tmp_path / "f", ">i2", (-1, 12), slice(1, 3), offset=6, io=io)
    np.testing.assert_array_equal(block, array[1:3])
    fortran = loading.load_raw(tmp_path / "f", ">i2", (12, 5), offset=6, order="F", io=io)
    np.testing.assert_array_equal(fortran, array.T)


def test_out_is_filled_and_returned(ramp, io):
    path, array = ramp
    out = np.empty((10, 17), "f4")
    assert loading.load(path, slice(5, 15), io=io, out=out) is out
    np.testing.assert_array_equal(out, array[5:15])


@pytest.mark.parametrize(
    "out",
    [
        np.empty((10, 16), "f4"),
        np.empty((10, 17), "f8"),
        np.empty((10, 17), "f4", order="F"),
        np.empty((20, 17), "f4")[::2],
        np.broadcast_to(np.float32(0), (10, 17)),
    ],
)
def test_an_out_that_does_not_suit_says_what_to_write(ramp, out, io):
    with pytest.raises(
        LayoutError, match=rf"^{ramp[0]}: .*write np.empty\(\(10, 17\), \"float32\""
    ):
        loading.load(ramp[0], slice(5, 15), io=io, out=out)


def test_a_block_never_changes_the_file(ramp, io):
    path, _ = ramp
    before = Path(path).read_bytes()
    loading.load(path, io=io)[:] = -1
    assert Path(path).read_bytes() == before


def truncate(path):
    os.truncate(path, 1000)


def rewrite(path):
    with open(path, "r+b") as file:
        file.seek(500)
        file.write(b"other")
    os.utime(path, ns=(1, 1))


def replace(path):
    Path(path + ".new").write_bytes(Path(path).read_bytes())
    os.replace(path + ".new", path)


CHANGES = [truncate, rewrite, replace, os.unlink]


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_before_the_read_is_stale(ramp, change, io):
    source = open_npy(ramp[0])
    change(ramp[0])
    with pytest.raises(StaleFileError, match=f"^{source.path}"):
        regions.block(source, source.layout.whole, io=io, device="cpu")


@pytest.mark.parametrize("way", ["pread", "direct"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changes_during_the_read_is_stale(ramp, change, way, monkeypatch):
    source, read = open_npy(ramp[0]), regions.read_region

    def read_while_it_changes(*arguments, **options):
        read(*arguments, **options)
        change(ramp[0])

    monkeypatch.setattr(regions, "read_region", read_while_it_changes)
    with pytest.raises(StaleFileError, match=f"^{source.path}"):
        regions.block(source, source.layout.whole, io=way, device="cpu")


@pytest.mark.parametrize("change", [replace, os.unlink])
def test_blocks_outlive_their_file(ramp, change, io):
    path, array = ramp
    block = loading.load(path, io=io)
    change(path)
    np.testing.assert_array_equal(block, array)


def test_a_read_block_survives_truncation_and_a_mapped_one_is_killed_as_documented(ramp):
    code = (
        "import os, sys\n"
        "from mmchunks.reading.loading import load\n"
        "block = load(sys.argv[1], io=sys.argv[2])\n"
        "os.truncate(sys.argv[1], 0)\n"
        "print(block[500, 0])\n"
    )

    def run(io, path):
        command = [sys.executable, "-c", code, path, io]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    Path(ramp[0] + ".copy").write_bytes(Path(ramp[0]).read_bytes())
    assert run("pread", ramp[0]).stdout == "8500.0\n"
    assert run("mmap", ramp[0] + ".copy").returncode == -7  # SIGBUS


def test_auto_maps_what_is_warm_and_warms_what_is_cold(ramp, monkeypatch):
    path, array = ramp
    source, warmed = open_npy(path), []
    monkeypatch.setattr(regions, "warm", lambda *arguments: warmed.append(arguments))
    for resident, times in [(1.0, 0), (0.0, 1)]:
        monkeypatch.setattr(regions, "resident_fraction", lambda *_, part=resident: part)
        block = regions.block(source, source.layout.whole, io="auto", device="cpu")
        np.testing.assert_array_equal(block, array)
        assert maps_of(path) == 1
        assert len(warmed) == times
        del block


def test_auto_maps_nothing_that_other_hosts_may_write(ramp, monkeypatch):
    mount = mounts.find("/x", "1 0 0:1 / / rw - nfs4 host:/x rw", readahead_nbytes=None)
    monkeypatch.setattr(regions, "mount_of", lambda _: mount)
    block = loading.load(ramp[0])
    assert maps_of(ramp[0]) == 0
    np.testing.assert_array_equal(block, ramp[1])


def test_auto_reads_where_no_more_maps_are_to_be_had(ramp, monkeypatch):
    def refuse(*_):
        raise OSError(12, "no more maps")

    monkeypatch.setattr(regions, "map_region", refuse)
    np.testing.assert_array_equal(loading.load(ramp[0]), ramp[1])
    with pytest.raises(OSError, match="no more maps"):
        loading.load(ramp[0], io="mmap")


def test_any_number_of_blocks_may_live(ramp, monkeypatch):
    limit = len(mapping._live) + 10
    monkeypatch.setattr(mapping, "_most_maps", lambda: limit)
    monkeypatch.setattr(mapping, "_SPARE_MAPS", 10**6)
    blocks = [loading.load(ramp[0]) for _ in range(30)]
    assert all(np.array_equal(block, ramp[1]) for block in blocks)
    with pytest.raises(OSError, match=r"ramp\.npy: cannot be mapped.*vm\.max_map_count"):
        loading.load(ramp[0], io="mmap")
    blocks.clear()
    loading.load(ramp[0], io="mmap")


def test_want_of_memory_names_the_file_and_the_bytes(ramp, monkeypatch):
    def refuse(*_):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(blocks, "take", refuse)
    with pytest.raises(MemoryError, match=r"ramp\.npy: no memory for a block of 68,000 bytes"):
        loading.load(ramp[0], io="pread")


def test_a_route_tells_its_reason(ramp):
    source = open_npy(ramp[0])
    with source.opened() as fd:
        assert "page cache" in regions.route(source, fd, source.layout.whole, io="auto").reason


def test_explain_tells_the_way_and_why_on_either_device(ramp, cupy, monkeypatch):
    source = open_npy(ramp[0])
    assert regions.explain(source, device="cpu").startswith("mmap: ")
    assert regions.explain(source, io="pread", device="cpu") == 'pread: io="pread" was asked for'
    monkeypatch.setattr(gds, "refusal", lambda: "kvikio is not installed")
    told = regions.explain(source, io="gds", device="gpu")
    assert told == 'pread: io="gds" was asked for, but kvikio is not installed'
    gaps = regions.explain(source, (slice(0, 9), slice(0, 2)), io="direct", device="gpu")
    assert gaps.endswith("but the region has gaps, which only pread gathers")
    assert "too small" in regions.explain(source, device="gpu")
    command = ["plan", ramp[0], "--chunks", "100,-1", "--io", "gds", "--device", "gpu"]
    assert told in CliRunner().invoke(main, command).output.splitlines()[-1]


def test_reading_on_the_cpu_imports_no_dask(ramp):
    code = (
        "import sys, mmchunks as mm; mm.load(sys.argv[1], device='cpu');"
        "mm.load_raw(sys.argv[1], 'u1', device='cpu'); mm.to_device(b'12', device='cpu');"
        "print([m for m in ('dask', 'distributed', 'cupy') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, ramp[0]], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_a_region_costs_its_own_pages_only(tmp_path):
    np.save(tmp_path / "f.npy", np.zeros((256, 4096), "u1"))
    block = loading.load(tmp_path / "f.npy", slice(100, 101), io="mmap")
    lines = Path("/proc/self/maps").read_text().splitlines()
    (line,) = [line for line in lines if line.endswith("f.npy")]
    start, stop = (int(part, 16) for part in line.split()[0].split("-"))
    assert stop - start == 8192  # one row, at byte 128 of its page
    assert block.sum() == 0


def test_to_device_shows_any_buffer_without_a_copy(tmp_path):
    array = np.arange(12).astype("<M8[s]").reshape(3, 4, order="F")
    array.T.tofile(tmp_path / "f")
    with (
        open(tmp_path / "f", "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped,
    ):
        memmap = np.memmap(tmp_path / "f", "<M8[s]", "r", shape=(3, 4), order="F")
        for buffer in (mapped, memoryview(mapped), memmap, bytearray(mapped[:])):
            for dtype in (None, "u1", "<M8[s]"):
                view = loading.to_device(buffer, dtype)
                assert view.ndim == 1
                assert view.dtype == np.dtype(dtype or "u1")
                assert view.tobytes() == array.T.tobytes()
        view = loading.to_device(mapped)
        view[0] = 9
        assert mapped[0] == 9
        assert np.shares_memory(loading.to_device(memmap), memmap)
        del view, buffer


@pytest.mark.parametrize(
    ("buffer", "dtype", "sentence"),
    [
        (b"12345", "u2", "5 bytes are no whole number of uint16"),
        (b"", "V0", "no whole number"),
        (memoryview(b"12345")[::2], None, "copy it first"),
        (np.zeros((4, 4))[::2], None, "copy it first"),
    ],
)
def test_a_buffer_that_cannot_be_shown_says_why(buffer, dtype, sentence):
    with pytest.raises(LayoutError, match=sentence):
        loading.to_device(buffer, dtype)


def test_requests_that_cannot_be_met_are_sentences(ramp):
    with pytest.raises(DeviceError, match='device="gpu"'):
        loading.load(ramp[0], device="gpu")
    with pytest.raises(DeviceError, match='"cpu", "gpu" or "auto", got \'tpu\''):
        loading.to_device(b"", device="tpu")
    with pytest.raises(PlanError, match='io must be "auto"'):
        loading.load(ramp[0], io="mmpa")
    with pytest.raises(LayoutError, match=r'out is a list; device="cpu" fills a numpy.ndarray'):
        loading.load(ramp[0], device="cpu", out=[])
    with pytest.raises(LayoutError, match="slices only"):
        loading.load(ramp[0], 3)


@pytest.mark.parametrize(
    "refusal", [errno.ENODEV, errno.EACCES, errno.ENOMEM], ids=errno.errorcode.get
)
def test_a_mount_without_maps_is_read(ramp, monkeypatch, refusal):
    path, array = ramp

    def refuse(fd, subarray):
        raise OSError(refusal, "refused")

    monkeypatch.setattr(regions, "map_region", refuse)
    monkeypatch.setattr(sources, "map_region", refuse)
    np.testing.assert_array_equal(loading.load(path, device="cpu"), array)
    np.testing.assert_array_equal(open_npy(path)[3:9, ::-2], array[3:9, ::-2])
    with pytest.raises(OSError, match="refused"):
        loading.load(path, io="mmap", device="cpu")


@pytest.mark.parametrize("dtype", ["<U0", "|S0", "|V0"])
@pytest.mark.parametrize("shape", [(3,), (2, 0), ()])
@pytest.mark.parametrize("io", ["mmap", "pread", "direct"])
def test_text_of_no_length_is_what_numpy_reads(tmp_path, dtype, shape, io):
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array(file, np.ndarray(shape, dtype))
    wanted = np.load(tmp_path / "x.npy")
    found = loading.load(tmp_path / "x.npy", io=io, device="cpu")
    assert (found.dtype, found.shape, repr(found)) == (wanted.dtype, shape, repr(wanted))

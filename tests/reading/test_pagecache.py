"""What is resident: the three ways to know agree."""

import os

import numpy as np
import pytest

from mmchunks.files.layout import Span
from mmchunks.reading import pagecache

MIB = 1 << 20


@pytest.fixture
def fd(tmp_path):
    np.zeros(4 * MIB, "u1").tofile(tmp_path / "f")
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    os.fsync(fd)
    pagecache.evict(fd, Span(offset=0, nbytes=4 * MIB))
    if pagecache.resident_fraction(fd, Span(offset=0, nbytes=4 * MIB)) != 0:
        pytest.skip("this file system keeps its pages, or does not tell")
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead: exactly what is asked for
    yield fd
    os.close(fd)


@pytest.fixture(params=["cachestat", "mincore"])
def way(request, monkeypatch):
    if request.param == "mincore":
        monkeypatch.setattr(pagecache, "_by_cachestat", lambda *_: None)
        monkeypatch.setattr(pagecache, "_WINDOW_NBYTES", MIB)
    return request.param


@pytest.mark.usefixtures("way")
def test_the_part_that_was_read_is_resident(fd):
    os.pread(fd, MIB, MIB)
    fractions = [
        pagecache.resident_fraction(fd, Span(offset=offset, nbytes=nbytes))
        for offset, nbytes in [(0, 4 * MIB), (0, MIB), (MIB, MIB), (MIB + 10, 20), (0, 2 * MIB)]
    ]
    assert fractions == [0.25, 0, 1, 1, 0.5]


@pytest.mark.usefixtures("way")
def test_eviction_makes_a_span_cold(fd):
    os.pread(fd, 4 * MIB, 0)
    pagecache.evict(fd, Span(offset=0, nbytes=MIB))
    assert pagecache.resident_fraction(fd, Span(offset=0, nbytes=4 * MIB)) == 0.75


def test_nothing_is_known_where_the_kernel_does_not_say(fd, monkeypatch):
    monkeypatch.setattr(pagecache, "_by_cachestat", lambda *_: None)
    monkeypatch.setattr(pagecache, "_may_ask_mincore", lambda _: False)
    assert pagecache.resident_fraction(fd, Span(offset=0, nbytes=1)) is None


def test_no_bytes_are_always_there(fd):
    assert pagecache.resident_fraction(fd, Span(offset=5, nbytes=0)) == 1


def test_a_closed_descriptor_is_not_known(tmp_path, monkeypatch):
    monkeypatch.setattr(pagecache, "_may_ask_mincore", lambda _: True)
    fd = os.open(tmp_path, os.O_RDONLY)
    os.close(fd)
    assert pagecache.resident_fraction(fd, Span(offset=0, nbytes=1)) is None

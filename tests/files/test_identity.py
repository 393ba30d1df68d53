"""A file that took another's name is told from it, whatever they have in common."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mmchunks as mm
from mmchunks.errors import StaleFileError
from mmchunks.files.identity import identify


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1000, 128), "f4"))
    return str(tmp_path / "x.npy")


def save_anew(path):
    """ext4 hands the inode out again at once, and the length is the same."""
    os.unlink(path)
    np.save(path, np.zeros((500, 256), "i4"))


def save_the_same_anew(path):
    os.unlink(path)
    np.save(path, np.zeros((1000, 128), "f4"))


def rename_over(path):
    np.save(f"{path}.npy", np.zeros((500, 256), "i4"))
    os.replace(f"{path}.npy", path)


def copy_over(path):
    """What ``cp`` does: the same inode, born at the same moment, with other bytes."""
    np.save(f"{path}.npy", np.zeros((500, 256), "i4"))
    shutil.copyfile(f"{path}.npy", path)


def truncate(path):
    os.truncate(path, 1000)


REPLACE = [save_anew, save_the_same_anew, rename_over, copy_over, truncate, os.unlink]


def bytes_in(path):
    return Path(path).read_bytes() if os.path.exists(path) else None


def mapped(target):
    with target.map(slice(0, 3)) as view:
        view[...] = 1


WRITE = {
    "assign": lambda target: target.__setitem__(slice(0, 3), 1),
    "chunk": lambda target: target.write_chunk(slice(0, 3), 1),
    "map": mapped,
}


@pytest.mark.parametrize("begun", [False, True], ids=["fresh", "begun"])
@pytest.mark.parametrize("write", WRITE)
@pytest.mark.parametrize("replace_", REPLACE, ids=lambda function: function.__name__)
def test_a_stale_target_writes_into_no_other_file(path, replace_, write, begun):
    target = mm.open_target(path)
    if begun and replace_ is not copy_over:  # what is open already is that very file
        target[0] = 0
        target.flush()
    replace_(path)
    before = bytes_in(path)
    with pytest.raises(StaleFileError, match=r"x\.npy: "):
        WRITE[write](target)
    assert bytes_in(path) == before


@pytest.mark.parametrize("replace_", REPLACE, ids=lambda function: function.__name__)
def test_a_stale_source_reads_no_other_file(path, replace_):
    source = mm.open_npy(path)
    replace_(path)
    with pytest.raises(StaleFileError):
        source[0]


def test_what_is_not_known_is_not_compared(path):
    found = identify(path)
    for name in ("inode", "mtime_ns", "born_ns", "generation", "head_crc"):
        other = replace(found, **{name: 1})
        assert found.same(other) == (getattr(found, name) is None)
        assert replace(found, **{name: None}).same(other)
    assert not found.same(replace(found, nbytes=1))


def test_a_number_that_is_used_again_has_another_birth(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"1")
    first = identify(str(file))
    if first.born_ns is None:
        pytest.skip("this file system keeps no birth times")
    for _ in range(20):
        file.unlink()
        file.write_bytes(b"1")
        with file.open("rb") as opened:
            assert not first.same(replace(identify(opened.fileno()), mtime_ns=first.mtime_ns))

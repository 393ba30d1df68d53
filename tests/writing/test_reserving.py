"""A new file is all there, or nothing of it is."""

import errno
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from mmchunks.filling.checking import status
from mmchunks.filling.sweeping import sweep
from mmchunks.writing import reserving
from mmchunks.writing.reserving import create
from mmchunks.writing.targets import create_npy


def make(path, nbytes=10_000, **changes):
    options = {"reserve": True, "overwrite": False, "fill": None} | changes
    create(str(path), b"head", nbytes, **options)


def no_links(*_):
    raise PermissionError(errno.EPERM, "no hard links")


def without_links(monkeypatch):
    """Be on a file system without hard links, where no file can be without a name either."""
    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)


@contextmanager
def mounted(folder, *arguments):
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    subprocess.run(["mount", *arguments, str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a file system of 8 MiB."""
    with mounted(tmp_path, "-t", "tmpfs", "-o", "size=8m", "tmpfs"):
        yield tmp_path


def test_a_file_is_its_head_and_zeros(tmp_path):
    make(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"head" + bytes(9996)
    assert os.listdir(tmp_path) == ["a"]


def test_reserved_space_is_really_taken(tmp_path):
    make(tmp_path / "a", 2**20)
    make(tmp_path / "b", 2**20, reserve=False)
    assert (tmp_path / "a").stat().st_blocks * 512 >= 2**20
    assert (tmp_path / "b").stat().st_blocks * 512 < 2**16
    assert (tmp_path / "b").stat().st_size == 2**20


@pytest.mark.parametrize("reserve", [True, False])
def test_a_fill_is_repeated_to_the_end(tmp_path, reserve):
    nbytes = 4 + 3 * 2_000_001
    make(tmp_path / "a", nbytes, fill=b"xyz", reserve=reserve)
    assert (tmp_path / "a").read_bytes() == b"head" + b"xyz" * 2_000_001


def test_too_little_space_is_said_in_numbers_and_leaves_nothing(small_disk):
    with pytest.raises(
        OSError, match=r"a: needs 9,000,000 bytes, 8,388,608 bytes are free"
    ) as info:
        make(small_disk / "a", 9_000_000)
    assert info.value.errno == errno.ENOSPC
    assert os.listdir(small_disk) == []


@pytest.mark.parametrize("reserve", [True, False])
def test_space_that_somebody_takes_meanwhile_leaves_nothing(small_disk, reserve, monkeypatch):
    (small_disk / "other").write_bytes(bytes(5_000_000))
    monkeypatch.setattr(reserving, "free_nbytes", lambda _: 9_000_000)
    with pytest.raises(OSError, match="a: needs 5,000,000 bytes"):
        make(small_disk / "a", 5_000_000, reserve=reserve, fill=b"x")
    assert os.listdir(small_disk) == ["other"]
    (small_disk / "other").unlink()
    (small_disk / "next").write_bytes(bytes(8_000_000))  # nor is any space held


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_that_cannot_reserve_gets_a_sparse_file(tmp_path, code, monkeypatch):
    def cannot(*_):
        reserving.ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(reserving._libc, "fallocate", cannot)
    make(tmp_path / "a", 2**20)
    assert (tmp_path / "a").stat().st_size == 2**20


def test_an_existing_file_is_kept_unless_overwriting_is_asked_for(tmp_path):
    (tmp_path / "a").write_bytes(b"mine")
    with pytest.raises(FileExistsError, match="a: exists; pass overwrite=True"):
        make(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"mine"
    make(tmp_path / "a", overwrite=True)
    assert (tmp_path / "a").stat().st_size == 10_000
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_meanwhile_is_kept(tmp_path, links, monkeypatch):
    fsync = os.fsync

    def appear(fd):
        (tmp_path / "a").write_bytes(b"theirs")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", appear)
    if not links:
        without_links(monkeypatch)
    with pytest.raises(FileExistsError):
        make(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == ["a"]


def test_a_file_system_without_hard_links_gets_its_file(tmp_path, monkeypatch):
    without_links(monkeypatch)
    make(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]


def test_of_creators_at_once_exactly_one_succeeds(tmp_path):
    outcomes = []

    def attempt(start):
        start.wait()
        try:
            make(tmp_path / "a")
        except FileExistsError:
            outcomes.append("taken")
        else:
            outcomes.append("made")

    start = threading.Barrier(8)
    threads = [threading.Thread(target=attempt, args=(start,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["made"] + ["taken"] * 7
    assert os.listdir(tmp_path) == ["a"]


def test_a_reader_never_sees_a_half_made_file(tmp_path, monkeypatch):
    sizes = []
    fsync = os.fsync

    def look(fd):
        sizes.append(os.path.exists(tmp_path / "a"))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", look)
    make(tmp_path / "a", fill=b"x")
    assert sizes == [False, True]  # the file's bytes first, its name after them


def use_up(path):
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(2**26))


def test_btrfs_overwrites_in_place_when_full(tmp_path):
    image = tmp_path / "image"
    folder = tmp_path / "mount"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(48 * 2**20)
    try:
        subprocess.run(["mkfs.btrfs", "-q", "--mixed", str(image)], check=True, capture_output=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no btrfs here: {error}")
    with mounted(folder, "-o", "loop", str(image)):
        nbytes = 2**20  # btrfs is slow when it is full
        make(folder / "a", nbytes)
        with (folder / "a").open("r+b") as file:
            file.write(b"x" * nbytes)
            os.fsync(file.fileno())
            with pytest.raises(OSError, match="No space"):
                use_up(folder / "rest")
            file.seek(0)
            file.write(b"y" * nbytes)
            file.flush()
            os.fsync(file.fileno())
        assert set((folder / "a").read_bytes()) == {ord("y")}


def test_a_process_that_is_killed_leaves_nothing_behind(tmp_path):
    code = """
import os, signal, sys
from mmchunks.writing import reserving
reserving.os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
reserving.create(sys.argv[1], b"head", 2**20, reserve=True, overwrite=False, fill=b"x")
"""
    killed = subprocess.run([sys.executable, "-c", code, tmp_path / "out.bin"], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_errors_name_the_file_that_was_asked_for_and_its_folder(tmp_path):
    path = str(tmp_path / "nowhere" / "x.npy")
    sentence = rf"^{path}: there is no folder {tmp_path}/nowhere; make it first$"
    with pytest.raises(FileNotFoundError, match=sentence) as caught:
        create_npy(path, 3, "f4")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(FileNotFoundError, match=sentence):
        sweep(abs, [(1,)], path)
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "x.npy")
    for make in (lambda: create_npy(below, 3, "f4"), lambda: sweep(abs, [(1,)], below)):
        with pytest.raises(NotADirectoryError, match=rf"^{below}: there is no folder"):
            make()
    assert os.listdir(tmp_path) == ["file"]


def test_a_taken_name_is_told_path_first(tmp_path):
    create_npy(tmp_path / "x.npy", 3, "f4")
    with pytest.raises(FileExistsError, match=rf"^{tmp_path}/x.npy: exists") as caught:
        create_npy(tmp_path / "x.npy", 3, "f4")
    assert caught.value.errno == errno.EEXIST
    with pytest.raises(FileExistsError, match=rf"^{tmp_path}/x.npy: exists"):
        sweep(abs, [(1,)], tmp_path / "x.npy")


def test_what_is_not_there_has_no_status(tmp_path):
    with pytest.raises(FileNotFoundError, match=rf"^{tmp_path}/x.npy: no such file"):
        status(tmp_path / "x.npy")


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "link", "device"])
def test_nothing_but_a_file_is_overwritten(tmp_path, kind):
    path = tmp_path / "out.npy"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "nothing")
    elif os.getuid():
        pytest.skip("only root makes devices")
    else:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    before = os.lstat(path)
    with pytest.raises(FileExistsError, match=r"out\.npy: is .* not overwritten"):
        create_npy(path, 3, "u1", overwrite=True)
    assert os.path.samestat(os.lstat(path), before)
    assert os.listdir(tmp_path) == ["out.npy"]


def test_where_a_file_without_a_name_cannot_be_named_it_has_one_from_the_start(
    tmp_path, monkeypatch
):
    link = os.link

    def refuse(source, *arguments, **options):
        if str(source).startswith("/proc/self/fd"):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return link(source, *arguments, **options)

    monkeypatch.setattr(os, "link", refuse)
    create_npy(tmp_path / "out.npy", 3, "u1")
    assert np.load(tmp_path / "out.npy").shape == (3,)
    assert os.listdir(tmp_path) == ["out.npy"]


def test_what_killed_makers_left_is_cleared_and_nothing_else(tmp_path):
    dead = tmp_path / f".out.npy.{'0' * 32}.partial"
    other = tmp_path / f".other.npy.{'0' * 32}.partial"
    mine = tmp_path / ".out.npy.mine.partial"
    alive = tmp_path / f".out.npy.{'1' * 32}.partial"
    for file in (dead, other, mine, alive):
        file.touch()
    with alive.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        create_npy(tmp_path / "out.npy", 3, "u1")
    assert sorted(os.listdir(tmp_path)) == sorted([other.name, mine.name, alive.name, "out.npy"])

"""Mounts, judged by what the kernel lists."""

import os

import pytest

from mmchunks.files import mounts

MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:40 / /data rw shared:1 master:2 - nfs4 host:/export rw,vers=4.2,noalignwrite
31 30 0:41 / /data/two\040words\134x rw - fuse.sshfs me@host: rw
32 27 0:42 / /over rw - tmpfs tmpfs rw
33 27 0:43 / /over rw - beegfs beegfs rw
34 27 0:44 / /merged rw - overlay overlay rw,lowerdir=/l
"""


@pytest.mark.parametrize(
    ("path", "point", "kind", "local"),
    [
        ("/home/me/x.npy", "/", "ext4", True),
        ("/", "/", "ext4", True),
        ("/data", "/data", "nfs4", False),
        ("/data/x.npy", "/data", "nfs4", False),
        ("/database/x.npy", "/", "ext4", True),
        ("/data/two words\\x/y", "/data/two words\\x", "fuse.sshfs", False),
        ("/over/x", "/over", "beegfs", False),
        ("/merged/x", "/merged", "overlay", True),
    ],
)
def test_the_longest_mount_point_holds_a_path(path, point, kind, local):
    mount = mounts.find(path, MOUNTINFO, readahead_nbytes=None)
    assert (mount.point, mount.kind, mount.local) == (point, kind, local)


def test_options_of_the_mount_and_of_the_file_system_are_told():
    mount = mounts.find("/data/x", MOUNTINFO, readahead_nbytes=None)
    assert mount.options == {"rw", "vers=4.2", "noalignwrite"}


def test_what_the_kernel_does_not_tell_is_not_local():
    mount = mounts.find("/x", "", readahead_nbytes=None)
    assert (mount.kind, mount.local, mount.options) == ("unknown", False, frozenset())


def test_links_are_followed(tmp_path):
    (tmp_path / "link").symlink_to("/proc/self/status")
    assert mounts.mount_of(tmp_path / "link").kind == "proc"
    assert not mounts.mount_of(tmp_path / "link").local


def test_readahead_is_that_of_the_disk(tmp_path):
    mount = mounts.mount_of(tmp_path)
    device = os.stat(tmp_path).st_dev
    if os.major(device) == 0:
        assert mount.readahead_nbytes is None
    else:
        assert mount.readahead_nbytes >= 0
        assert mount.readahead_nbytes % 1024 == 0


def test_a_path_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        mounts.mount_of(tmp_path / "nothing")

"""Two hosts on one machine: two mounts of one folder, each with a page cache of its own.

    host A: kernel cache of mount A --.
                                       >-- READ, WRITE, FSYNC --> one folder, the "server"
    host B: kernel cache of mount B --'

Run as a script this file is one mount. Its mode says what such a client does with a write:

    through         sends it at once, as exact bytes
    back            keeps whole pages, and sends them later
    back-keep       the same, and never asks whether the file changed on the server
    direct          has no cache, and so no shared maps
    back-granule    keeps folios of 2 MiB, and sends all of one when a byte of it was written, as
                    clients of network file systems with large folios do
    back-refusing   as back, and refuses O_DIRECT

FUSE itself keeps 4 KiB pages, so the granule is played here: what comes out of the kernel's cache
is widened to 2 MiB of what this host last knew of the server. What is written past the cache is not.
"""

# ruff: noqa: ARG002  (the names of arguments are those of mfusepy)
from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

MODES = ["through", "back", "back-keep", "direct", "back-granule", "back-refusing"]
GRANULE = 2 * 2**20
_WRITEBACK_CACHE = 1 << 16  # FUSE_CAP_WRITEBACK_CACHE


@contextmanager
def two_hosts(folder, mode):
    """Mount ``folder/server`` as ``folder/A`` and ``folder/B``, each by a process of its own."""
    places = [folder / name for name in ("server", "A", "B")]
    for place in places:
        place.mkdir()
    hosts = [Host(places[0], place, mode) for place in places[1:]]
    try:
        for host in hosts:
            host.wait()
        yield hosts
    finally:
        for host in hosts:
            host.stop()


class Host:
    """One mount, and the process that serves it."""

    def __init__(self, server, folder, mode):
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(server), str(folder), mode],
            env=os.environ | {"FUSE_LIBRARY_NAME": "fuse3"},
        )

    def wait(self):
        deadline = time.monotonic() + 30
        while not os.path.ismount(self.folder):
            assert self._process.poll() is None, "the mount failed"
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def crash(self):
        """Lose what the host had not sent yet, as when its power is cut."""
        self._process.kill()
        self._process.wait()

    def stop(self):
        subprocess.run(["fusermount3", "-u", "-z", str(self.folder)], check=False)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self.crash()


def serve(server, folder, mode):
    import mfusepy

    class Client(mfusepy.Operations):
        use_ns = True

        def __init__(self):
            self.known = {}  # (path, number) -> what this host last knew of a granule

        def at(self, path):
            return server + path

        def init_with_config(self, conn_info, config_3):
            if mode.startswith("back"):
                conn_info.want |= _WRITEBACK_CACHE
            keep = mode == "back-keep"
            config_3.use_ino = 1
            config_3.kernel_cache = int(keep)
            config_3.attr_timeout = config_3.entry_timeout = float(keep)
            config_3.negative_timeout = 0.0

        def getattr(self, path, fh=None):
            found = os.lstat(self.at(path))
            names = ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_ino")
            times = {f"st_{kind}time": getattr(found, f"st_{kind}time_ns") for kind in "amc"}
            return {name: getattr(found, name) for name in names} | times

        def readdir(self, path, fh):
            names = os.listdir(self.at(path))
            return [(name, self.getattr(os.path.join(path, name)), 0) for name in names]

        def statfs(self, path):
            found = os.statvfs(self.at(path))
            names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail")
            return {name: getattr(found, name) for name in names}

        def opened(self, path, fi, flags, mode_bits=0o666):
            if mode == "back-refusing" and fi.flags & os.O_DIRECT:
                raise OSError(errno.EINVAL, "no direct writes here")
            # To fill a page of its cache the kernel reads through a file that was opened to write.
            fi.fh = os.open(self.at(path), os.O_RDWR | flags, mode_bits)
            fi.direct_io = int(mode == "direct")
            fi.keep_cache = int(mode == "back-keep")
            return 0

        def open(self, path, fi):
            return self.opened(path, fi, 0)

        def create(self, path, mode, fi):
            return self.opened(path, fi, os.O_CREAT | fi.flags & os.O_EXCL, mode)

        def read(self, path, size, offset, fi):
            self.granules(path, offset, size, fi.fh)
            return os.pread(fi.fh, size, offset)

        def write(self, path, data, offset, fi):
            for start, known in self.granules(path, offset, len(data), fi.fh):
                first, last = max(offset, start), min(offset + len(data), start + GRANULE)
                known[first - start : last - start] = data[first - offset : last - offset]
                if fi.writepage:  # out of the cache, not past it
                    os.pwrite(fi.fh, known, start)
            return os.pwrite(fi.fh, data, offset)

        def granules(self, path, offset, nbytes, fd):
            starts = range(offset // GRANULE * GRANULE, offset + nbytes, GRANULE)
            if mode != "back-granule" or not path.endswith(".npy"):
                return []
            for start in starts:
                if (path, start) not in self.known:
                    self.known[path, start] = bytearray(os.pread(fd, GRANULE, start))
            return [(start, self.known[path, start]) for start in starts]

        def fsync(self, path, datasync, fi):
            os.fsync(fi.fh)
            return 0

        def release(self, path, fi):
            os.close(fi.fh)
            return 0

        def flush(self, path, fi):
            return 0

        def truncate(self, path, length, fi=None):
            os.truncate(self.at(path), length)
            return 0

        def utimens(self, path, times=None):  # a kernel that writes back owns the times
            os.utime(self.at(path), ns=None if times is None else tuple(map(int, times)))
            return 0

        def chmod(self, path, mode):
            os.chmod(self.at(path), mode)
            return 0

        def mkdir(self, path, mode):
            os.mkdir(self.at(path), mode)
            return 0

        def rmdir(self, path):
            os.rmdir(self.at(path))
            return 0

        def unlink(self, path):
            os.unlink(self.at(path))
            return 0

        def link(self, target, source):
            os.link(self.at(source), self.at(target))
            return 0

        def rename(self, old, new):
            os.rename(self.at(old), self.at(new))
            return 0

    mfusepy.FUSE(Client(), folder, foreground=True, nothreads=True, raw_fi=True, fsname="two_hosts")


if __name__ == "__main__":
    serve(*sys.argv[1:])

"""Is it still our file that is written, and was every write heard of?

The kernel reports a lost write once to every opening of a file, and then says that all is well.
So a chunk that is written down as done has an opening of its own, and assignments, which are
flushed together, share one that is never trusted again after a flush of it has failed.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from mmchunks.errors import StaleFileError, os_error
from mmchunks.files.identity import Identity, head_crc, identify, require_same
from mmchunks.writing import pages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from mmchunks.writing.pages import Output

__all__ = ["Handle"]

_THEN = "nothing was written"


class Handle:
    """Opens one file for writing, as long as it is the same; safe to share by threads.

    Parameters
    ----------
    path : str
        The file.
    identity : Identity
        What it was when it was opened first. Its time of change says nothing: it is written.
    head_nbytes : int
        Length of its header, whose bytes must stay, in bytes.
    local : bool
        Whether no other host can have it open.
    """

    def __init__(self, path: str, identity: Identity, *, head_nbytes: int, local: bool) -> None:
        self._path = path
        self._identity = identity.timeless
        self._head_nbytes = head_nbytes
        self._local = local
        self._turn = threading.Lock()
        self._lost = False
        self._shared: Output | None = None
        self._cached: Output | None = None
        self._open = ExitStack()
        weakref.finalize(self, self._open.close)

    @contextmanager
    def opened(self) -> Iterator[Output]:
        """Open the file for one chunk.

        Yields
        ------
        Output
            Closed when the block ends.

        Raises
        ------
        StaleFileError
            If it was truncated, replaced or deleted.
        """
        with self._checked() as output:
            yield output

    def shared(self, *, cached: bool = False) -> Output:
        """Give the one opening for everything that `flush` speaks of; it stays open.

        Parameters
        ----------
        cached : bool
            Whether to write through the page cache.

        Raises
        ------
        StaleFileError
            If the file was truncated, replaced or deleted.
        OSError
            If a flush has failed.
        """
        with self._turn:
            self._require_nothing_lost()
            if self._shared is None or self._cached is None:
                self._shared = self._open.enter_context(self._checked())
                self._cached = replace(self._shared, direct=None)
                found = os.fstat(self._shared.fd)
                self._file = (found.st_dev, found.st_ino, found.st_size)
            else:
                self._require_still_there()
            return self._cached if cached else self._shared

    def flush(self) -> None:
        """Make durable what was written through `shared`.

        Raises
        ------
        OSError
            If the kernel lost a write, now or at an earlier flush.
        """
        with self._turn:
            self._require_nothing_lost()
            if self._shared is not None:
                self._lost = True
                pages.flush(self._shared)
                self._lost = False

    def _checked(self) -> AbstractContextManager[Output]:
        return _checked(self._path, self._identity, self._head_nbytes, local=self._local)

    def _require_still_there(self) -> None:
        """Look whether the path still names what is open: no other file has its inode meanwhile."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            require_same(self._path, self._identity, None, then=_THEN)
            raise
        if (found.st_dev, found.st_ino, found.st_size) != self._file:
            require_same(self._path, self._identity, identify(self._path), then=_THEN)
            msg = f"{self._path}: is another file than the one that is open; {_THEN}"
            raise StaleFileError(msg)

    def _require_nothing_lost(self) -> None:
        if self._lost:
            msg = (
                f"{self._path}: a flush failed before, and the kernel reports lost writes once; "
                "open it again, and write anew what was written since the last good flush"
            )
            raise os_error(errno.EIO, msg)


@contextmanager
def _checked(path: str, identity: Identity, head_nbytes: int, *, local: bool) -> Iterator[Output]:
    """Open a file, if it is the one that it was."""
    # Not a method: what is entered for good would hold its handle, and never be let go.
    with ExitStack() as stack:
        try:
            output = stack.enter_context(pages.opened(path, local=local))
        except (FileNotFoundError, NotADirectoryError):
            require_same(path, identity, None, then=_THEN)
            raise
        found = identify(output.fd)
        if found.nbytes >= head_nbytes:
            found = replace(found, head_crc=head_crc(output.fd, head_nbytes))
        require_same(path, identity, found, then=_THEN)
        yield output

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
from typing import TYPE_CHECKING

from mmchunks.errors import os_error
from mmchunks.files.identity import Identity, require_same
from mmchunks.writing import pages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mmchunks.writing.pages import Output

__all__ = ["Handle"]


class Handle:
    """Opens one file for writing, as long as it is the same; safe to share by threads.

    Parameters
    ----------
    path : str
        The file.
    identity : Identity
        What it was when it was opened first. Only its inode and length must stay: it is written.
    local : bool
        Whether no other host can have it open.
    """

    def __init__(self, path: str, identity: Identity, *, local: bool) -> None:
        self._path = path
        self._identity = identity
        self._local = local
        self._turn = threading.Lock()
        self._lost = False
        self._shared: Output | None = None
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
        self._require_same(self._path)
        with pages.opened(self._path, local=self._local) as output:
            self._require_same(output.fd)
            yield output

    def shared(self) -> Output:
        """Give the one opening for everything that `flush` speaks of; it stays open.

        Raises
        ------
        StaleFileError
            If the file was truncated, replaced or deleted.
        OSError
            If a flush has failed.
        """
        with self._turn:
            self._require_nothing_lost()
            self._require_same(self._path)
            if self._shared is None:
                self._shared = self._open.enter_context(pages.opened(self._path, local=self._local))
            self._require_same(self._shared.fd)
            return self._shared

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

    def _require_same(self, where: str | int) -> None:
        try:
            found = Identity.of(os.stat(where))
        except FileNotFoundError:
            found = None
        require_same(self._path, self._identity.timeless, found, then="nothing was written")

    def _require_nothing_lost(self) -> None:
        if self._lost:
            msg = (
                f"{self._path}: a flush failed before, and the kernel reports lost writes once; "
                "open it again, and write anew what was written since the last good flush"
            )
            raise os_error(errno.EIO, msg)

"""Are these the bytes that were written? A checksum that carries the name of its algorithm.

XXH3, because CRC-32 takes longer than a fast disk takes to write the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xxhash

from mmchunks.errors import JournalError

if TYPE_CHECKING:
    from mmchunks.files.layout import Block

__all__ = ["Checksum"]

_ALGORITHMS: dict[str, Any] = {"xxh3_64": xxhash.xxh3_64}


class Checksum:
    """A checksum of bytes that come in pieces.

    Parameters
    ----------
    like : str
        The name of an algorithm, or a checksum that was made by it.

    Raises
    ------
    JournalError
        If the algorithm is unknown here.

    Examples
    --------
    >>> checksum = Checksum()
    >>> checksum.update(b"bytes")
    >>> str(checksum)
    'xxh3_64:d30345fef8ac3570'
    """

    def __init__(self, like: str = "xxh3_64") -> None:
        self._algorithm = like.partition(":")[0]
        if self._algorithm not in _ALGORITHMS:
            msg = (
                f"checksum {like!r} is of an unknown algorithm; known are {', '.join(_ALGORITHMS)}: "
                "use the version of mmchunks that wrote it, or a newer one"
            )
            raise JournalError(msg)
        self._state = _ALGORITHMS[self._algorithm]()

    def update(self, data: bytes | Block) -> None:
        """Take in the next piece."""
        self._state.update(data)

    def __str__(self) -> str:
        return f"{self._algorithm}:{self._state.hexdigest()}"

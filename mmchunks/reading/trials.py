"""Which of several ways is the fastest here? Each is tried once, and the winner remembered."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

__all__ = ["Trials", "Verdict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The way that won, and how every way did."""

    way: str
    """Name of the fastest way."""

    seconds: Mapping[str, float]
    """What each way took, in seconds; only those that worked."""

    refused: Mapping[str, str]
    """Why each other way did not work."""

    @property
    def reason(self) -> str:
        """A sentence for ``explain()``."""
        times = [f"{way} {took:.4f} s" for way, took in sorted(self.seconds.items())]
        return ", ".join(times + [f"{way}: {why}" for way, why in sorted(self.refused.items())])


class Trials:
    """Winners by mount and device, for as long as the process lives.

    Notes
    -----
    Safe to share among threads; a key is tried by one of them, and the others wait for it.
    """

    def __init__(self) -> None:
        self._verdicts: dict[Hashable, Verdict] = {}
        self._lock = threading.Lock()

    def winner(self, key: Hashable, ways: Mapping[str, Callable[[], float]]) -> Verdict:
        """Find the fastest way, by trying all of them if `key` is new.

        Parameters
        ----------
        key : hashable
            What the answer depends on: the mount, the device, whether the file is cached.
        ways : mapping of str to callable
            Each tries one way and returns the seconds that it took. A way may refuse by an
            exception; it then cannot win. They run in the order of the mapping, which also
            decides a tie.

        Returns
        -------
        Verdict
            Of this or the first call with that `key`.

        Raises
        ------
        Exception
            What the last way raised, if none works.

        Examples
        --------
        >>> trials = Trials()
        >>> trials.winner("/data", {"pread": lambda: 0.2, "direct": lambda: 0.1}).way
        'direct'
        """
        with self._lock:
            if key not in self._verdicts:
                self._verdicts[key] = _try_all(ways)
            return self._verdicts[key]


def _try_all(ways: Mapping[str, Callable[[], float]]) -> Verdict:
    seconds: dict[str, float] = {}
    refused: dict[str, str] = {}
    last: Exception | None = None
    for way, attempt in ways.items():
        try:
            seconds[way] = attempt()
        except Exception as error:  # noqa: BLE001  what a way cannot do says nothing of the others
            refused[way] = str(error)
            last = error
    if not seconds and last is not None:
        raise last
    return Verdict(way=min(seconds, key=seconds.__getitem__), seconds=seconds, refused=refused)

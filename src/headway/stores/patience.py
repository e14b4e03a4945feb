"""How long a call waits for its store: counted from when it was asked for.

A call from an event loop waits for a thread first. While the store does not answer, those who
came before keep all threads, each for as long as one may wait, and whoever comes after them
would wait many times as long.
"""

from __future__ import annotations

import _thread
import time

from headway.errors import StoreUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

_asked = _thread._local()  # noqa: SLF001 - without loading threading


def since(asked_at: float, call: Callable[[], T]) -> T:
    """Make a call that was asked for at that moment."""
    _asked.at = asked_at
    try:
        return call()
    finally:
        del _asked.at


def keep_quiet() -> None:
    """Nobody waits for what this thread asks, from now on."""
    _asked.is_quiet = True


def is_kept_quiet() -> bool:
    """Whether that was said of the present thread."""
    return getattr(_asked, "is_quiet", False)


def listening(call: Callable[[], T]) -> T:
    """Make a call whose failure ends nobody's wait: it is made again."""
    _asked.is_listening = True
    try:
        return call()
    finally:
        del _asked.is_listening


def is_listening() -> bool:
    """Whether the present call is such a one."""
    return getattr(_asked, "is_listening", False)


class Patience:
    """Of all who ask one store in this process."""

    __slots__ = ("_in_vain_at", "_name", "_reason", "seconds")

    def __init__(self, name: str, seconds: float) -> None:
        self._name, self.seconds = name, seconds
        self._in_vain_at, self._reason = 0.0, ""

    def left_seconds(self) -> float:
        """How long a call may wait from now on; whoever has waited that long hears why in vain."""
        now = time.monotonic()
        asked_at: float = getattr(_asked, "at", now)
        if asked_at >= self._in_vain_at:  # there was a crowd at most, and its turn has come
            return self.seconds
        left = asked_at + self.seconds - now
        if left <= 0:
            raise StoreUnavailable(self._name, self._reason)
        return left

    def in_vain(self, reason: str) -> StoreUnavailable:
        """Somebody has waited for as long as one may; what that one is told."""
        self._in_vain_at, self._reason = time.monotonic(), reason
        return StoreUnavailable(self._name, reason)

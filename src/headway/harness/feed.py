"""The way from the thread that listens to a program to the event loop of its caller."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# So many wait at most for a loop that is busy; then nothing more is read for a while.
_MANY = 1000
_AT_ONCE = 100


class Feed(Generic[T]):
    """Hands things over in order. Whoever has too many of them waiting is asked to pause."""

    def __init__(self, hear: Callable[[T], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._hear = hear
        self._waiting: deque[T] = deque()
        self._is_drained = True
        self.is_closed = False
        self._lock = threading.Lock()
        # Called on the loop when there is room again.
        self.has_room: Callable[[], None] = lambda: None

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= _MANY

    def put(self, thing: T) -> None:
        """Hand one over, from any thread; nobody gets it if the loop is closed."""
        with self._lock:
            self._waiting.append(thing)
            if not self._is_drained:
                return
            self._is_drained = False
        try:
            self._loop.call_soon_threadsafe(self._drain)
        except RuntimeError:
            self._waiting.clear()
            self.is_closed = True

    def _drain(self) -> None:
        was_full = self.is_full
        for _ in range(_AT_ONCE):
            with self._lock:
                self._is_drained = not self._waiting
                if self._is_drained:
                    break
                thing = self._waiting.popleft()
            self._hear(thing)
        else:
            self._loop.call_soon(self._drain)
        if was_full and not self.is_full:
            self.has_room()

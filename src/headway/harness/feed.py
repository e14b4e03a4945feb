"""The way from the thread that listens to a program to the event loop of its caller."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# So many, made of so much output, wait at most for a loop that is busy; then nothing more is
# read for a while.
_MANY = 1000
_MUCH_BYTES = 16 << 20
_AT_ONCE = 100


class Feed(Generic[T]):
    """Hands things over in order. Whoever has too many of them waiting is asked to pause."""

    def __init__(self, hear: Callable[[T], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._hear = hear
        self._waiting: deque[T] = deque()
        self._load = 0
        self._is_drained, self._is_paused = True, False
        self._lock = threading.Lock()
        # Called on the loop when there is room again.
        self.has_room: Callable[[], None] = lambda: None

    @property
    def is_closed(self) -> bool:
        """Whether nobody will ever hear of anything."""
        return self._loop.is_closed()

    def pauses(self) -> bool:
        """Whether to bring no more until ``has_room`` is called."""
        with self._lock:
            self._is_paused = self._is_full
            return self._is_paused

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) >= _MANY or bool(self._waiting and self._load >= _MUCH_BYTES)

    def loads(self, amount: int) -> None:
        """So many bytes are to be made into things, or were."""
        with self._lock:
            self._load += amount

    def put(self, thing: T) -> None:
        """Hand one over, from any thread; nobody gets it if the loop is closed."""
        with self._lock:
            self._waiting.append(thing)
            if not self._is_drained:
                return
            self._is_drained = False
        try:
            self._loop.call_soon_threadsafe(self._drain, context=self._context.copy())
        except RuntimeError:
            self._waiting.clear()

    def _drain(self) -> None:
        for _ in range(_AT_ONCE):
            with self._lock:
                if not self._waiting:
                    self._is_drained, self._load = True, 0
                    break
                thing = self._waiting.popleft()
            try:
                self._hear(thing)
            except BaseException:
                self._loop.call_soon(self._drain)
                raise
        else:
            self._loop.call_soon(self._drain)
        with self._lock:
            is_free_again = self._is_paused and not self._is_full
            self._is_paused = self._is_paused and not is_free_again
        if is_free_again:
            self.has_room()

"""Ending one call from outside: by a handle, or because its callback raised."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self


class Cancellation:
    """Ends the executions that it was given to, from any thread. It stays cancelled.

    They return a result with the status ``cancelled``. What was cancelled before never starts.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._watchers: dict[object, Callable[[str], None]] = {}

    @property
    def reason(self) -> str | None:
        """Why, if it was cancelled."""
        return self._reason

    @property
    def is_cancelled(self) -> bool:
        return self._reason is not None

    def cancel(self, reason: str = "cancelled by its caller") -> None:
        """End them; a second time changes nothing."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            watchers = list(self._watchers.values())
        for watcher in watchers:
            watcher(reason)

    def watch(self, watcher: Callable[[str], None]) -> Callable[[], None]:
        """Call the watcher when it is cancelled, or now if it was; the answer ends that."""
        with self._lock:
            reason = self._reason
            if reason is None:
                self._watchers[watcher] = watcher
        if reason is not None:
            watcher(reason)
        return lambda: self._forget(watcher)

    def _forget(self, watcher: object) -> None:
        with self._lock:
            self._watchers.pop(watcher, None)


class Scope:
    """The present task inside a ``with`` block that others may end.

    What waits there is cancelled, and the block is left as if nothing had been raised;
    ``trouble`` or ``reason`` says why. Whoever runs something there that has to be ended in
    its own way says so with ``instead``.
    """

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._loop = task, asyncio.get_running_loop()
        self._before = task.cancelling()
        self._is_open = self._has_cancelled = False
        self.reason: str | None = None
        self.trouble: BaseException | None = None
        self.instead: Callable[[str], None] | None = None

    def interrupt(self, reason: str, trouble: BaseException | None = None) -> None:
        """Have the block left, from any thread; the first reason counts."""
        try:
            self._loop.call_soon_threadsafe(self._interrupt, reason, trouble)
        except RuntimeError:
            pass  # the loop is closed, and with it the block

    def _interrupt(self, reason: str, trouble: BaseException | None) -> None:
        if not self._is_open or self.reason is not None:
            return
        self.reason, self.trouble = reason, trouble
        if self.instead is not None:
            self.instead(reason)
        else:
            self._has_cancelled = True
            self._task.cancel()

    def __enter__(self) -> Self:
        self._is_open = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._is_open = False
        if not self._has_cancelled:
            return False
        is_ours_alone = self._task.uncancel() <= self._before
        return is_ours_alone and kind is asyncio.CancelledError

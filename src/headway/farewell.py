"""Ending a whole family of processes: ask, wait for a grace period, kill."""

from __future__ import annotations

import time

from headway import family
from headway.lean import signal

# The children of a command often end a moment after it.
LEAVE_SECONDS = 0.2
_INSIST_SECONDS = 0.1


class Farewell:
    """First everyone is asked to end; who is still there after the grace period is killed."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._blow: int = signal.SIGTERM
        self._next_blow: float | None = None

    @property
    def has_begun(self) -> bool:
        return self._next_blow is not None

    def begin(self, *, after_seconds: float = 0.0) -> None:
        """Ask them after so long; earlier if that was said before."""
        if self._blow == signal.SIGTERM:
            begins = time.monotonic() + after_seconds
            self._next_blow = begins if self._next_blow is None else min(begins, self._next_blow)

    def strike(self) -> None:
        """Do what it is time for."""
        if self._next_blow is None or time.monotonic() < self._next_blow:
            return
        family.tell(self._blow)
        if self._blow == signal.SIGTERM:
            family.tell(signal.SIGCONT)
            self._blow, wait = signal.SIGKILL, self._grace_seconds
        else:
            wait = _INSIST_SECONDS
        self._next_blow = time.monotonic() + wait

    @property
    def patience_seconds(self) -> float | None:
        """How long to wait before ``strike`` has something to do; none before it has begun."""
        return None if self._next_blow is None else max(0.0, self._next_blow - time.monotonic())

"""Jobs that could not be started, and when to try again: each time after a longer while."""

from __future__ import annotations

import time

_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 60.0


class Delays:
    """Those that wait for another try."""

    def __init__(self) -> None:
        self._due: dict[int, float] = {}
        # How long each had to wait last time, until it starts or is given up.
        self._waits: dict[int, float] = {}

    def __contains__(self, job: int) -> bool:
        return job in self._due

    def __bool__(self) -> bool:
        return bool(self._due)

    def put_off(self, job: int) -> None:
        """Try this one again in a while."""
        wait = min(_LONGEST_SECONDS, 2 * self._waits.get(job, _FIRST_SECONDS / 2))
        self._waits[job], self._due[job] = wait, time.monotonic() + wait

    def take_due(self) -> list[int]:
        """Those whose time has come."""
        now = time.monotonic()
        due = [job for job, at in self._due.items() if at <= now]
        for job in due:
            del self._due[job]
        return due

    def forget(self, job: int) -> None:
        """It has started, or is not to be started any more."""
        self._due.pop(job, None)
        self._waits.pop(job, None)

    def seconds_left(self) -> float | None:
        """How long until the next one's time has come."""
        return min(self._due.values()) - time.monotonic() if self._due else None

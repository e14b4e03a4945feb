"""What a worker does because time has passed: expiry, delayed retries, forgetting."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.jobs.bell import Bells
    from headway.jobs.board import Board
    from headway.jobs.messenger import Messengers

_EVERY_SECONDS, _LEAST_SECONDS = 60.0, 0.01


class Chores:
    """Those of one worker: now and then, and when the next thing is due."""

    def __init__(
        self,
        home: str,
        board: Board,
        bells: Bells,
        messengers: Messengers,
        *,
        say: Callable[[str], None],
    ) -> None:
        self._home, self._board, self._bells, self._say = home, board, bells, say
        self._messengers = messengers
        self._next = 0.0

    def seconds_left(self) -> float:
        """How long until there is something to do."""
        return self._next - time.monotonic()

    def seconds_to_next(self) -> float | None:
        """How long until a job expires or is retried; nothing if none does."""
        times = (self._board.seconds_to_expiry(), self._board.retries.seconds_to_release())
        return min((one for one in times if one is not None), default=None)

    def hurry(self) -> None:
        """Jobs have changed: the next thing may be due sooner than all that was known."""
        soon = self.seconds_to_next()
        if soon is not None:
            self._next = min(self._next, time.monotonic() + max(_LEAST_SECONDS, soon))

    def do_if_due(self) -> None:
        """Do them all, if one is due."""
        now = time.monotonic()
        if now < self._next:
            return
        changed = [*self._board.expire(), *self._board.retries.release_due()]
        if changed:
            self._bells.ring(changed)
        self._prune()
        self._messengers.look()
        soon = self.seconds_to_next()
        wait = _EVERY_SECONDS if soon is None else min(_EVERY_SECONDS, soon)
        self._next = now + max(_LEAST_SECONDS, wait)

    def _prune(self) -> None:
        """Forget what was kept long enough; say so if nobody had seen it."""
        settings, archive = self._board.settings, self._board.archive
        keep = settings.keep_seconds
        before = None if keep is None else time.time() - keep
        pruned = archive.prune(ended_before=before, keep=settings.keep_count)
        if pruned.unread:
            archive.note_dropped(pruned.unread)
            self._say(f"{len(pruned.unread)} finished jobs were dropped that nobody had seen")
        pruned.remove_logs(self._home)
        if settings.retry_within_seconds is not None:
            archive.drop_environments(ended_before=time.time() - settings.retry_within_seconds)
        archive.scrub()

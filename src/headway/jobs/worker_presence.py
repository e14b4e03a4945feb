"""Whether a worker runs, whether one is wanted, and what a crash has left unwritten.

Everybody who looks at jobs comes by here first, so that all see the same: an attempt whose
worker and supervisor were killed is over, although nobody was left to write that down.
"""

from __future__ import annotations

import time

from headway.jobs.post import Post
from headway.jobs.starting import ensure_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from headway.jobs.bell import Bells
    from headway.jobs.board import Board

# So often one who waits looks for a worker that is gone, and starts another at most so often.
_LOOK_SECONDS, _START_SECONDS = 1.0, 5.0
_FACT = "worker off"


class WorkerPresence:
    """The worker of one home, seen from outside."""

    def __init__(self, home: str, board: Board, bells: Bells, environ: Mapping[str, str]) -> None:
        self._home, self._board, self._bells, self._environ = home, board, bells, environ
        self._next_look = self._next_start = 0.0

    def holder(self) -> tuple[int, float] | None:
        """Its pid and since when it runs; none if there is none."""
        return Post(self._home).holder()

    def ensure(self) -> None:
        """Start one if none runs; ``NotStartable`` if that is not possible."""
        ensure_worker(self._home, self._environ)

    def is_lacking(self) -> bool:
        """Whether jobs are queued and no worker runs."""
        self.settle()
        return self._has("select 1 from jobs where state = 'queued' limit 1") and not self.holder()

    def ensure_if_wanted(self) -> bool:
        """Start one if jobs lack it, unless somebody wants none; whether one was started."""
        now = time.monotonic()
        if now < self._next_start or not self.is_lacking() or is_off(self._board) is not None:
            return False
        self._next_start = now + _START_SECONDS
        self.ensure()
        return True

    def settle(self) -> None:
        """Write down the end of attempts that were killed together with their worker.

        A worker that runs does that itself; this is for the time until there is one.
        """
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        if self._has("select 1 from attempts where ended_at is null") and not self.holder():
            from headway.jobs.aftermath import Aftermath  # noqa: PLC0415 - after a crash only

            Aftermath(self._home, self._board, self._bells, woken=-1).settle_dead()

    def _has(self, query: str) -> bool:
        if not self._board.database.exists():
            return False
        return self._board.database.read(
            lambda connection: connection.execute(query).fetchone() is not None
        )


def is_off(board: Board) -> tuple[str, float] | None:
    """How and when somebody said that no worker shall run; none if nobody did."""

    def read(connection: sqlite3.Connection) -> tuple[str, float] | None:
        query = "select value from facts where name = ?"
        found = connection.execute(query, (_FACT,)).fetchone()
        if found is None:
            return None
        at, _, how = found[0].partition(" ")
        return how, float(at)

    return board.database.read(read)


def note_off(board: Board, how: str) -> None:
    """Somebody wants no worker: only who asks for one in so many words starts it."""
    value = f"{time.time():.3f} {how}"
    board.database.change(
        lambda found: found.execute("insert or replace into facts values (?, ?)", (_FACT, value))
    )


def note_on(board: Board) -> None:
    """A worker runs, so somebody wanted one."""
    if is_off(board) is not None:
        board.database.change(
            lambda found: found.execute("delete from facts where name = ?", (_FACT,))
        )

"""Jobs that are run again: by themselves after a while, or because somebody asks for it.

A job that waits for its retry has one thing more that is unmet, so it stands in no line;
it keeps its place for the time after.
"""

from __future__ import annotations

import time

from headway import clocks
from headway.errors import ConfigError
from headway.jobs import dependencies, rows
from headway.jobs.intake import refuse_if_over
from headway.jobs.states import FAILED, FINISHED, HELD, QUEUED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from headway.jobs.board import Board
    from headway.jobs.states import Ending

# Each retry waits twice as long as the one before, up to this.
LONGEST_DELAY_SECONDS = 600.0
_DELAYED = "from jobs indexed by jobs_delayed where delayed_until is not null"
_RELEASE = "revision = ?, unmet = unmet - 1, delayed_until = null"


class Retries:
    """Those of one board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def promised(self, connection: sqlite3.Connection, job: int, ending: Ending) -> str | None:
        """Queue a job again if that was promised for such an end; its new state, or nothing."""
        retries, retried, cancel_reason, options = connection.execute(
            "select retries, retried, cancel_reason, options from jobs where id = ?", (job,)
        ).fetchone()
        if not ending.may_run_again or retried >= retries or cancel_reason is not None:
            return None
        chosen = rows.from_json(options)
        if not _is_retried(ending, chosen.get("retry_on", ["any"])):  # type: ignore[arg-type]
            return None
        settings = self._board.settings
        is_held = settings.approve in ("retries", "always")
        first: float = chosen.get("retry_delay_seconds", settings.retry_delay_seconds)  # type: ignore[assignment]
        delay = 0.0 if is_held or ending.is_of_worker else delay_seconds(first, retried)
        until = clocks.boot_microseconds() + int(delay * 1e6) if delay else None
        state = HELD if is_held else QUEUED
        # At its old place, because it waited for that already.
        connection.execute(
            "update jobs set revision = ?, state = ?, retried = retried + 1, unmet = ?,"
            " delayed_until = ? where id = ?",
            (rows.next_revision(connection), state, 1 if until else 0, until, job),
        )
        when = f"to be retried in {delay:g} s" if delay else "to be retried"
        self._board.news.tell(connection, job, "queued", when)
        return state

    def by_hand(self, job: int) -> str | None:
        """Queue a finished job again, at the end, or end the delay of one that waits for its retry.

        Its new state, or nothing if it has not ended. It waits again for the jobs that it
        comes after; ``ConfigError`` if one of these will never succeed, or if its
        environment was dropped.
        """
        board = self._board

        def work(connection: sqlite3.Connection) -> str | None:
            if release(connection, job):
                return QUEUED
            if rows.state_of(connection, job) not in FINISHED:
                return None
            _refuse_beside_namesake(connection, job)
            _refuse_without_environment(connection, job)
            unmet = dependencies.renew(connection, job)
            connection.execute(
                "update jobs set retried = 0, cancel_reason = null, unmet = ?, is_read = 0,"
                " ended_at = null, exit_code = null, end_reason = null,"
                " expire_at = ? + expire_seconds,"
                " due = ? + cast(expire_seconds * 1e6 as integer) where id = ?",
                (unmet, time.time(), clocks.boot_microseconds(), job),
            )
            if board.settings.approve in ("retries", "always"):
                connection.execute(
                    "update jobs set revision = ?, state = 'held' where id = ?",
                    (rows.next_revision(connection), job),
                )
                state = HELD
            else:
                board.queue(connection, job)
                state = QUEUED
            refuse_if_over(connection, 1, board.settings.max_jobs)
            return state

        return board.database.change(work)

    def release_due(self) -> list[int]:
        """Let the jobs stand in line whose delay is over; which these are."""
        now = clocks.boot_microseconds()
        query = f"select id {_DELAYED} and delayed_until <= ?"
        database = self._board.database
        if not database.read(lambda found: found.execute(query, (now,)).fetchone()):
            return []

        def work(connection: sqlite3.Connection) -> list[int]:
            jobs = [job for (job,) in connection.execute(query, (now,)).fetchall()]
            for job in jobs:
                release(connection, job)
            return jobs

        return database.change(work)

    def seconds_to_release(self) -> float | None:
        """How long until the next delay is over."""
        query = f"select min(delayed_until) {_DELAYED}"
        until: int | None = self._board.database.read(
            lambda connection: connection.execute(query).fetchone()[0]
        )
        return None if until is None else (until - clocks.boot_microseconds()) / 1e6


def release(connection: sqlite3.Connection, job: int) -> bool:
    """End the delay of a job; false if it has none."""
    changed = connection.execute(
        f"update jobs set {_RELEASE} where id = ? and delayed_until is not null",
        (rows.next_revision(connection), job),
    ).rowcount
    return changed > 0


def delay_seconds(first_seconds: float, retried: int) -> float:
    """How long a retry waits, after so many before it."""
    most = max(first_seconds, LONGEST_DELAY_SECONDS)
    # Beyond this many doublings it is the longest anyway, and floats have an end.
    return min(most, first_seconds * 2.0 ** min(retried, 60))


def _is_retried(ending: Ending, kinds: Sequence[str | int]) -> bool:
    """Whether one of the chosen kinds of end is this one."""
    is_code = ending.state == FAILED and ending.exit_code in kinds
    return "any" in kinds or ending.state in kinds or is_code


def _refuse_without_environment(connection: sqlite3.Connection, job: int) -> None:
    query = "select environment, ended_at from jobs where id = ?"
    environment, ended_at = connection.execute(query, (job,)).fetchone()
    if environment == rows.DROPPED:
        raise ConfigError(
            f"job {job} cannot be retried any more: it ended on"
            f" {time.strftime('%Y-%m-%d', time.localtime(ended_at))}, and its environment was"
            " dropped after jobs.retry_within; submit its command again,"
            f" which is shown by: headway show {job}"
        )


def _refuse_beside_namesake(connection: sqlite3.Connection, job: int) -> None:
    found = connection.execute(
        "select other.id, other.dedupe from jobs join jobs as other using (dedupe)"
        f" where jobs.id = ? and other.state in {rows.UNFINISHED_STATES}",
        (job,),
    ).fetchone()
    if found:
        raise ConfigError(
            f"job {job} cannot be queued again while job {found[0]} has not ended:"
            f" both have the name {found[1]!r} for --dedupe"
        )

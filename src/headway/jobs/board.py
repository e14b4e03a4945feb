"""The board: every change of a job's state, each in one durable transaction.

Whatever races, a job and an attempt get one end: each change names the state that
it starts from, and who comes second changes nothing.
"""

from __future__ import annotations

import os
import time

from headway import clocks
from headway.jobs import dependencies, rows
from headway.jobs.archive import Archive
from headway.jobs.database import JobsDatabase
from headway.jobs.intake import Intake
from headway.jobs.news import News
from headway.jobs.retries import Retries, release
from headway.jobs.rows import Beginning, Kept, Wish
from headway.jobs.states import (
    CANCELLED,
    EXPIRED,
    HELD,
    INTERRUPTED,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    UNFINISHED,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from headway.config import Settings
    from headway.jobs.orders import Order
    from headway.jobs.states import Ending

_EXPIRING = "indexed by jobs_to_expire where state in ('held', 'queued')"
_LONGEST_REASON = 1000


class Board:
    """The jobs of one home."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.boost = int(settings.boost_seconds * 1e6)
        self.database = JobsDatabase(settings.home, timeout_seconds=settings.store_timeout_seconds)
        self.archive = Archive(self.database)
        self.news = News(self.database, settings)
        self.retries = Retries(self)

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self._settings

    def heed(self, settings: Settings) -> None:
        """Have others in force from now on."""
        self._settings = self.news.settings = settings

    # -- coming in ------------------------------------------------------------------------

    def submit(
        self, orders: Sequence[Order], *, admit: Callable[[sqlite3.Connection], None] | None = None
    ) -> list[Kept]:
        """Keep the orders, all or none; durable when this returns.

        ``admit`` is called inside the transaction and raises if they must not be kept.
        """
        intake = Intake(self, orders)

        def work(connection: sqlite3.Connection) -> list[Kept]:
            if admit is not None:
                admit(connection)
            return intake.keep_all(connection)

        return self.database.change(work)

    # -- running --------------------------------------------------------------------------

    def wish(self, job: int) -> Wish | None:
        """What a queued job asks for; nothing if it is not queued any more."""
        found = self.wishes("id = ? and state = 'queued' and unmet = 0", job)
        return found[0] if found else None

    def wishes(self, condition: str, *values: object) -> list[Wish]:
        """What the jobs that fulfil a condition ask for."""
        query = f"select {rows.WISH_COLUMNS} from jobs where {condition}"
        return self.database.read(
            lambda connection: [Wish(row) for row in connection.execute(query, values)]
        )

    def begin(self, job: int, *, holder: str, lease: str) -> Beginning | None:
        """Start the next attempt of a queued job; nothing if it is not queued any more."""

        def work(connection: sqlite3.Connection) -> Beginning | None:
            row = connection.execute(
                "select command, directory, umask, variables, options, task, attempts"
                " from jobs join environments on environments.id = jobs.environment"
                " where jobs.id = ? and state = 'queued' and unmet = 0",
                (job,),
            ).fetchone()
            if row is None:
                return None
            now, number = time.time(), row[6] + 1
            connection.execute(
                "update jobs set revision = ?, state = 'running', attempts = ?, started_at = ?,"
                " expire_at = null, due = null, ended_at = null, exit_code = null,"
                " end_reason = null where id = ?",
                (rows.next_revision(connection), number, now, job),
            )
            connection.execute(
                "insert into attempts (job, number, holder, pid, lease, started_at, state)"
                " values (?, ?, ?, ?, ?, ?, 'running')",
                (job, number, holder, os.getpid(), lease, now),
            )
            self.news.tell(connection, job, "started")
            return Beginning(job, number, row)

        return self.database.change(work)

    def end(self, job: int, number: int, ending: Ending, *, holder: str) -> str | None:
        """End an attempt, and its job unless it is queued again; the job's state.

        Nothing if the attempt has ended before, or has another holder: then this is the
        board of another home that was made at the same path.
        """

        def work(connection: sqlite3.Connection) -> str | None:
            changed = connection.execute(
                "update attempts set ended_at = ?, state = ?, exit_code = ?, end_reason = ?,"
                " ended_by = ?, output_bytes = ?"
                " where job = ? and number = ? and holder = ? and ended_at is null",
                (
                    time.time() if ending.at is None else ending.at,
                    ending.state,
                    ending.exit_code,
                    ending.reason,
                    rows.as_json(ending.ended_by) if ending.ended_by else None,
                    ending.output_bytes,
                    job,
                    number,
                    holder,
                ),
            ).rowcount
            if not changed:
                return None
            again = self.retries.promised(connection, job, ending)
            if again is not None:
                return again
            (cancel_reason,) = connection.execute(
                "select cancel_reason from jobs where id = ?", (job,)
            ).fetchone()
            state, reason = ending.state, ending.reason
            if state == INTERRUPTED and cancel_reason is not None:
                state, reason = CANCELLED, cancel_reason
            return self.end_job(
                connection,
                job,
                state,
                exit_code=ending.exit_code,
                reason=reason,
                event=ending.event,
            )

        return self.database.change(work)

    def changed_since(self, revision: int) -> list[Wish]:
        """The jobs that changed after a change, the oldest change first."""
        return self.wishes("revision > ? order by revision", revision)

    def counts_ready(self) -> int:
        """How many jobs wait for nothing but their slots."""
        query = "select count(*) from jobs where state = 'queued' and unmet = 0"
        return self.database.read(lambda connection: int(connection.execute(query).fetchone()[0]))

    def under_way(self, job: int | None = None) -> list[tuple[int, int, str]]:
        """Attempts whose end is not written down: job, number, and who supervises it."""
        condition, values = ("", ()) if job is None else (" and job = ?", (job,))
        query = f"select job, number, holder from attempts where ended_at is null{condition}"
        return self.database.read(lambda connection: connection.execute(query, values).fetchall())

    def warn(self, job: int, warning: str) -> None:
        """Have people told of what it is warned of, as soon as its worker looks."""

        def work(connection: sqlite3.Connection) -> None:
            self.news.tell(connection, job, "warned", warning)
            revision = rows.next_revision(connection)
            connection.execute("update jobs set revision = ? where id = ?", (revision, job))

        self.database.change(work)

    # -- what people do ---------------------------------------------------------------------

    def cancel(self, job: int, reason: str) -> str | None:
        """End a job that waits, or note that one that runs shall be ended; its state before.

        Nothing if it has ended.
        """
        reason = reason[:_LONGEST_REASON]

        def work(connection: sqlite3.Connection) -> str | None:
            state = rows.state_of(connection, job)
            if state in (HELD, QUEUED):
                self.end_job(connection, job, CANCELLED, reason=reason)
            elif state == RUNNING:
                connection.execute(
                    "update jobs set revision = ?, cancel_reason = coalesce(cancel_reason, ?)"
                    " where id = ?",
                    (rows.next_revision(connection), reason, job),
                )
            return state if state in UNFINISHED else None

        return self.database.change(work)

    def approve(self, job: int) -> bool:
        """Queue a job that was held; its place is that of its approval."""

        def work(connection: sqlite3.Connection) -> bool:
            if rows.state_of(connection, job) != HELD:
                return False
            self.queue(connection, job)
            return True

        return self.database.change(work)

    def retry(self, job: int) -> str | None:
        """Queue a finished job again; see ``Retries.by_hand``."""
        return self.retries.by_hand(job)

    def queue(self, connection: sqlite3.Connection, job: int) -> None:
        """Inside a change: put a job at the end of the line."""
        self._arrive(connection, job)
        self.news.tell(connection, job, "queued")

    def _arrive(self, connection: sqlite3.Connection, job: int) -> None:
        arrival = rows.next_arrival(connection)
        connection.execute(
            "update jobs set revision = ?, state = 'queued', arrival = ?,"
            " rank = ? - priority * ? where id = ?",
            (rows.next_revision(connection), arrival, arrival, self.boost, job),
        )
        rows.note_arrival(connection, arrival)

    def move_first(self, job: int, *, before: int | None) -> bool:
        """Put a queued job in front of all other jobs, and of the given rank."""

        def work(connection: sqlite3.Connection) -> bool:
            if rows.state_of(connection, job) != QUEUED:
                return False
            release(connection, job)  # who wants it next does not want it to wait for its retry
            (least,) = connection.execute(
                "select min(rank) from jobs where state = 'queued'"
            ).fetchone()
            rank = min(least, least if before is None else before) - 1
            (arrival,) = connection.execute(
                "select arrival from jobs where id = ?", (job,)
            ).fetchone()
            rows.note_arrival(connection, arrival)
            connection.execute(
                "update jobs set revision = ?, rank = ?, arrival = ? + priority * ? where id = ?",
                (rows.next_revision(connection), rank, rank, self.boost, job),
            )
            return True

        return self.database.change(work)

    def move_last(self, job: int) -> bool:
        """Put a queued job behind all others of its priority, as if it came now."""

        def work(connection: sqlite3.Connection) -> bool:
            if rows.state_of(connection, job) != QUEUED:
                return False
            self._arrive(connection, job)
            return True

        return self.database.change(work)

    def set_priority(self, job: int, priority: int) -> bool:
        """Give a job that is queued or held another head start; its arrival stays."""

        def work(connection: sqlite3.Connection) -> bool:
            if rows.state_of(connection, job) not in (QUEUED, HELD):
                return False
            connection.execute(
                "update jobs set revision = ?, priority = ?, rank = arrival - ? * ? where id = ?",
                (rows.next_revision(connection), priority, priority, self.boost, job),
            )
            return True

        return self.database.change(work)

    # -- what time does -----------------------------------------------------------------------

    def expire(self) -> list[int]:
        """End the jobs whose time to start is over."""
        now = clocks.boot_microseconds()
        due = f"from jobs {_EXPIRING} and due <= ?"
        if not self.database.read(
            lambda connection: connection.execute(f"select 1 {due} limit 1", (now,)).fetchone()
        ):
            return []

        def work(connection: sqlite3.Connection) -> list[int]:
            rows = connection.execute(f"select id, expire_seconds {due}", (now,)).fetchall()
            for job, seconds in rows:
                reason = f"it had not started {seconds:g} s after it was submitted"
                self.end_job(connection, job, EXPIRED, reason=reason)
            return [job for job, _ in rows]

        return self.database.change(work)

    def seconds_to_expiry(self) -> float | None:
        """How long until the next job's time to start is over."""
        query = f"select min(due) from jobs {_EXPIRING} and due is not null"
        due: int | None = self.database.read(
            lambda connection: connection.execute(query).fetchone()[0]
        )
        return None if due is None else (due - clocks.boot_microseconds()) / 1e6

    # -- inside -------------------------------------------------------------------------------

    def end_job(
        self,
        connection: sqlite3.Connection,
        job: int,
        state: str,
        *,
        exit_code: int | None = None,
        reason: str | None = None,
        event: str = "",
    ) -> str:
        """A job's one end, and what follows from it for those that come after it."""
        self._end_alone(connection, job, state, exit_code, reason, event=event or state)
        ended = [(job, state)]
        while ended:
            before, how = ended.pop(0)
            for follower in dependencies.take_followers(connection, before):
                if how == SUCCEEDED:
                    connection.execute(
                        "update jobs set revision = ?, unmet = unmet - 1 where id = ?",
                        (rows.next_revision(connection), follower),
                    )
                else:
                    why = dependencies.no_longer(before, how)
                    self._end_alone(connection, follower, CANCELLED, None, why, event=CANCELLED)
                    ended.append((follower, CANCELLED))
        return state

    def _end_alone(
        self,
        connection: sqlite3.Connection,
        job: int,
        state: str,
        exit_code: int | None,
        reason: str | None,
        *,
        event: str,
    ) -> None:
        connection.execute(
            "update jobs set revision = ?, state = ?, ended_at = ?, exit_code = ?, end_reason = ?,"
            " delayed_until = null, is_read = 0"
            f" where id = ? and state in {rows.UNFINISHED_STATES}",
            (rows.next_revision(connection), state, time.time(), exit_code, reason, job),
        )
        self.news.tell(connection, job, event, reason or "")

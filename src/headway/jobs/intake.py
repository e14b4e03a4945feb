"""Taking orders in: how they become rows of the board, many in one transaction."""

from __future__ import annotations

import os
import time

from headway import clocks
from headway.errors import QueueFull
from headway.jobs import dependencies, rows
from headway.jobs.orders import Surroundings
from headway.jobs.rows import Kept
from headway.jobs.states import CANCELLED, HELD, QUEUED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from headway.jobs.board import Board
    from headway.jobs.orders import Order

_INSERT = (
    "insert into jobs (revision, state, unmet, arrival, rank, keys, path, weight, priority, task,"
    " command, directory, umask, environment, options, dedupe, retries, expire_seconds,"
    " submitted_at, expire_at, due) values (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_WAITING = ("held", "queued")


class Intake:
    """Some orders on their way to one board."""

    def __init__(self, board: Board, orders: Sequence[Order]) -> None:
        self._board, self._settings = board, board.settings
        self._orders = [(order, rows.as_json(order.options(board.settings))) for order in orders]
        self._around = Surroundings()
        # Rows of environments that were looked up already.
        self._environments: dict[bytes, int] = {}

    def keep_all(self, connection: sqlite3.Connection) -> list[Kept]:
        """Inside a transaction: keep them, all or none."""
        self._revision = rows.next_revision(connection)
        self._arrival = rows.next_arrival(connection)
        kept = [self._keep(connection, order, options) for order, options in self._orders]
        refuse_if_over(connection, sum(job.is_new for job in kept), self._settings.max_jobs)
        return kept

    def _keep(self, connection: sqlite3.Connection, order: Order, options: str) -> Kept:
        found = rows.unfinished(connection, order.dedupe)
        if found is not None:
            return found
        unmet, failed = dependencies.check(connection, order.after) if order.after else ([], None)
        state = HELD if self._is_held(order) else QUEUED
        job = connection.execute(
            _INSERT, self._row(connection, order, options, state, len(unmet))
        ).lastrowid
        assert job is not None
        self._revision, self._arrival = self._revision + 1, self._arrival + 1
        dependencies.add(connection, job, unmet)
        if failed:
            state = self._board.end_job(connection, job, CANCELLED, reason=failed)
            self._revision = rows.next_revision(connection)
        else:
            self._board.news.tell(connection, job, "queued")
        return Kept(job, state, is_new=True)

    def _is_held(self, order: Order) -> bool:
        return self._settings.approve == "always" if order.hold is None else order.hold

    def _row(
        self, connection: sqlite3.Connection, order: Order, options: str, state: str, unmet: int
    ) -> tuple[object, ...]:
        settings, around, now = self._settings, self._around, time.time()
        expire = settings.expire_seconds if order.expire_seconds is None else order.expire_seconds
        if expire == float("inf"):
            expire = None
        return (
            self._revision,
            state,
            unmet,
            self._arrival,
            self._arrival - order.priority * self._board.boost,
            "\n".join(order.keys),
            "\n".join(("", *order.path, "")),
            order.weight,
            order.priority,
            order.task,
            os.fsencode("\0".join(order.command)),
            os.fsencode(around.directory_for(order)),
            around.umask if order.umask is None else order.umask,
            self._environment(connection, order),
            options,
            order.dedupe,
            settings.retries if order.retries is None else order.retries,
            expire,
            now,
            None if expire is None else now + expire,
            None if expire is None else clocks.boot_microseconds() + int(expire * 1e6),
        )

    def _environment(self, connection: sqlite3.Connection, order: Order) -> int:
        environ = self._around.environ if order.environ is None else order.environ
        known = self._environments.get(environ)
        if known is None:
            known = self._environments[environ] = rows.environment(connection, environ)
        return known


def refuse_if_over(connection: sqlite3.Connection, more: int, most: int) -> None:
    """Raise if the jobs that were just added make too many; then they are not kept."""
    if not more:
        return
    # Counting takes time that grows with the queue, and so does min(); mostly the ids tell enough.
    oldest = [
        job
        for state in _WAITING
        for (job,) in connection.execute(
            "select id from jobs where state = ? order by id limit 1", (state,)
        )
    ]
    if not oldest or rows.newest(connection) - min(oldest) + 1 <= most:
        return
    (waiting,) = connection.execute(
        "select count(*) from jobs where state in (?, ?)", _WAITING
    ).fetchone()
    if waiting > most:
        raise QueueFull(waiting - more, most)

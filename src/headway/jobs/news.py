"""What people are to be told of jobs: it stands beside them until it was sent.

It is written in the transaction that made it true, so nothing is told that did not
happen, and nothing that happened is forgotten.
"""

from __future__ import annotations

import time

from headway.jobs.rows import UNFINISHED_STATES
from headway.jobs.states import SUCCEEDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3

    from headway.config import Settings
    from headway.jobs.database import JobsDatabase
    from headway.jobs.orders import Order


# So many that could not be sent are kept.
MAX_FAILED = 100


class News:
    """What is to be told of the jobs of one board."""

    def __init__(self, database: JobsDatabase, settings: Settings) -> None:
        self._database, self.settings = database, settings

    def unsent(self) -> list[tuple[int, int | None, str, float, str]]:
        """What is to be told: its number, the job, the event, when, and details."""
        query = "select id, job, event, at, details from news where problem is null order by id"
        return self._database.read(lambda connection: connection.execute(query).fetchall())

    def drop(self, number: int) -> None:
        """It was sent, or will never be."""
        self._database.change(
            lambda connection: connection.execute("delete from news where id = ?", (number,))
        )

    def fail(self, number: int, problem: str) -> tuple[int | None, str]:
        """It could not be sent, and why: kept for people who look; its job and event."""

        def work(connection: sqlite3.Connection) -> tuple[int | None, str]:
            connection.execute("update news set problem = ? where id = ?", (problem, number))
            connection.execute(
                "delete from news where problem is not null and id not in"
                " (select id from news where problem is not null order by id desc limit ?)",
                (MAX_FAILED,),
            )
            query = "select job, event from news where id = ?"
            found: tuple[int | None, str] = connection.execute(query, (number,)).fetchone()
            return found

        return self._database.change(work)

    def forget_failures(self) -> None:
        """Notifications get through again."""
        self._database.change(
            lambda connection: connection.execute("delete from news where problem is not null")
        )

    def is_wanted(self, order: Order) -> bool:
        """Whether anybody is told what becomes of an order."""
        return bool(order.notify) or self._is_always_wanted()

    def tell(self, connection: sqlite3.Connection, job: int, event: str, details: str = "") -> None:
        """Note inside a change what people are to be told of it, if anybody wants to be."""
        is_wanted = self._is_always_wanted()
        if not is_wanted:
            (options,) = connection.execute(
                "select options from jobs where id = ?", (job,)
            ).fetchone()
            is_wanted = '"notify"' in options
        if is_wanted:
            _note(connection, job, "finished" if event == SUCCEEDED else event, details)

    def add(self, job: int, event: str, details: str) -> None:
        """Say more about something that was not told yet."""
        query = "update news set details = ? where job = ? and event = ? and details = ''"
        self._database.change(lambda connection: connection.execute(query, (details, job, event)))

    def tell_if_empty(self) -> None:
        """Note that the last job has ended, if it has."""
        if not self._is_always_wanted():
            return

        def work(connection: sqlite3.Connection) -> None:
            unfinished = f"select 1 from jobs where state in {UNFINISHED_STATES} limit 1"
            if not connection.execute(unfinished).fetchone():
                _note(connection, None, "empty", "")

        self._database.change(work)

    def _is_always_wanted(self) -> bool:
        return bool(self.settings.notify or self.settings.notify_command)


def _note(connection: sqlite3.Connection, job: int | None, event: str, details: str) -> None:
    connection.execute(
        "insert into news (job, event, at, details) values (?, ?, ?, ?)",
        (job, event, time.time(), details),
    )

"""Jobs that come after others: which of those are missing, and which will never succeed.

A row of the table stands for a job that has to succeed first. It goes when that one has
ended; the options of the job keep the whole list, for a retry.
"""

from __future__ import annotations

from headway.errors import ConfigError, NoSuchJob
from headway.jobs import rows
from headway.jobs.states import EXPIRED, FAILED, SUCCEEDED, UNFINISHED

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


def check(connection: sqlite3.Connection, after: Iterable[int]) -> tuple[list[int], str | None]:
    """The jobs to wait for; and why there is no point in waiting, if one has ended badly."""
    unmet, failed = [], None
    for job in dict.fromkeys(after):
        state = rows.state_of(connection, job)
        if state in UNFINISHED:
            unmet.append(job)
        elif state != SUCCEEDED:
            failed = failed or no_longer(job, state)
    return unmet, failed


def add(connection: sqlite3.Connection, job: int, unmet: Iterable[int]) -> None:
    """Have a job wait for others."""
    for after in unmet:
        connection.execute("insert into dependencies values (?, ?)", (after, job))


def take_followers(connection: sqlite3.Connection, job: int) -> list[int]:
    """The jobs that waited for one that has ended; they do so no longer."""
    followers = connection.execute(
        "select job from dependencies join jobs on jobs.id = dependencies.job"
        " where after = ? and state in ('held', 'queued')",
        (job,),
    ).fetchall()
    connection.execute("delete from dependencies where after = ?", (job,))
    return [follower for (follower,) in followers]


def renew(connection: sqlite3.Connection, job: int) -> int:
    """Have a job that is queued again wait for its dependencies again; how many are missing.

    ``ConfigError`` if one of them has not succeeded and never will.
    """
    options, attempts = connection.execute(
        "select options, attempts from jobs where id = ?", (job,)
    ).fetchone()
    query = "select after from dependencies where job = ? order by after"
    # Jobs of versions before this one have no list, only what was missing at their end.
    missing = [after for (after,) in connection.execute(query, (job,))]
    connection.execute("delete from dependencies where job = ?", (job,))
    after: list[int] = rows.from_json(options).get("after", missing)  # type: ignore[assignment]
    unmet = []
    for other in dict.fromkeys(after):
        try:
            state = rows.state_of(connection, other)
        except NoSuchJob:
            if attempts:  # it ran, so that one had succeeded
                continue
            raise ConfigError(
                f"job {job} comes after job {other}, which was pruned before job {job} could run;"
                " submit its command again, without --after or with another job"
            ) from None
        if state in UNFINISHED:
            unmet.append(other)
        elif state != SUCCEEDED:
            raise ConfigError(
                f"job {job} comes after job {other}, which {_ended(state)}; retry that one first,"
                f" and this one waits for it: headway retry {other} {job}"
            )
    add(connection, job, unmet)
    return len(unmet)


def no_longer(job: int, state: str) -> str:
    """Why what was to come after a job will never run."""
    return f"it was to run after job {job}, which {_ended(state)}"


def _ended(state: str) -> str:
    return state if state in (FAILED, EXPIRED) else f"was {state}"

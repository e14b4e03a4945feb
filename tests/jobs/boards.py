"""Keeping jobs, and leading them to their ends, without any worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest import mock

from headway import clocks, config
from headway.jobs.board import Board
from headway.jobs.listing import Listing
from headway.jobs.orders import Order
from headway.jobs.states import SUCCEEDED, Ending

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from headway.jobs.listing import Details, Job


def open_board(home: Path | str, **environ: str) -> Board:
    """A board of its own on this home, with these variables; retries are not put off."""
    return Board(config.load(str(home), {"HEADWAY_JOBS_RETRY_DELAY": "0s", **environ}))


def order(*command: str, **options: Any) -> Order:
    """An order that has nothing of this process."""
    return Order(command or ["true"], **{"environ": {"LANG": "C"}, "directory": "/", **options})


def keep(board: Board, **options: Any) -> int:
    """Keep a job; its id."""
    return board.submit([order(**options)])[0].id


def begin(board: Board, job: int) -> int:
    """Start the next attempt of a job, which can be started; its number."""
    beginning = board.begin(job, holder="holder", lease="holder-1")
    assert beginning is not None
    return beginning.number


def end(board: Board, job: int, number: int, state: str = SUCCEEDED) -> str | None:
    """End an attempt; what that made of the job."""
    return board.end(job, number, Ending(state, f"it {state}", exit_code=0), holder="holder")


def run(board: Board, job: int, state: str = SUCCEEDED) -> str | None:
    """Start a job and end it; what became of it."""
    return end(board, job, begin(board, job), state)


def expire(board: Board, seconds: float) -> list[int]:
    """Look for jobs to expire, as if so much later."""
    later = clocks.boot_microseconds() + int(seconds * 1e6)
    with mock.patch.object(clocks, "boot_microseconds", return_value=later):
        return board.expire()


def seen(board: Board, job: int) -> Job:
    """A job as people see it."""
    return Listing(board).find(job)


def details(board: Board, job: int) -> Details:
    """All that people see of it."""
    return Listing(board).details(job, os.path.dirname(board.database.path))


def line(board: Board) -> list[int]:
    """The queued jobs in the order of the line."""
    return [job.id for job in Listing(board).in_line(None)]


def ready(board: Board) -> list[int]:
    """Those that wait for nothing but their slots, in the order of the line."""
    wishes = board.wishes("state = 'queued' order by rank, id")
    return [wish.id for wish in wishes if wish.is_ready]


def column(board: Board, name: str, job: int) -> Any:
    """What stands in one column of a job's row."""
    return query(board, f"select {name} from jobs where id = {job}")[0][0]


def query(board: Board, text: str) -> list[tuple[Any, ...]]:
    """The rows that a query finds."""

    def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
        return connection.execute(text).fetchall()

    return board.database.read(read)


def last_revision(board: Board) -> int:
    """The number of the last change."""
    return max((wish.revision for wish in board.wishes("true")), default=0)

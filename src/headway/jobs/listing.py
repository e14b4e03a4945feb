"""Looking at jobs: what people and planners see of the board."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from headway import clocks
from headway.errors import NoSuchJob
from headway.jobs import rows
from headway.jobs.states import FINISHED, INTERRUPTED, QUEUED, RUNNING, UNFINISHED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from headway.jobs.board import Board
    from headway.jobs.places import Standing

_COLUMNS = (
    "id, state, command, keys, task, priority, submitted_at, started_at, ended_at, exit_code,"
    " end_reason, attempts, weight, unmet, delayed_until"
)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why a job waits: a key and what is the matter there, or no key and the reason alone.

    Without a key the reason is ``after`` (other jobs) or ``retry_delay``.
    """

    key: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Job:
    """One job, as ``headway jobs --json`` shows it."""

    id: int
    state: str
    command: tuple[str, ...]
    keys: tuple[str, ...]
    task: str | None
    priority: int
    weight: int
    position: int | None
    estimated_wait_seconds: float | None
    blocked_by: Blocked | None
    submitted_at: float
    started_at: float | None
    ended_at: float | None
    exit_code: int | None
    end_reason: str | None
    attempts: int
    # When it is run again, if it waits for that.
    retry_at: float | None

    def as_dict(self) -> dict[str, Any]:
        """The shape that is printed; ``asdict`` would copy everything, and there may be many."""
        facts = {name: getattr(self, name) for name in self.__slots__}
        blocked = self.blocked_by
        facts["blocked_by"] = None if blocked is None else asdict(blocked)
        return facts

    @property
    def is_finished(self) -> bool:
        """Whether it has its end."""
        return self.state in FINISHED

    def placed(self, standing: Standing | None) -> Job:
        """The same job at a place in line."""
        if standing is None:
            return self
        blocked = None if standing.key is None else Blocked(standing.key, standing.reason)
        return replace(
            self,
            position=standing.position,
            estimated_wait_seconds=standing.estimated_wait_seconds,
            blocked_by=blocked,
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job."""

    number: int
    state: str
    pid: int
    lease: str
    started_at: float
    ended_at: float | None
    exit_code: int | None
    end_reason: str | None
    ended_by: dict[str, Any] | None
    # Nothing while it runs, or if whoever counted was killed.
    output_bytes: int | None
    log: str


@dataclass(frozen=True, slots=True)
class UnsentNotification:
    """What somebody was to be told of a job, and why that failed."""

    event: str
    at: float
    problem: str


@dataclass(frozen=True, slots=True)
class Details:
    """Everything about one job but its environment."""

    job: Job
    directory: str
    umask: int
    after: tuple[int, ...]
    retries: int
    retried: int
    dedupe: str | None
    expire_at: float | None
    cancel_reason: str | None
    options: dict[str, Any]
    attempts: tuple[Attempt, ...]
    unsent_notifications: tuple[UnsentNotification, ...]


class Listing:
    """Reads one board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def find(self, job: int) -> Job:
        """One job."""
        found = self._jobs("id = ?", (job,))
        if not found:
            raise NoSuchJob(job)
        return found[0]

    def all(self, *, states: Sequence[str] = (), limit: int | None = None) -> list[Job]:
        """The jobs in these states, or in all, the oldest first; of many only the newest."""
        wanted = states or (*UNFINISHED, *FINISHED)
        marks = ", ".join("?" * len(wanted))
        jobs = self._jobs(
            f"state in ({marks}) order by id desc limit ?",
            (*wanted, -1 if limit is None else limit),
        )
        return jobs[::-1]

    def named(self, task: str) -> list[Job]:
        """The jobs with this task name, the oldest first."""
        return self._jobs("task = ? order by id", (task,))

    def in_line(self, limit: int | None) -> list[Job]:
        """The queued jobs in their order."""
        most = -1 if limit is None else limit
        return self._jobs(
            "state = 'queued' order by rank limit ?", (most,), "indexed by jobs_in_line"
        )

    def attempt_is_over(self, job: int, number: int) -> int | None:
        """How much an attempt has written in all, if it has ended."""
        query = "select output_bytes from attempts where job = ? and number = ?"
        found = self._read(f"{query} and ended_at is not null", (job, number))
        return int(found[0][0]) if found else None

    def counts(self) -> dict[str, int]:
        """How many jobs are in each state."""
        return dict(self._read("select state, count(*) from jobs group by state"))

    def options(self, job: int) -> dict[str, Any]:
        """What was asked for besides; with the addresses of notifications, so not to be shown."""
        found = self._read("select options from jobs where id = ?", (job,))
        return rows.from_json(found[0][0]) if found else {}

    def details(self, job: int, home: str) -> Details:
        """All there is to say about one job."""
        from headway.jobs import log  # noqa: PLC0415

        found = self.find(job)
        columns = "directory, umask, retries, retried, dedupe, expire_at, cancel_reason, options"
        row = self._read(f"select {columns} from jobs where id = ?", (job,))[0]
        after = self._read("select after from dependencies where job = ? order by after", (job,))
        attempts = self._read(
            "select number, state, pid, lease, started_at, ended_at, exit_code, end_reason,"
            " ended_by, output_bytes from attempts where job = ? order by number",
            (job,),
        )
        unsent = self._read(
            "select event, at, problem from news where job = ? and problem is not null order by id",
            (job,),
        )
        options = rows.from_json(row[7])
        for name in ("notify", "after"):
            options.pop(name, None)
        return Details(
            job=found,
            directory=os.fsdecode(row[0]),
            umask=row[1],
            after=tuple(number for (number,) in after),
            retries=row[2],
            retried=row[3],
            dedupe=row[4],
            expire_at=row[5],
            cancel_reason=row[6],
            options=options,
            attempts=tuple(
                _attempt(attempt, log.path_of(home, job, attempt[0])) for attempt in attempts
            ),
            unsent_notifications=tuple(UnsentNotification(*one) for one in unsent),
        )

    def _jobs(self, condition: str, values: tuple[object, ...], index: str = "") -> list[Job]:
        query = f"select {_COLUMNS} from jobs {index} where {condition}"
        return [_job(row) for row in self._read(query, values)]

    def _read(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        if not self._board.database.exists():
            return []

        def work(connection: sqlite3.Connection) -> list[Any]:
            return connection.execute(query, values).fetchall()

        return self._board.database.read(work)


def _job(row: Sequence[Any]) -> Job:
    left = None if row[14] is None else max(0.0, (row[14] - clocks.boot_microseconds()) / 1e6)
    blocked = None
    if row[1] == QUEUED and row[13]:
        blocked = Blocked(None, "after" if left is None else "retry_delay")
    return Job(
        id=row[0],
        state=row[1],
        command=tuple(os.fsdecode(row[2]).split("\0")),
        keys=tuple(row[3].split("\n")),
        task=row[4],
        priority=row[5],
        weight=row[12],
        position=None,
        estimated_wait_seconds=left,
        blocked_by=blocked,
        submitted_at=row[6],
        started_at=row[7],
        ended_at=row[8],
        exit_code=row[9],
        end_reason=row[10],
        attempts=row[11],
        retry_at=None if left is None else time.time() + left,
    )


def _attempt(row: Sequence[Any], path: str) -> Attempt:
    return Attempt(
        number=row[0],
        state=row[1],
        pid=row[2],
        lease=row[3],
        started_at=row[4],
        ended_at=row[5],
        exit_code=row[6],
        end_reason=row[7],
        ended_by=rows.from_json(row[8]) if row[8] else None,
        output_bytes=None if row[1] in (RUNNING, INTERRUPTED) and not row[9] else row[9],
        log=path,
    )

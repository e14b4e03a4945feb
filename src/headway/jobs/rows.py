"""Rows of the board: what they mean, and what a new one needs."""

from __future__ import annotations

import os

from headway import clocks, keys
from headway.errors import NoSuchJob
from headway.jobs.orders import unpacked
from headway.jobs.states import QUEUED, UNFINISHED
from headway.lean import blake2b
from headway.slot import Request
from headway.tickets import job_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from typing import Any

# In the place of an environment that was deleted: no row has this id.
DROPPED = 0
# As a list in SQL.
UNFINISHED_STATES = "({})".format(", ".join(f"'{state}'" for state in UNFINISHED))


class Kept:
    """What became of an order: the job's id and state, and whether it was there before."""

    __slots__ = ("id", "is_new", "state")

    def __init__(self, id: int, state: str, *, is_new: bool) -> None:  # noqa: A002
        self.id, self.state, self.is_new = id, state, is_new


WISH_COLUMNS = (
    "id, revision, state, unmet, arrival, submitted_at, keys, weight, priority, task, command,"
    " cancel_reason"
)


class Wish:
    """What a job asks for, and where it stands: all that the worker has to know of it."""

    __slots__ = (
        "arrival",
        "cancel_reason",
        "command",
        "id",
        "is_ready",
        "keys",
        "priority",
        "revision",
        "state",
        "submitted_at",
        "task",
        "weight",
    )

    def __init__(self, row: Sequence[Any]) -> None:
        self.id: int = row[0]
        self.revision: int = row[1]
        self.state: str = row[2]
        self.is_ready = row[2] == QUEUED and row[3] == 0
        self.arrival: int = row[4]
        self.submitted_at: float = row[5]
        self.keys: tuple[str, ...] = tuple(row[6].split("\n"))
        self.weight: int = row[7]
        self.priority: int = row[8]
        self.task: str | None = row[9]
        self.command = os.fsdecode(row[10]).split("\0")
        self.cancel_reason: str | None = row[11]

    def for_worker(self) -> Request:
        """The place in line of a job that waits."""
        return self._request(wait=True, parents=())

    def for_supervisor(self, lease: str) -> Request:
        """Its slots, taken over from the worker's lease."""
        return self._request(wait=False, parents=(lease,))

    def _request(self, *, wait: bool, parents: tuple[str, ...]) -> Request:
        path, name = keys.path(self.keys), job_name(self.id)
        return Request(
            self.keys, path, self.task, self.weight, self.priority, None, wait, parents, name=name
        )


class Beginning:
    """What a supervisor has to know to run one attempt."""

    __slots__ = ("command", "directory", "environ", "job", "number", "options", "task", "umask")

    def __init__(self, job: int, number: int, row: Sequence[Any]) -> None:
        command, directory, umask, environ, options, task = row[:6]
        self.job, self.number = job, number
        self.command = os.fsdecode(command).split("\0")
        self.directory = os.fsdecode(directory)
        self.umask: int = umask
        self.environ = unpacked(environ)
        self.options = from_json(options)
        self.task: str | None = task


def next_revision(connection: sqlite3.Connection) -> int:
    """A number greater than that of every change before, also of jobs that are forgotten."""
    (last,) = connection.execute(
        "select max(coalesce((select max(revision) from jobs), 0),"
        " coalesce((select value from facts where name = 'revision'), 0))"
    ).fetchone()
    return int(last) + 1


def note_revision(connection: sqlite3.Connection) -> None:
    """Remember the last change, because its job may be forgotten."""
    last = next_revision(connection) - 1
    connection.execute("insert or replace into facts values ('revision', ?)", (last,))


def newest(connection: sqlite3.Connection) -> int:
    """The id of the newest job, or 0."""
    (found,) = connection.execute("select max(id) from jobs").fetchone()
    return found or 0


def next_arrival(connection: sqlite3.Connection) -> int:
    """The time, but later than every arrival before: of the newest job, or as it was noted."""
    rows = connection.execute(
        "select * from (select arrival from jobs order by id desc limit 1)"
        " union all select value from facts where name = 'arrival'"
    ).fetchall()
    return max([clocks.boot_microseconds(), *(int(arrival) + 1 for (arrival,) in rows)])


def note_arrival(connection: sqlite3.Connection, arrival: int) -> None:
    """Remember an arrival that the newest job does not have."""
    connection.execute(
        "insert into facts values ('arrival', ?)"
        " on conflict (name) do update set value = max(value, excluded.value)",
        (arrival,),
    )


def state_of(connection: sqlite3.Connection, job: int) -> str:
    """The state that a job is in."""
    row = connection.execute("select state from jobs where id = ?", (job,)).fetchone()
    if row is None:
        raise NoSuchJob(job)
    state: str = row[0]
    return state


def unfinished(connection: sqlite3.Connection, dedupe: str | None) -> Kept | None:
    """The unfinished job of this name, if there is a name and such a job."""
    if dedupe is None:
        return None
    found = connection.execute(
        "select id, state from jobs where dedupe = ? and state in (?, ?, ?)", (dedupe, *UNFINISHED)
    ).fetchone()
    return None if found is None else Kept(*found, is_new=False)


def as_json(value: Mapping[str, object]) -> str:
    """What a column of JSON keeps."""
    if not value:
        return "{}"
    import json  # noqa: PLC0415 - most jobs have nothing to say here

    return json.dumps(value)


def from_json(text: str) -> dict[str, object]:
    """What a column of JSON means."""
    if text == "{}":
        return {}
    import json  # noqa: PLC0415

    found: dict[str, object] = json.loads(text)
    return found


def environment(connection: sqlite3.Connection, environ: bytes) -> int:
    """The row of an environment, which is kept once however many jobs have it."""
    digest = blake2b(environ, digest_size=32).digest()
    row = connection.execute("select id from environments where digest = ?", (digest,)).fetchone()
    if row:
        return int(row[0])
    inserted = connection.execute(
        "insert into environments (digest, variables) values (?, ?)", (digest, environ)
    ).lastrowid
    assert inserted is not None
    return inserted

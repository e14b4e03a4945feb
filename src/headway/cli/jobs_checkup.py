"""The examination of ``jobs.db``: whether it can be read, and whether its jobs get on."""

from __future__ import annotations

import os
import shlex
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from headway.cli import output
from headway.cli.diagnosis import Finding
from headway.jobs.database import FORMAT
from headway.jobs.post import Post
from headway.stores.liveness import Live

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_SECONDS = 1.0
_NAMED = 5


def findings(home: str) -> Iterator[Finding]:
    """How the jobs are; nothing if none was ever kept."""
    path = os.path.join(home, "jobs.db")
    try:
        size = os.stat(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return
    if size == 0:
        yield _unusable(path, "is empty (0 bytes), so the jobs that were in it are lost")
        return
    try:
        address = f"file:{quote(path)}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE_SECONDS)) as connection:
            yield from _jobs(home, path, connection)
    except sqlite3.DatabaseError as error:
        yield _unusable(path, f"cannot be read ({error})")


def _jobs(home: str, path: str, connection: sqlite3.Connection) -> Iterator[Finding]:
    (version,) = connection.execute("pragma user_version").fetchone()
    if version > FORMAT:
        text = f"jobs.db was made by a newer Headway (format {version}, this one knows {FORMAT})"
        yield Finding("problem", "jobs", text, "upgrade this Headway, or use the newer one")
        return
    (first, *_) = connection.execute("pragma quick_check(1)").fetchone()
    if first != "ok":
        yield _unusable(path, f"is damaged ({first})")
        return
    counts = dict(connection.execute("select state, count(*) from jobs group by state"))
    holder = Post(home).holder()
    listed = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    worker = "no worker runs" if holder is None else f"worker {holder[0]} runs"
    yield Finding("ok", "jobs", f"jobs.db is good, {listed or 'no jobs'}; {worker}")
    if holder is None:
        yield from _stuck(home, connection, counts.get("queued", 0))
    if version == FORMAT:
        yield from _unsent(connection)


def _stuck(home: str, connection: sqlite3.Connection, queued: int) -> Iterator[Finding]:
    """What only a worker would get on with."""
    lost = [job for job, holder in _under_way(connection) if not _is_alive(home, holder)]
    if lost:
        named = ", ".join(map(str, lost[:_NAMED])) + (" …" if len(lost) > _NAMED else "")
        jobs = "job" if len(lost) == 1 else "jobs"
        text = f"worker and supervisor of {jobs} {named} were killed, and nobody wrote that down"
        yield Finding("warning", "jobs", text, "headway jobs does")
    if queued:
        verb = "is" if queued == 1 else "are"
        text = f"{output.count(queued, 'job')} {verb} queued, and no worker runs"
        yield Finding("warning", "jobs", text, "headway worker --detach")


def _unsent(connection: sqlite3.Connection) -> Iterator[Finding]:
    """What somebody was to be told and was not."""
    query = "select job, event, at, problem from news where problem is not null order by id desc"
    unsent = connection.execute(query).fetchall()
    if unsent:
        job, event, at, problem = unsent[0]
        about = f" of job {job}" if job is not None else ""
        text = (
            f"{output.count(len(unsent), 'notification')} could not be sent, the last one{about}"
            f" ({event}) {output.age(at)} ago: {problem}"
        )
        yield Finding("warning", "jobs", text, "mend the address, then: headway notify test")


def _under_way(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    query = "select job, holder from attempts where ended_at is null order by job"
    return connection.execute(query).fetchall()


def _is_alive(home: str, holder: str) -> bool:
    directory = os.path.join(home, "live")
    if not os.path.isdir(directory):
        return False
    live = Live(directory)
    try:
        return live.is_alive(holder)
    finally:
        live.close()


def _unusable(path: str, trouble: str) -> Finding:
    moved = f"mv {shlex.quote(path)} {shlex.quote(path)}.damaged"
    fix = f"restore it from a backup; or, to start without jobs: {moved}"
    return Finding("problem", "jobs", f"jobs.db {trouble}", fix)

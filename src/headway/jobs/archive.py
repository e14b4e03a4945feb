"""Finished jobs: who has seen them, how long they are kept, and how they are forgotten."""

from __future__ import annotations

from headway.errors import StoreUnavailable
from headway.jobs import rows
from headway.jobs.database import overwrites_deleted

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from headway.jobs.database import JobsDatabase

# So many ids are remembered.
_MAX_DROPPED = 100
_DELETE_UNUSED = "delete from environments where id not in (select environment from jobs)"


class Archive:
    """The finished jobs of one board."""

    def __init__(self, database: JobsDatabase) -> None:
        self._database = database
        # Whether something was deleted that may still stand in the files, if that is known.
        self._is_to_be_scrubbed: bool | None = None

    def mark_read(self, jobs: Iterable[int]) -> None:
        """Somebody has seen how these ended."""
        listed = ", ".join(str(int(job)) for job in jobs)
        unread = f"id in ({listed}) and is_read = 0 and ended_at is not null"
        query = f"select 1 from jobs where {unread} limit 1"
        if listed and self._database.read(lambda found: found.execute(query).fetchone()):
            self._database.change(
                lambda found: found.execute(f"update jobs set is_read = 1 where {unread}")
            )

    def prunable(self, *, ended_before: float | None = None, keep: int | None = None) -> Pruned:
        """What ``prune`` would forget."""
        query, values = _to_be_pruned(ended_before, keep)
        if not self._database.exists():
            return Pruned([])
        return Pruned(self._database.read(lambda found: found.execute(query, values).fetchall()))

    def prune(self, *, ended_before: float | None = None, keep: int | None = None) -> Pruned:
        """Forget finished jobs that ended before a time, and all but so many of the newest."""
        query, values = _to_be_pruned(ended_before, keep)
        if not self._database.read(lambda found: found.execute(query, values).fetchone()):
            return Pruned([])

        def work(connection: sqlite3.Connection) -> Pruned:
            pruned = Pruned(connection.execute(query, values).fetchall())
            rows.note_revision(connection)
            for job, _, _ in pruned.rows:
                connection.execute("delete from attempts where job = ?", (job,))
                connection.execute("delete from news where job = ?", (job,))
                connection.execute("delete from jobs where id = ?", (job,))
            connection.execute(_DELETE_UNUSED)
            return pruned

        pruned = self._database.change(work)
        self._is_to_be_scrubbed = True
        self.scrub()
        return pruned

    def drop_environments(self, *, ended_before: float) -> None:
        """Delete the variables of jobs that ended before a time; these cannot be retried any more.

        An environment goes with the last job that has it.
        """
        old = (
            f"environment != {rows.DROPPED} and state not in {rows.UNFINISHED_STATES}"
            " and ended_at < ?"
        )
        query = f"select 1 from jobs where {old} limit 1"
        if not self._database.read(lambda found: found.execute(query, (ended_before,)).fetchone()):
            return

        def work(connection: sqlite3.Connection) -> None:
            connection.execute(
                f"update jobs set environment = {rows.DROPPED} where {old}", (ended_before,)
            )
            connection.execute(_DELETE_UNUSED)

        self._database.change(work)
        self._is_to_be_scrubbed = True

    def scrub(self) -> None:
        """Have nothing left of what was deleted; if that is not possible now, the next time."""
        if self._is_to_be_scrubbed is None:
            self._is_to_be_scrubbed = not self._database.read(overwrites_deleted)
        if self._is_to_be_scrubbed:
            try:
                self._is_to_be_scrubbed = not self._database.scrub()
            except StoreUnavailable:
                pass  # a full disk, say: what was asked for is done all the same

    def note_dropped(self, jobs: list[int]) -> None:
        """Remember for the next listing that finished jobs were dropped which nobody had seen."""

        def work(connection: sqlite3.Connection) -> None:
            before = _fact(connection, "dropped")
            text = " ".join([*before.split(), *map(str, jobs)][-_MAX_DROPPED:])
            connection.execute("insert or replace into facts values ('dropped', ?)", (text,))

        self._database.change(work)

    def take_dropped(self) -> list[int]:
        """What was noted like that, once."""
        if not self._database.exists() or not self._database.read(
            lambda connection: _fact(connection, "dropped")
        ):
            return []

        def work(connection: sqlite3.Connection) -> list[int]:
            dropped = [int(job) for job in _fact(connection, "dropped").split()]
            connection.execute("delete from facts where name = 'dropped'")
            return dropped

        return self._database.change(work)


def _to_be_pruned(ended_before: float | None, keep: int | None) -> tuple[str, list[float]]:
    finished = f"state not in {rows.UNFINISHED_STATES}"
    conditions, values = [], []
    if ended_before is not None:
        conditions.append("ended_at < ?")
        values.append(ended_before)
    if keep is not None:
        newest = f"select id from jobs where {finished} order by ended_at desc, id desc limit ?"
        conditions.append(f"id not in ({newest})")
        values.append(keep)
    where = f"{finished} and ({' or '.join(conditions) or 'true'})"
    return f"select id, attempts, is_read from jobs where {where} order by id", values


class Pruned:
    """Finished jobs that were forgotten."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[tuple[int, int, int]]) -> None:
        # The job, how many attempts it had, and whether anybody had seen its end.
        self.rows = rows

    @property
    def unread(self) -> list[int]:
        """Those whose end nobody had seen."""
        return [job for job, _, is_read in self.rows if not is_read]

    def remove_logs(self, home: str) -> None:
        """Delete what they had written."""
        from headway.jobs import log  # noqa: PLC0415

        for job, attempts, _ in self.rows:
            for number in range(1, attempts + 1):
                log.remove(log.path_of(home, job, number))


def _fact(connection: sqlite3.Connection, name: str) -> str:
    row = connection.execute("select value from facts where name = ?", (name,)).fetchone()
    return "" if row is None else str(row[0])

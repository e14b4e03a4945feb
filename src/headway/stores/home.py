"""A home on disk: its directory, its guard, its living holders and its database.

Every operation of the SQLite store runs through ``operate``, which makes sure
that nobody else is inside and that the open database is the one at its path.
If it is not, this process moves over to the one that is: it says there what it
holds before it does anything else, and a new file grants nothing until every
live holder has done so.
"""

from __future__ import annotations

import os
import sqlite3

from headway.errors import StoreUnavailable
from headway.stores.database import Damaged, Database
from headway.stores.guard import Guard
from headway.stores.liveness import Live, Presence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection
    from typing import Protocol, TypeVar

    T = TypeVar("T")

    class Tenant(Protocol):
        """The store that lives here: what to do when the database is not what it was."""

        def announce(self, connection: Connection) -> None:
            """Say in a new database what this process holds and waits for."""

        def clear_up(self, connection: Connection, dead: list[str]) -> None:
            """Give back what dead holders left in a database that is in use."""


class Home:
    """One home, as one process sees it."""

    def __init__(self, directory: str, tenant: Tenant, *, timeout_seconds: float) -> None:
        self.directory, self._tenant, self._timeout_seconds = directory, tenant, timeout_seconds
        self.database = Database(
            os.path.join(directory, "slots.db"), timeout_seconds=timeout_seconds
        )
        self._presence: Presence | None = None
        self._settled = False
        self._move_in()

    def _move_in(self) -> None:
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            self.guard = Guard(
                os.path.join(self.directory, "slots.lock"), timeout_seconds=self._timeout_seconds
            )
            self.live = Live(os.path.join(self.directory, "live"))
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def presence(self) -> Presence:
        assert self._presence is not None
        return self._presence

    @property
    def holder_id(self) -> str:
        """Who this process is here; asking makes it appear."""
        if self._presence is None:
            self.operate(lambda connection: None)
        return self.presence.id

    def operate(self, work: Callable[[Connection], T], *, patient: bool = True) -> T:
        """Run one operation under the guard, on the current database."""
        self.guard.acquire(patient=patient)
        try:
            if not (self.database.is_open and self.database.is_current()):
                self._open()
            try:
                return work(self.database.connection)
            except sqlite3.Error as error:
                translated = self.database.translate(error)
                if not isinstance(translated, Damaged):
                    raise translated from error
                self._set_aside(translated)
                self._open()
                return work(self.database.connection)
        except OSError as error:
            raise self._unusable(error) from error
        finally:
            self.guard.release()

    def awaited(self, connection: Connection) -> list[str]:
        """The live holders that have not said yet what they hold. None for most of all time."""
        if self._settled:
            return []
        awaited = [holder for (holder,) in connection.execute("select holder from awaited")]
        for holder in [holder for holder in awaited if not self.live.is_alive(holder)]:
            connection.execute("delete from awaited where holder = ?", (holder,))
            awaited.remove(holder)
        self._settled = not awaited
        return awaited

    def _open(self) -> None:
        """Connect to what is at the path now, or to a new file if there is nothing usable."""
        try:
            fresh = not self.database.exists()
            if fresh:
                self.database.create()
            try:
                self.database.open()
            except (Damaged, sqlite3.DatabaseError) as error:
                damage = error if isinstance(error, Damaged) else self.database.translate(error)
                if not isinstance(damage, Damaged):
                    raise damage from error
                self._set_aside(damage)
                self.database.create()
                self.database.open()
                fresh = True
            self._take_stock(self.database.connection, fresh=fresh)
        except sqlite3.Error as error:
            self.database.let_go()
            raise self.database.translate(error) from error
        except BaseException:
            self.database.let_go()
            raise

    def _take_stock(self, connection: Connection, *, fresh: bool) -> None:
        self._settled = False
        own = self._presence.id if self._presence else ""
        others = [holder for holder in self.live.holders() if holder != own]
        alive = [holder for holder in others if self.live.is_alive(holder)]
        dead = [holder for holder in others if holder not in alive]
        if self._presence is None:
            self._presence = Presence(self.live)
        if not alive and not own:
            # The first one in: whatever stands in the file belongs to nobody.
            _wipe(connection)
            self.guard.start_afresh()
        elif fresh:
            connection.executemany("insert or ignore into awaited values (?)", zip(alive))
        else:
            self._tenant.clear_up(connection, dead)
        self._tenant.announce(connection)
        for holder in dead:
            self.live.remove(holder)
        if fresh:
            for holder in alive:
                self.presence.send(holder, "a")

    def _set_aside(self, damage: Damaged) -> None:
        aside = self.database.set_aside()
        import logging  # noqa: PLC0415 - loaded when something is wrong

        logging.getLogger("headway").error(
            "%s cannot be used (%s). It was set aside as %s and a new one is made;"
            " nothing durable was in it",
            self.database.path,
            damage,
            aside,
        )

    def _unusable(self, error: OSError) -> StoreUnavailable:
        return StoreUnavailable(
            self.directory,
            f"{error.strerror or error}; check its owner, mode and file system,"
            " or set HEADWAY_HOME to another directory",
        )

    def forget_after_fork(self) -> None:
        """In a forked child: close what is the parent's without touching it, and move in anew."""
        self.database.forget()
        if self._presence is not None:
            self._presence.forget()
            self._presence = None
        self.live.close()
        self.guard.close()
        self._move_in()

    def leave(self) -> None:
        """Disappear from the home; the caller has given everything back."""
        self.guard.acquire(patient=True)
        try:
            self.database.let_go()
            if self._presence is not None:
                self._presence.leave()
                self._presence = None
        finally:
            self.guard.release()


def _wipe(connection: Connection) -> None:
    connection.execute("begin immediate")
    for table in ("leases", "waiting", "loans", "verdicts", "awaited"):
        connection.execute(f"delete from {table}")
    connection.execute("delete from lines where source <> 'file'")
    connection.execute("update keys set used = 0, reserved = 0, waiting = 0")
    connection.execute("commit")

"""A home on disk: its directory, its guard, its living holders and its database.

Every operation of the SQLite store runs through ``operate``, which makes sure
that nobody else is inside and that the open database is the one at its path.
If it is not, this process moves over to the one that is: it says there what it
holds before it does anything else, and a new file grants nothing until every
live holder has done so.
"""

from __future__ import annotations

import os

from headway import journal
from headway.errors import StoreUnavailable
from headway.stores.base import StoreClosed
from headway.stores.database import Damaged, Database
from headway.stores.driver import sqlite3
from headway.stores.guard import Guard
from headway.stores.liveness import Live, Presence
from headway.stores.processes import lack_of_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection
    from typing import NoReturn, Protocol, TypeVar

    T = TypeVar("T")

    class Tenant(Protocol):
        """The store that lives here: what to do when the database is not what it was."""

        def write_terms(self, connection: Connection) -> None:
            """Put the limits in force into a new database, before anything is granted."""

        def bring_terms(self, connection: Connection) -> None:
            """Say in a database that may lack them which limits from code were in force."""

        def announce(self, connection: Connection) -> None:
            """Say in a new database what this process holds and waits for."""

        def clear_out(self, connection: Connection) -> None:
            """Forget what stands in a database of which nobody is alive."""

        def clear_up(self, connection: Connection, dead: list[str]) -> None:
            """Give back what dead holders left in a database that is in use."""


class Home:
    """One home, as one process sees it."""

    def __init__(self, directory: str, *, timeout_seconds: float) -> None:
        self.directory, self._timeout_seconds = directory, timeout_seconds
        self.tenant: Tenant
        self.database = Database(
            os.path.join(directory, "slots.db"), timeout_seconds=timeout_seconds
        )
        # Whoever uses one of them holds on to it: another thread may leave the home.
        self._live: Live | None = None
        self._presence: Presence | None = None
        # What whoever is inside now has to do when it has left.
        self.afterwards: Callable[[], None] | None = None
        # Who this process is here, once it has appeared.
        self.holder_id = ""
        # Whether everyone alive has said in this database what they hold.
        self.settled = False
        # The newest database that this process has brought what it knows to.
        self._generation = -1
        self._move_in()

    def _move_in(self) -> None:
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            self.guard = Guard(
                os.path.join(self.directory, "slots.lock"), timeout_seconds=self._timeout_seconds
            )
            self._live = Live(os.path.join(self.directory, "live"))
        except OSError as error:
            raise self._unusable(error) from error

    @property
    def presence(self) -> Presence:
        if self._presence is None:
            raise StoreClosed
        return self._presence

    @property
    def live(self) -> Live:
        if self._live is None:
            raise StoreClosed
        return self._live

    def operate(
        self, work: Callable[..., T], *args: object, patient: bool = True, eager: bool = False
    ) -> T:
        """Run one operation, ``work(connection, *args)``, under the guard."""
        guard, database = self.guard, self.database
        if guard.is_mine():
            self.refuse_reentry()
        try:
            guard.acquire(patient=patient, eager=eager)
            if not database.is_open or not database.is_linked():
                self._open()
            elif database.connection.in_transaction:  # Ctrl-C struck in its last moments
                database.connection.execute("rollback")
            try:
                return work(database.connection, *args)
            except sqlite3.Error as error:
                self._mend(error)
                return work(database.connection, *args)
        except OSError as error:
            raise self._unusable(error) from error
        except sqlite3.Error as error:
            raise StoreUnavailable(self.database.path, str(error)) from error
        finally:
            try:
                guard.release()
            except BaseException:  # Ctrl-C, on the way into it
                guard.release()
                raise
            if self.afterwards is not None:
                self._do_afterwards()

    def _do_afterwards(self) -> None:
        work, self.afterwards = self.afterwards, None
        if work is not None:  # another thread may have come out at the same time
            work()

    def refuse_reentry(self) -> NoReturn:
        """This very thread is inside: what it has begun must not be mixed with something else."""
        raise StoreUnavailable(
            self.directory, "asked for from inside one of its own operations (a signal handler?)"
        )

    def refresh(self) -> None:
        """Make sure that the open database is the one at its path."""
        if not self.database.is_current():
            self.operate(self._reopen)

    def _reopen(self, _: Connection) -> None:
        if not self.database.is_current():
            self._open()

    def replace(self, damage: Damaged) -> None:
        """Put a new database in the place of one that a reader found damaged."""
        generation = self.guard.generation

        def work(_: Connection) -> None:
            if self.guard.generation == generation:
                self._set_aside(damage)
                self._open()

        self.operate(work)

    def _mend(self, error: sqlite3.Error) -> None:
        """Replace a damaged database; raise what any other error means."""
        meaning = self.database.translate(error)
        if not isinstance(meaning, Damaged):
            raise meaning from error
        self._set_aside(meaning)
        self._open()

    def awaited(self, connection: Connection) -> list[str]:
        """The live holders that have not said yet what they hold."""
        awaited = [holder for (holder,) in connection.execute("select holder from awaited")]
        alive = [holder for holder in awaited if self.live.is_alive(holder)]
        self.tenant.clear_up(connection, [holder for holder in awaited if holder not in alive])
        self.settled = not alive
        return alive

    def _open(self) -> None:
        """Connect to what is at the path now, or to a new file if there is nothing usable."""
        try:
            others = [holder for holder in self.live.holders() if holder != self.holder_id]
            alive = [holder for holder in others if self.live.is_alive(holder)]
            fresh = not self.database.exists()
            if fresh:
                self._create(alive)
            try:
                self.database.open(self.guard.generation)
            except (Damaged, sqlite3.DatabaseError) as error:
                damage = error if isinstance(error, Damaged) else self.database.translate(error)
                if not isinstance(damage, Damaged):
                    raise damage from error
                self._set_aside(damage)
                self._create(alive)
                self.database.open(self.guard.generation)
                fresh = True
            self._take_stock(self.database.connection, others, alive)
            for holder in alive if fresh else ():
                self.presence.send(holder, "a")
        except sqlite3.Error as error:
            self.database.let_go()
            raise self.database.translate(error) from error
        except BaseException:
            self.database.let_go()
            raise

    def _create(self, alive: list[str]) -> None:
        """Make a new database, in which those alive have to say first what they hold."""
        busy = [(holder,) for holder in alive if self.live.is_busy(holder)]

        def prepare(connection: Connection) -> None:
            connection.executemany("insert into awaited values (?)", busy)
            self.tenant.write_terms(connection)

        self.database.create(self.guard.next_generation(), prepare)

    def _take_stock(self, connection: Connection, others: list[str], alive: list[str]) -> None:
        self.settled = False
        is_new = self._generation != self.guard.generation
        dead = [holder for holder in others if holder not in alive]
        if self._presence is not None:
            self.tenant.clear_up(connection, dead)
        else:
            self._presence = Presence(self.live)
            self.holder_id = self._presence.id
            if alive:
                self.tenant.clear_up(connection, dead)
            else:
                # The first one in: whatever stands in the file belongs to nobody.
                self.tenant.clear_out(connection)
                self._remove_drafts()
                self.guard.start_afresh()
                is_new = True
        if is_new:
            self.tenant.bring_terms(connection)
            self._generation = self.guard.generation
        self.tenant.announce(connection)
        for holder in dead:
            self.live.remove(holder)

    def _remove_drafts(self) -> None:
        """Files that someone was making when they died."""
        for name in os.listdir(self.directory):
            if name.endswith(".new") and name.startswith(("slots.", "config.toml.")):
                os.unlink(os.path.join(self.directory, name))

    def _set_aside(self, damage: Damaged) -> None:
        aside = self.database.set_aside()
        journal.log().error(
            "%s cannot be used (%s). It was set aside as %s and a new one is made;"
            " nothing durable was in it",
            self.database.path,
            damage,
            aside,
        )

    def _unusable(self, error: OSError) -> StoreUnavailable:
        lack = lack_of_files(error)
        if lack:
            return StoreUnavailable(self.directory, lack)
        is_file = isinstance(error, FileExistsError)
        reason = "it is not a directory" if is_file else error.strerror or error
        return StoreUnavailable(
            self.directory,
            f"{reason}; check its owner, mode and file system,"
            " or set HEADWAY_HOME to another directory",
        )

    def forget_after_fork(self) -> None:
        """In a forked child: close what is the parent's without touching it, and move in anew."""
        self.database.forget()
        if self._presence is not None:
            self._presence.forget()
            self._presence, self.holder_id = None, ""
        if self._live is not None:
            self._live.close()
        self.guard.forget()
        self.afterwards = None
        self._move_in()

    def come_to_rest(self, seconds: float) -> bool:
        """Before a fork: nobody inside, and no connection for the child to inherit.

        ``guard.go_on`` follows, also when it raised.

        SQLite keeps in memory which locks this process has. A child would inherit
        the belief without the locks.
        """
        if not self.guard.come_to_rest(seconds):
            return False
        self.database.let_go()
        return True

    def leave(self, farewell: Callable[[Connection], None], *, again: Callable[[], None]) -> None:
        """Disappear from the home after one last operation; whoever comes later is refused.

        If that fails, others will find this holder gone and give back for it. If another
        thread of ours is inside and stays there, it does ``again`` on its way out.
        """
        try:
            if self.holder_id:
                self.operate(self._say, farewell)
        except StoreClosed:
            pass  # somebody else did it
        finally:
            self.afterwards = again  # before the look whether anyone is inside
            if self.guard.come_to_rest(0):
                try:
                    self.afterwards = None
                    self._disappear()
                finally:
                    self.guard.release()

    def _say(self, connection: Connection, farewell: Callable[[Connection], None]) -> None:
        farewell(connection)
        self.database.let_go()
        self._disappear()

    def _disappear(self) -> None:
        """Nobody of ours is inside, nor comes in any more. Safe to repeat."""
        self.database.forget()
        presence, self._presence, self.holder_id = self._presence, None, ""
        self._live = None
        try:
            if presence is not None:
                presence.leave()
        finally:
            self.guard.close()

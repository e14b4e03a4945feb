"""A home on disk: its directory, its guard, its living holders and its database.

Every operation of the SQLite store runs through ``operate``, which makes sure
that nobody else is inside and that the open database is the one at its path.
If it is not, this process moves over to the one that is: it says there what it
holds before it does anything else, and a new file grants nothing until every
live holder has done so.
"""

from __future__ import annotations

import math
import os
import time

from headway import forking, journal, ownership
from headway.errors import StoreUnavailable
from headway.stores.base import StoreClosed
from headway.stores.database import (
    GUILTY,
    INNOCENT,
    Damaged,
    Database,
    Outdated,
    suspicion,
    unlink,
)
from headway.stores.driver import sqlite3
from headway.stores.guard import NO_FILES, Guard
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

        def examine(self, connection: Connection) -> None:
            """Read everything in a database, and raise any error if that makes no sense."""


# For so long no new database is made after one that was damaged from the beginning: a disk that
# does that to one will do it to the next.
_GIVE_UP_SECONDS = 5.0


class HomeReplaced(StoreUnavailable):
    """The directory at the path is not the home that this process has opened."""


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
        self._new_ones_fail_until = -math.inf
        self._move_in()

    def _move_in(self) -> None:
        try:
            ownership.make_home(self.directory)
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
            if (
                not database.is_open
                or database.generation != guard.generation
                or not database.is_linked()
            ):
                self._open()
            elif database.connection.in_transaction:  # Ctrl-C struck in its last moments
                database.connection.execute("rollback")
            try:
                return work(database.connection, *args)
            except Exception as error:
                if suspicion(error) == INNOCENT:
                    raise
                self._mend(error)
                return work(database.connection, *args)
        except (OSError, sqlite3.Error, Damaged) as error:
            raise self.unavailable(error) from error
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

    def refresh(self, *, certainly: bool = False) -> None:
        """Make sure that the open database is the one at its path, and whole.

        ``certainly`` if somebody found that this process has one open that is not.
        """
        if certainly or not self.database.is_current():
            self.operate(self._reopen)

    def _reopen(self, _: Connection) -> None:
        if not self.database.is_current() or not self.database.is_whole():
            self._open()

    def recheck(self, error: Exception, generation: int) -> None:
        """A reader met an error in this database: put a new one in its place if it is damaged."""

        def work(_: Connection) -> None:
            # Otherwise somebody else has done so, or it was in the middle of that.
            if self.guard.generation == generation:
                self._mend(error, quietly=True)

        self.operate(work)

    def _mend(self, error: Exception, *, quietly: bool = False) -> None:
        """Replace a database that is damaged; raise the error if it is not."""
        damage = Damaged(str(error)) if suspicion(error) == GUILTY else self._examine()
        if damage is not None:
            self._set_aside(damage)
            self._open()
        elif not quietly:
            raise error

    def _examine(self) -> Damaged | None:
        """What is wrong with the file, as a new connection finds it; the caller is inside."""
        twin = self.database.twin()
        try:
            twin.open(self.guard.generation, thorough=True)
            self.tenant.examine(twin.connection)
        except Exception as error:
            if suspicion(error) == INNOCENT:
                raise
            return Damaged(f"{error}")
        finally:
            twin.let_go()
        return None

    def awaited(self, connection: Connection) -> list[str]:
        """The live holders that have not said yet what they hold."""
        awaited = [holder for (holder,) in connection.execute("select holder from awaited")]
        alive = [holder for holder in awaited if self.live.is_alive(holder)]
        self.tenant.clear_up(connection, [holder for holder in awaited if holder not in alive])
        self.settled = not alive
        return alive

    def _open(self) -> None:
        """Connect to what is at the path now, or to a new file if there is nothing usable."""
        if not self.guard.is_at_its_path():
            # Those who use it now have another guard, so both would be inside at once.
            raise HomeReplaced(
                self.directory,
                "it was deleted, or another home was made in its place, while this process used"
                " it; restart this process",
            )
        try:
            others = [holder for holder in self.live.holders() if holder != self.holder_id]
            alive = [holder for holder in others if self.live.is_alive(holder)]
            has_arrived = self._presence is not None and self._generation >= 0
            is_first = not alive and not has_arrived
            fresh = not self.database.exists() or self._is_torn_apart()
            if fresh:
                self._create(alive)
            try:
                self._enter(others, alive, is_first=is_first)
            except Exception as error:
                # Whatever went wrong before the first operation: nothing in there is needed.
                if suspicion(error) == INNOCENT or time.monotonic() < self._new_ones_fail_until:
                    raise
                self._set_aside(error)
                self._create(alive)
                self._new_ones_fail_until = time.monotonic() + _GIVE_UP_SECONDS
                self._enter(others, alive, is_first=is_first)
                self._new_ones_fail_until, fresh = -math.inf, True
            for holder in alive if fresh else ():
                self.presence.send(holder, "a")
        except BaseException:
            self._let_go()
            raise

    def _is_torn_apart(self) -> bool:
        """Whether log or index of our open database were deleted; if so, it is put away.

        Others may have opened it since, with new ones: what they write and what we wrote are not
        in one place any more.
        """
        database = self.database
        if not database.is_open or not database.is_current() or database.is_whole():
            return False
        self._set_aside(Damaged("its -wal or -shm file was deleted while it was in use"))
        return True

    def _enter(self, others: list[str], alive: list[str], *, is_first: bool) -> None:
        self.database.open(self.guard.generation, thorough=is_first)
        known, found = self.guard.side_files, self.database.side_files
        if alive and known not in (NO_FILES, found):
            raise Damaged("its -wal or -shm file was deleted while others had it open")
        self.guard.side_files = found
        self._take_stock(self.database.connection, others, alive, is_first=is_first)

    def _create(self, alive: list[str]) -> None:
        """Make a new database, in which those alive have to say first what they hold."""
        busy = [(holder,) for holder in alive if self.live.is_busy(holder)]

        def prepare(connection: Connection) -> None:
            connection.executemany("insert into awaited values (?)", busy)
            self.tenant.write_terms(connection)

        self.database.create(self.guard.next_generation(), prepare)

    def _take_stock(
        self, connection: Connection, others: list[str], alive: list[str], *, is_first: bool
    ) -> None:
        self.settled = False
        is_new = self._generation != self.guard.generation
        dead = [holder for holder in others if holder not in alive]
        if self._presence is None:
            self._remove_drafts(is_first=is_first)
            self._presence = Presence(self.live)
            self.holder_id = self._presence.id
        if is_first:
            # Whatever stands in the file belongs to nobody.
            self.tenant.clear_out(connection)
            self.guard.start_afresh()
            is_new = True
        else:
            self.tenant.clear_up(connection, dead)
        if is_new:
            self.tenant.bring_terms(connection)
            self._generation = self.guard.generation
        self.tenant.announce(connection)
        for holder in dead:
            self.live.remove(holder)

    def _remove_drafts(self, *, is_first: bool) -> None:
        """Files that someone was making when they died.

        Databases and holders are made under the guard, so none of these is still in the making.
        """
        self.live.remove_drafts()
        made = ("slots.", "config.toml.") if is_first else ("slots.db.",)
        for name in os.listdir(self.directory):
            if ".new" in name and name.startswith(made):
                unlink(os.path.join(self.directory, name))

    def _set_aside(self, damage: Exception) -> None:
        if isinstance(damage, Outdated):
            self.database.remove()
            return
        aside = self.database.set_aside()
        journal.log().error(
            "%s cannot be used (%s). It was set aside as %s and a new one is made;"
            " nothing durable was in it",
            self.database.path,
            damage,
            aside,
        )

    def unavailable(self, error: Exception) -> StoreUnavailable:
        """What an error means to a caller that no new database gets around."""
        if isinstance(error, OSError):
            return self._unusable(error)
        meaning = self.database.translate(error) if isinstance(error, sqlite3.Error) else error
        if isinstance(meaning, StoreUnavailable):
            return meaning
        return StoreUnavailable(
            self.database.path, f"a new one is damaged as well ({meaning}); check the disk"
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
        presence, self._presence, self.holder_id = self._presence, None, ""
        self.afterwards = None
        parents = [self.database.forget, self.guard.forget]
        if presence is not None:
            parents.insert(0, presence.forget)  # the lock that tells whether the parent lives
        if self._live is not None:
            parents.append(self._live.close)
        forking.run_all([*parents, self._move_in])

    def come_to_rest(self, seconds: float) -> bool:
        """Before a fork: nobody inside, and no connection for the child to inherit.

        ``guard.go_on`` follows, also when it raised.

        SQLite keeps in memory which locks this process has. A child would inherit
        the belief without the locks.
        """
        if not self.guard.come_to_rest(seconds):
            return False
        self._let_go()
        return True

    def _let_go(self) -> None:
        """Close the database. Whoever is the last to do so takes log and index away with it.

        Before a fork this happens outside of the guard, so somebody may open it meanwhile.
        """
        if not self.database.is_open:
            return
        guard, known = self.guard, self.guard.side_files
        guard.side_files = NO_FILES
        self.database.let_go()
        if guard.side_files == NO_FILES and self.database.side_files == known:
            guard.side_files = known

    def leave(self, farewell: Callable[[Connection], None], *, again: Callable[[], None]) -> None:
        """Disappear from the home after one last operation; whoever comes later is refused.

        If that fails, others will find this holder gone and give back for it. If another
        thread of ours is inside and stays there, it does ``again`` on its way out.
        """
        try:
            if self.holder_id:
                self.operate(self._say, farewell)
        except (StoreClosed, HomeReplaced):
            pass  # somebody else did it, or nothing there is ours
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
        self._let_go()
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

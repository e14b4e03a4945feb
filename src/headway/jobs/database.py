"""``jobs.db`` as a file: one writer at a time, and every commit on disk before it returns."""

from __future__ import annotations

import os
import time

from headway import clocks, forking, ownership
from headway.errors import ConfigError, HeadwayError, StoreUnavailable
from headway.stores.base import StoreClosed
from headway.stores.database import Damaged, translate
from headway.stores.driver import sqlite3
from headway.stores.guard import Guard
from headway.stores.locks import owned_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    T = TypeVar("T")

FORMAT = 2
# What made each format of the one before.
_UPGRADES = {
    2: (
        "alter table jobs add column delayed_until integer",
        "create index jobs_delayed on jobs (delayed_until) where delayed_until is not null",
        "alter table news add column problem text",
    )
}
_FILE_NAME = "jobs.db"
_APPLICATION_ID = 0x48444A42  # "HDJB"
_SCHEMA = os.path.join(os.path.dirname(__file__), "schema.sql")
# A log that is written again from its start is synced far faster than one that grows.
_LOG_PAGES = 100
_REST_SECONDS = 1.0
# How long a scrub waits for other processes to finish reading, while it lets nobody write.
_SCRUB_PATIENCE_SECONDS = 0.1
# The name of the fact that nothing was ever deleted from this file without being overwritten.
_OVERWRITES = "overwrites deleted"


_WAY_OUT = (
    "It holds the jobs, so nothing was thrown away: move it aside to start anew, or restore it"
    " from a backup"
)


class JobsDatabase:
    """A connection to the board's file, made when it is first needed, and again after a fork."""

    def __init__(self, home: str, *, timeout_seconds: float) -> None:
        self.path = os.path.join(home, _FILE_NAME)
        self._home, self._timeout_seconds = home, timeout_seconds
        self._guard: Guard | None = None
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._to_be_closed = self._closed = False
        # How often that was: once more when another file has taken the place of the first.
        self.opened = 0
        self._lock = owned_lock()
        forking.register(self, kept=False)

    def change(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do the work in one transaction that is on disk when this returns."""
        guard = self._move_in()
        try:
            guard.acquire(patient=True)
            with self._lock:
                return _transact(self._connected(), work)
        except sqlite3.Error as error:
            raise self._meaning(error) from error
        finally:
            guard.release()
            if self._to_be_closed:
                self.close()

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Look at one consistent state; nobody has to wait for that."""
        guard = self._move_in()
        try:
            if not self._is_connected():
                self._connect_inside(guard)
            with self._lock:
                connection = self._connected()
                try:
                    connection.execute("begin")
                    return work(connection)
                finally:
                    _roll_back(connection)
        except sqlite3.Error as error:
            raise self._meaning(error) from error
        finally:
            if self._to_be_closed:
                self.close()

    def scrub(self) -> bool:
        """Have nothing that was deleted left in the files; false if somebody reads just now.

        Pages of the database are overwritten when they are deleted, and the log is emptied
        here. A database of an older version has to be written anew, once.
        """
        guard = self._move_in()
        try:
            guard.acquire(patient=True)
            with self._lock:
                return _scrub(self._connected(), self._timeout_seconds)
        except sqlite3.Error as error:
            raise self._meaning(error) from error
        finally:
            guard.release()
            if self._to_be_closed:
                self.close()

    def exists(self) -> bool:
        """Whether anyone ever kept a job here."""
        return os.path.exists(self.path)

    def close(self, *, for_good: bool = False) -> None:
        """Give the connection back; unless for good, it is opened again when needed.

        Whoever uses it now, this very thread or another, does that when it is done.
        """
        self._closed = self._closed or for_good
        self._to_be_closed = True
        guard = self._guard
        if guard is None or guard.is_mine() or self._is_mine():
            return
        try:
            if guard.come_to_rest(self._timeout_seconds):
                with self._lock:
                    if self._connection is not None:
                        self._connection.close()
                    self._connection = self._guard = None
                    self._to_be_closed = False
                    guard.close()
        finally:
            guard.go_on()

    # -- inside ---------------------------------------------------------------------------

    def _move_in(self) -> Guard:
        with self._lock:
            if self._closed:
                raise StoreClosed
            if self._guard is None:
                self._to_be_closed = False
                ownership.make_home(self._home)
                path = os.path.join(self._home, "jobs.lock")
                self._guard = Guard(path, timeout_seconds=self._timeout_seconds)
            return self._guard

    def come_to_rest(self) -> bool:
        """Before a fork: let no other thread be inside; false if that takes long.

        SQLite keeps for the whole process who is inside a database. A child that was
        forked meanwhile would believe for ever that its parent's thread is.
        """
        return not self._is_mine() and self._lock.acquire(True, _REST_SECONDS)

    def go_on(self) -> None:
        """After it, in the parent; safe to repeat."""
        if self._is_mine():
            self._lock.release()

    def forget_after_fork(self) -> None:
        """In a forked child: SQLite must not touch a parent's connection, nor we its lock."""
        if self._connection is not None:
            _abandoned.append(self._connection)
        if self._guard is not None:
            self._guard.forget()
        self._connection, self._guard, self._lock = None, None, owned_lock()

    def _is_mine(self) -> bool:
        return self._lock._is_owned()  # noqa: SLF001 - the one way to know for sure

    def _is_connected(self) -> bool:
        return self._connection is not None and self._identity == _identity(self.path)

    def _connect_inside(self, guard: Guard) -> None:
        """Open the file while nobody else makes it; who stays inside keeps no reader out."""
        try:
            guard.acquire(patient=True)
            with self._lock:
                self._connected()
        except StoreUnavailable:
            pass
        finally:
            guard.release()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._is_connected():
            return self._connection
        if self._guard is None:
            raise StoreClosed
        if self._connection is not None:  # its file was taken away under us
            _abandoned.append(self._connection)
            self._connection = None
        created = _make(self.path)
        refuse_foreign(self._home)
        connection = sqlite3.connect(
            self.path,
            timeout=self._timeout_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            self._refuse_other_format(_version(connection))  # before anything is written
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = full")
            # Environments have credentials in them: what is deleted shall be gone.
            connection.execute("pragma secure_delete = on")
            connection.execute(f"pragma wal_autocheckpoint = {_LOG_PAGES}")
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        if created:
            _sync_directory(self._home)
        self._connection, self._identity = connection, _identity(self.path)
        self.opened += 1
        return connection

    def _refuse_other_format(self, version: int) -> None:
        if version == 0:
            size = os.stat(self.path).st_size
            raise StoreUnavailable(
                self.path,
                f"it has lost its content ({size} bytes, and no jobs in it), and so the jobs."
                f" {_WAY_OUT}",
            )
        if version > FORMAT:
            raise StoreUnavailable(
                self.path,
                f"it was made by a newer Headway (format {version}, this one knows {FORMAT});"
                " upgrade this one",
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if _version(connection) < FORMAT:
            _transact(connection, _upgrade)
        if not _is_of_this_boot(connection):
            _transact(connection, _rebase_after_boot)

    def _meaning(self, error: sqlite3.Error) -> HeadwayError:
        meaning = translate(error, self.path, self._timeout_seconds)
        if isinstance(meaning, Damaged):
            return StoreUnavailable(
                self.path,
                f"it is damaged ({meaning}). {_WAY_OUT}",
            )
        return meaning


def refuse_foreign(home: str) -> None:
    """Raise ``StoreUnavailable`` if somebody else could have written the jobs of a home.

    The worker runs them, and is itself started by a link in the home.
    """
    path = os.path.join(home, _FILE_NAME)
    found = os.stat(path) if os.path.exists(path) else None
    try:
        ownership.refuse_foreign(path, found, "and its jobs would run as you")
    except ConfigError as error:
        raise StoreUnavailable(path, str(error)) from None


# Connections of a parent process, or to a file that is gone: closing them would do harm.
_abandoned: list[sqlite3.Connection] = []


def _make(path: str) -> bool:
    """Have a file that is the owner's alone; whether it is new.

    It is made complete beside its place: so a file without anything in it is never a new one,
    but one that has lost its jobs. One that is there is not opened: closing it again would
    drop the locks of every connection that this process has to it.
    """
    if os.path.exists(path):
        return False
    draft = f"{path}.{os.getpid()}.new"
    _unlink(draft)
    os.close(ownership.create(draft, os.O_RDWR | os.O_EXCL))
    try:
        connection = sqlite3.connect(draft, isolation_level=None)
        try:
            connection.execute("pragma synchronous = full")
            _transact(connection, _create)
        finally:
            connection.close()
        for rest in ("-wal", "-shm"):  # of one that was deleted: it would be taken for ours
            _unlink(path + rest)
        os.link(draft, path)
    except FileExistsError:  # somebody else was faster
        return False
    finally:
        _unlink(draft)
    return True


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _transact(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    try:
        connection.execute("begin immediate")
        result = work(connection)
        connection.execute("commit")
    except BaseException:
        _roll_back(connection)
        raise
    return result


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("rollback")


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("pragma user_version").fetchone()[0])


def _create(connection: sqlite3.Connection) -> None:
    with open(_SCHEMA, encoding="utf-8") as file:
        # Not executescript: that commits what is open.
        for statement in _statements(file.read()):
            connection.execute(statement)
    connection.execute("insert into facts values (?, 1)", (_OVERWRITES,))
    connection.execute(f"pragma application_id = {_APPLICATION_ID}")
    connection.execute(f"pragma user_version = {FORMAT}")


def _upgrade(connection: sqlite3.Connection) -> None:
    """Bring a database of an older format to this one."""
    for version in range(_version(connection) + 1, FORMAT + 1):
        for statement in _UPGRADES[version]:
            connection.execute(statement)
        connection.execute(f"pragma user_version = {version}")


def overwrites_deleted(connection: sqlite3.Connection) -> bool:
    """Whether everything that was ever deleted from this database was overwritten, too."""
    query = "select 1 from facts where name = ?"
    return connection.execute(query, (_OVERWRITES,)).fetchone() is not None


def _scrub(connection: sqlite3.Connection, timeout_seconds: float) -> bool:
    connection.execute(f"pragma busy_timeout = {int(_SCRUB_PATIENCE_SECONDS * 1000)}")
    try:
        if not overwrites_deleted(connection):
            connection.execute("pragma temp_store = memory")  # not in a file somewhere else
            connection.execute("vacuum")
            connection.execute("insert into facts values (?, 1)", (_OVERWRITES,))
        (is_busy, _, _) = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
        return not is_busy
    finally:
        connection.execute(f"pragma busy_timeout = {int(timeout_seconds * 1000)}")


def _statements(script: str) -> list[str]:
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("--")]
    return [part for part in "\n".join(lines).split(";") if part.strip()]


def _sync_directory(path: str) -> None:
    """A new file's name has to survive a power cut too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_of_this_boot(connection: sqlite3.Connection) -> bool:
    found = connection.execute("select value from facts where name = 'boot'").fetchone()
    return found is not None and found[0] == clocks.boot_name()


def _rebase_after_boot(connection: sqlite3.Connection) -> None:
    """After a restart of the machine its clock began anew: keep order and age of the jobs.

    All are moved by the same time, so that nobody overtakes anybody.
    """
    if _is_of_this_boot(connection):  # somebody else was faster
        return
    now, began = clocks.boot_microseconds(), time.time() - clocks.boot_seconds()
    found = connection.execute("select value from facts where name = 'began'").fetchone()
    (newest,) = connection.execute("select max(arrival) from jobs").fetchone()
    if found is not None and newest is not None:
        # Somebody may have set the time of day: nobody arrives in the future.
        shift = min(int((found[0] - began) * 1e6), now - newest)
        connection.execute(
            "update jobs set arrival = arrival + ?, rank = rank + ?,"
            " delayed_until = delayed_until + ?",
            (shift,) * 3,
        )
        connection.execute("update facts set value = value + ? where name = 'arrival'", (shift,))
        connection.execute(
            "update jobs set due = ? + cast((expire_at - ?) * 1e6 as integer)"
            " where due is not null",
            (now, time.time()),
        )
    connection.execute("insert or replace into facts values ('began', ?)", (began,))
    connection.execute("insert or replace into facts values ('boot', ?)", (clocks.boot_name(),))

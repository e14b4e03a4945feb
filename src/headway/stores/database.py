"""``slots.db`` as a file: opening it, making it, knowing it from another one at its path."""

from __future__ import annotations

import os
import time

from headway.errors import StoreUnavailable
from headway.stores.driver import sqlite3
from headway.stores.processes import describe, lack_of_files, lock_owners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = 2
_APPLICATION_ID = 0x48445759  # "HDWY"
_NONE = (0, 0)
_SCHEMA = os.path.join(os.path.dirname(__file__), "schema.sql")


class Damaged(Exception):  # noqa: N818 - handled inside the store
    """The file cannot be used: not a database, broken, or a copy of another home's."""


class Database:
    """A connection to the file that was at the path when it was opened."""

    def __init__(self, path: str, *, timeout_seconds: float) -> None:
        self.path, self._timeout_seconds = path, timeout_seconds
        self.connection: sqlite3.Connection
        # For statements whose result is only a number: making one for each costs more.
        self.cursor: sqlite3.Cursor
        self.is_open = False
        self._identity = _NONE
        self._mark = -1

    def is_current(self) -> bool:
        """Whether the open file is still the one at the path."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def is_linked(self) -> bool:
        """Whether the open file is still anywhere: what every operation asks, in a third the time.

        A file that was only moved is found out by the one who makes the next: it
        tells all who are alive, and grants nothing until they have come over.
        """
        return os.fstat(self._mark).st_nlink > 0 if self._mark >= 0 else self.is_current()

    def twin(self) -> Database:
        """Another, unopened connection to the same path."""
        return Database(self.path, timeout_seconds=self._timeout_seconds)

    @property
    def inode(self) -> int:
        """Tells this file from every other one that is open anywhere."""
        return self._identity[1]

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def create(self, generation: int, prepare: Callable[[sqlite3.Connection], None]) -> None:
        """Make a new file; the caller is under the guard and has seen that there is none.

        It appears at its path complete or not at all.
        """
        for suffix in ("-wal", "-shm"):
            _unlink(self.path + suffix)
        draft = f"{self.path}.{os.getpid()}.new"
        _unlink(draft)
        os.close(os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = self._connect(draft)
        try:
            connection.execute("pragma page_size = 1024")
            with open(_SCHEMA, encoding="utf-8") as file:
                connection.executescript(file.read())
            inode = os.stat(draft).st_ino
            facts = [("inode", inode), ("generation", generation)]
            connection.executemany("insert into facts values (?, ?)", facts)
            prepare(connection)
            connection.execute(f"pragma application_id = {_APPLICATION_ID}")
            connection.execute(f"pragma user_version = {FORMAT}")
        finally:
            connection.close()
        os.rename(draft, self.path)

    def open(self, generation: int) -> None:
        """Connect to the file at the path; ``Damaged`` if it is not the newest of ours."""
        self.let_go()
        found = os.stat(self.path)
        connection = self._connect(self.path)
        try:
            self._check(connection, found.st_ino, generation)
            connection.execute("pragma journal_mode = wal")
        except BaseException:
            connection.close()
            raise
        self.connection, self.cursor = connection, connection.cursor()
        self._identity = (found.st_dev, found.st_ino)
        self._mark = _mark(self.path, self._identity)
        self.is_open = True

    def _connect(self, path: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path,
            timeout=self._timeout_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        # A crash of the machine ends all holders: nothing in here has to survive it.
        connection.execute("pragma synchronous = off")
        connection.execute("pragma temp_store = memory")
        return connection

    def _check(self, connection: sqlite3.Connection, inode: int, generation: int) -> None:
        (application,) = connection.execute("pragma application_id").fetchone()
        (version,) = connection.execute("pragma user_version").fetchone()
        if application != _APPLICATION_ID:
            raise Damaged("it is not a Headway database")
        if version > FORMAT:
            raise StoreUnavailable(
                self.path,
                f"it was made by a newer Headway (store format {version}, this one knows"
                f" {FORMAT}); upgrade this one, or delete the file when nothing runs",
            )
        if version < FORMAT:
            raise Damaged(f"it was made by an older Headway (store format {version})")
        facts = dict(connection.execute("select name, value from facts"))
        if facts.get("inode") != inode:
            raise Damaged("it is a copy of another file")
        if facts.get("generation") != generation:
            raise Damaged("it is an older one, brought back")

    def set_aside(self) -> str:
        """Move the file out of the way, for whoever wants to look into it."""
        aside = f"{self.path}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
        self.let_go()
        os.rename(self.path, aside)
        for suffix in ("-wal", "-shm"):
            _unlink(self.path + suffix)
        return aside

    def let_go(self) -> None:
        """Close the connection, unless closing it could harm the file that is there now."""
        if self.is_open and self.is_current():
            self.connection.close()
            self._unmark()
        else:
            # SQLite deletes the log by its name on closing, and that is another's by now.
            self.forget()

    def forget(self) -> None:
        """Leave the connection alone: after a fork it is the parent's."""
        if self.is_open:
            _never_close(self.connection)
            self._unmark()

    def _unmark(self) -> None:
        self.is_open, self._identity = False, _NONE
        if self._mark >= 0:
            os.close(self._mark)
            self._mark = -1

    def translate(self, error: sqlite3.Error) -> Damaged | StoreUnavailable:
        """What an error of SQLite means to a caller."""
        return translate(error, self.path, self._timeout_seconds)


def translate(
    error: sqlite3.Error, path: str, timeout_seconds: float
) -> Damaged | StoreUnavailable:
    """What an error of SQLite at this path means to a caller."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Damaged(str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        files = [path + suffix for suffix in ("", "-wal", "-shm")]
        pids = {pid for file in files for pid in lock_owners(file)}
        who = ", ".join(describe(pid) for pid in sorted(pids)) or "another program"
        reason = f"it is locked by {who} for more than {timeout_seconds:g} s"
    elif code == sqlite3.SQLITE_READONLY:
        reason = f"it cannot be written ({error}); check its mode and file system"
    elif code == sqlite3.SQLITE_FULL:
        reason = "the disk is full"
    elif code == sqlite3.SQLITE_CANTOPEN:
        reason = lack_of_files() or str(error)
    else:
        reason = str(error)
    return StoreUnavailable(path, reason)


def _mark(path: str, identity: tuple[int, int]) -> int:
    """A descriptor that only marks the file: closing a real one would drop SQLite's locks."""
    if not hasattr(os, "O_PATH"):
        return -1
    mark = os.open(path, os.O_PATH | os.O_CLOEXEC)
    found = os.fstat(mark)
    if (found.st_dev, found.st_ino) == identity:
        return mark
    os.close(mark)
    return -1


def _never_close(connection: sqlite3.Connection) -> None:
    """Keep a connection open until the process ends, through interpreter shutdown too."""
    import ctypes  # noqa: PLC0415 - for the one call that a garbage collector respects

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

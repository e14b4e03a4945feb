"""``slots.db`` as a file: opening it, making it, knowing it from another one at its path."""

from __future__ import annotations

import os
import sqlite3
import time

from headway.errors import StoreUnavailable
from headway.stores.processes import describe, lock_owners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT = 1
_APPLICATION_ID = 0x48445759  # "HDWY"
_SCHEMA = os.path.join(os.path.dirname(__file__), "schema.sql")


class Damaged(Exception):  # noqa: N818 - handled inside the store
    """The file cannot be used: not a database, broken, or a copy of another home's."""


class Database:
    """A connection to the file that was at the path when it was opened."""

    def __init__(self, path: str, *, timeout_seconds: float) -> None:
        self.path, self._timeout_seconds = path, timeout_seconds
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)

    def is_current(self) -> bool:
        """Whether the open file is still the one at the path."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def twin(self) -> Database:
        """Another, unopened connection to the same path."""
        return Database(self.path, timeout_seconds=self._timeout_seconds)

    @property
    def inode(self) -> int:
        """Tells this file from every other one that is open anywhere."""
        return self._identity[1]

    @property
    def connection(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def create(self) -> None:
        """Make a new file; the caller is under the guard and has seen that there is none."""
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
            connection.execute("insert into facts values ('inode', ?)", (inode,))
            connection.execute(f"pragma application_id = {_APPLICATION_ID}")
            connection.execute(f"pragma user_version = {FORMAT}")
        finally:
            connection.close()
        os.rename(draft, self.path)

    def open(self) -> None:
        """Connect to the file at the path; ``Damaged`` if it is not ours to use."""
        self.let_go()
        found = os.stat(self.path)
        connection = self._connect(self.path)
        try:
            self._check(connection, found.st_ino)
            connection.execute("pragma journal_mode = wal")
        except BaseException:
            connection.close()
            raise
        self._connection, self._identity = connection, (found.st_dev, found.st_ino)

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
        return connection

    def _check(self, connection: sqlite3.Connection, inode: int) -> None:
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
        row = connection.execute("select value from facts where name = 'inode'").fetchone()
        if row is None or row[0] != inode:
            raise Damaged("it is a copy of another file")

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
        if self._connection is None:
            return
        if self.is_current():
            self._connection.close()
        else:
            # SQLite deletes the log by its name on closing, and that is another's by now.
            never_close(self._connection)
        self._connection = None
        self._identity = (0, 0)

    def forget(self) -> None:
        """After a fork: the connection is the parent's."""
        if self._connection is not None:
            never_close(self._connection)
        self._connection = None
        self._identity = (0, 0)

    def translate(self, error: sqlite3.Error) -> Exception:
        """What an error of SQLite means to a caller."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return Damaged(str(error))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            pids = {pid for file in self._files() for pid in lock_owners(file)}
            who = ", ".join(describe(pid) for pid in sorted(pids)) or "another program"
            reason = f"it is locked by {who} for more than {self._timeout_seconds:g} s"
        elif code == sqlite3.SQLITE_READONLY:
            reason = f"it cannot be written ({error}); check its mode and file system"
        elif code == sqlite3.SQLITE_FULL:
            reason = "the disk is full"
        else:
            reason = str(error)
        return StoreUnavailable(self.path, reason)

    def _files(self) -> Iterator[str]:
        return (self.path + suffix for suffix in ("", "-wal", "-shm"))


def never_close(connection: sqlite3.Connection) -> None:
    """Keep a connection open until the process ends, through interpreter shutdown too."""
    import ctypes  # noqa: PLC0415 - for the one call that a garbage collector respects

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

"""``slots.db`` as a file: opening it, making it, knowing it from another one at its path."""

from __future__ import annotations

import os
import time

from headway import clocks, ownership
from headway.errors import HeadwayError, StoreUnavailable
from headway.stores.driver import sqlite3
from headway.stores.processes import describe, lack_of_files, lock_owners

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FORMAT = 2
_ABSURD_FORMAT = 1000
_APPLICATION_ID = 0x48445759  # "HDWY"
_NONE = (0, 0)
_SCHEMA = os.path.join(os.path.dirname(__file__), "schema.sql")


# SQLite has room for 512 bytes, with the suffix of a journal; a new file has a longer name first.
_LONGEST_PATH = 512 - len("-journal") - len(".4194304.new")
# A file of more pages is not checked when it is opened: that would take more than some 10 ms.
_PAGES_TO_CHECK = 4096
# Set aside, the last so many are kept.
_MANY_ASIDE = 3
# The log and its index: SQLite opens both by name, and whoever finds another one there writes
# into the same file without knowing of those who had it open before.
_SIDECARS = ("-wal", "-shm")
# What an error says about the file: nothing, perhaps that it is damaged, or certainly.
INNOCENT, SUSPECT, GUILTY = range(3)
_GUILTY = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# A log that is shorter than its index says.
_CUT_SHORT = sqlite3.SQLITE_IOERR_SHORT_READ
# The file is not where it was opened.
_MOVED = (sqlite3.SQLITE_READONLY_DBMOVED, sqlite3.SQLITE_IOERR_FSTAT)
# These are about what surrounds the file: locks, rights, the disk, memory.
_INNOCENT = (
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_READONLY,
)
# What rows that make no sense lead to.
_NONSENSE = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


class Damaged(Exception):  # noqa: N818 - handled inside the store
    """The file cannot be used: not a database, broken, or a copy of another home's."""


class Outdated(Damaged):
    """The file is from before the machine was started: power may have been lost on it."""


def suspicion(error: Exception) -> int:
    """What an error says about the file that it was met in."""
    if isinstance(error, Damaged):
        return SUSPECT  # without the guard it may have been in the middle of being replaced
    if isinstance(error, sqlite3.Error):
        code = getattr(error, "sqlite_errorcode", 0)
        if code == _CUT_SHORT or code & 0xFF in _GUILTY:
            return GUILTY
        if code in _MOVED:
            return SUSPECT
        return INNOCENT if code & 0xFF in _INNOCENT else SUSPECT
    is_nonsense = isinstance(error, _NONSENSE) and not isinstance(error, HeadwayError)
    return SUSPECT if is_nonsense else INNOCENT


class Database:
    """A connection to the file that was at the path when it was opened."""

    def __init__(self, path: str, *, timeout_seconds: float) -> None:
        self.path, self._timeout_seconds = path, timeout_seconds
        self.connection: sqlite3.Connection
        # For statements whose result is only a number: making one for each costs more.
        self.cursor: sqlite3.Cursor
        self.is_open = False
        # The number of the database that was opened last, or was to be.
        self.generation = -1
        self._identity = _NONE
        self._marks: tuple[int, ...] = ()

    def is_current(self) -> bool:
        """Whether the open file is still the one at the path."""
        try:
            found = os.stat(self.path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    def is_linked(self) -> bool:
        """Whether the open file is still anywhere: what every operation asks, in a third the time.

        A file that was only moved is found out by the one who makes the next: that has another
        generation.
        """
        return os.fstat(self._marks[0]).st_nlink > 0 if self._marks else self.is_current()

    def is_whole(self) -> bool:
        """Whether it is, with the log and the index that it was opened with.

        Those who have it open share them also when they are deleted. Whoever opens it later
        finds that they are not those in use, and makes a new file.
        """
        for mark in self._marks:
            if os.fstat(mark).st_nlink == 0:
                return False
        return bool(self._marks) or self.is_current()

    def twin(self) -> Database:
        """Another, unopened connection to the same path."""
        return Database(self.path, timeout_seconds=self._timeout_seconds)

    @property
    def inode(self) -> int:
        """Tells this file from every other one that is open anywhere."""
        return self._identity[1]

    @property
    def side_files(self) -> tuple[int, int]:
        """The inodes of the log and the index at the path now; zeros if they are not there."""
        try:
            log, index = (os.stat(self.path + suffix).st_ino for suffix in _SIDECARS)
        except FileNotFoundError:
            return 0, 0
        return log, index

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def create(self, generation: int, prepare: Callable[[sqlite3.Connection], None]) -> None:
        """Make a new file; the caller is under the guard and has seen that there is none.

        It appears at its path complete or not at all.
        """
        for suffix in _SIDECARS:
            unlink(self.path + suffix)
        draft = f"{self.path}.{os.getpid()}.new"
        for suffix in ("", "-journal"):
            unlink(draft + suffix)
        os.close(ownership.create(draft, os.O_RDWR | os.O_EXCL))
        connection = self._connect(draft)
        try:
            connection.execute("pragma page_size = 1024")
            with open(_SCHEMA, encoding="utf-8") as file:
                connection.executescript(file.read())
            inode = os.stat(draft).st_ino
            facts = [("inode", inode), ("generation", generation), ("boot", clocks.boot_name())]
            connection.executemany("insert into facts values (?, ?)", facts)
            prepare(connection)
            connection.execute(f"pragma application_id = {_APPLICATION_ID}")
            connection.execute(f"pragma user_version = {FORMAT}")
        finally:
            connection.close()
        os.rename(draft, self.path)

    def open(self, generation: int, *, thorough: bool = False) -> None:
        """Connect to the file at the path; ``Damaged`` if it is not the newest of ours.

        Thorough is for a file that nobody has open: it may have been there when power was lost.
        """
        self.let_go()
        self.generation = generation
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            raise Damaged("it was deleted while it was opened") from None
        connection = self._connect(self.path)
        try:
            facts = self._check(connection, found.st_ino, generation)
            connection.execute("pragma journal_mode = wal")
            if thorough:
                _examine(connection, facts)
            # A read, so that log and index are there to be marked.
            connection.execute("select 1 from facts limit 1").fetchone()
            marks = _marks(self.path)
        except BaseException:
            connection.close()
            raise
        self.connection, self.cursor = connection, connection.cursor()
        self._identity, self._marks = (found.st_dev, found.st_ino), marks
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

    def _check(
        self, connection: sqlite3.Connection, inode: int, generation: int
    ) -> dict[str, object]:
        (application,) = connection.execute("pragma application_id").fetchone()
        (version,) = connection.execute("pragma user_version").fetchone()
        if application != _APPLICATION_ID:
            raise Damaged("it is not a Headway database")
        if version > _ABSURD_FORMAT:
            raise Damaged(f"store format {version} is none that there ever was")
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
        return facts

    def set_aside(self) -> str:
        """Move the file out of the way, for whoever wants to look into it."""
        prefix = f"{self.path}.damaged-"
        aside = prefix + time.strftime("%Y%m%d-%H%M%S")
        self.let_go()
        try:
            os.rename(self.path, aside)
        except FileNotFoundError:
            pass  # somebody else has put it away
        for suffix in _SIDECARS:
            unlink(self.path + suffix)
        directory, start = os.path.split(prefix)
        kept = sorted(name for name in os.listdir(directory) if name.startswith(start))
        for name in kept[:-_MANY_ASIDE]:
            unlink(os.path.join(directory, name))
        return aside

    def remove(self) -> None:
        """Delete the file."""
        self.let_go()
        for suffix in ("", *_SIDECARS):
            unlink(self.path + suffix)

    def let_go(self) -> None:
        """Close the connection, unless closing it could harm the file that is there now."""
        if self.is_open and self.is_current() and self.is_whole():
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
        marks, self._marks = self._marks, ()
        _close_all(marks)

    def translate(self, error: sqlite3.Error) -> Damaged | StoreUnavailable:
        """What an error of SQLite means to a caller."""
        return translate(error, self.path, self._timeout_seconds)


def translate(
    error: sqlite3.Error, path: str, timeout_seconds: float
) -> Damaged | StoreUnavailable:
    """What an error of SQLite at this path means to a caller."""
    if suspicion(error) == GUILTY:
        return Damaged(str(error))
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
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
        reason = lack_of_files() or _too_long(path) or str(error)
    else:
        name = getattr(error, "sqlite_errorname", "")
        reason = f"{error} ({name})" if name else str(error)
    return StoreUnavailable(path, reason)


def _examine(connection: sqlite3.Connection, facts: dict[str, object]) -> None:
    """Raise ``Damaged`` if power was lost on a file, or its pages do not hang together."""
    if facts.get("boot") != clocks.boot_name():
        raise Outdated("it is from before the machine was started")
    (pages,) = connection.execute("pragma page_count").fetchone()
    if pages > _PAGES_TO_CHECK:
        return
    (found,) = connection.execute("pragma integrity_check(1)").fetchone()
    if found != "ok":
        raise Damaged(found)


def _too_long(path: str) -> str:
    """What to say if a path is longer than SQLite can open; else nothing."""
    length = len(os.fsencode(os.path.realpath(path)))
    if length <= _LONGEST_PATH:
        return ""
    return (
        f"its path has {length} bytes with all links followed, and SQLite opens no file whose path"
        f" has more than {_LONGEST_PATH}; set HEADWAY_HOME to a directory with a shorter path"
    )


def _marks(path: str) -> tuple[int, ...]:
    """Descriptors that only mark the files: closing real ones would drop SQLite's locks."""
    if not hasattr(os, "O_PATH"):
        return ()
    marks: list[int] = []
    try:
        for suffix in ("", *_SIDECARS):
            marks.append(os.open(path + suffix, os.O_PATH | os.O_CLOEXEC))  # noqa: PERF401
    except FileNotFoundError as error:
        _close_all(marks)
        raise Damaged(f"{error.filename} was deleted") from None
    except BaseException:
        _close_all(marks)
        raise
    return tuple(marks)


def _close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _never_close(connection: sqlite3.Connection) -> None:
    """Keep a connection open until the process ends, through interpreter shutdown too."""
    import ctypes  # noqa: PLC0415 - for the one call that a garbage collector respects

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def unlink(path: str) -> None:
    """Delete a file that may be gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass

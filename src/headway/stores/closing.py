"""How a process leaves a home while other threads of it are in the middle of something.

Everything goes back in one last operation under the guard, which also ends the
guard for this process. So every request is either before it, and given back by it,
or after it, and refused. Nobody is waited for but who is inside: looks and
operations refuse whoever comes late, and what is used without them, the lock, the
socket and the directory of the living, is closed by the last thread that lets go of it.
"""

from __future__ import annotations

from headway import journal
from headway.stores.base import forsake

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from headway.stores.home import Home
    from headway.stores.ledger import Ledger
    from headway.stores.reader import Reader
    from headway.stores.sqlbook import SqlBook
    from headway.stores.wakeups import Wakeups
    from headway.tickets import Ticket


class Closing:
    """The end of one store."""

    def __init__(
        self, home: Home, reader: Reader, ledger: Ledger, wakeups: Wakeups, own: dict[str, Ticket]
    ) -> None:
        self._home, self._reader, self._ledger = home, reader, ledger
        self._wakeups, self._own = wakeups, own

    @property
    def done(self) -> bool:
        """Whether nobody gets in any more."""
        return self._home.guard.closed

    def close(self) -> None:
        """Leave now, or right after what this very thread is in the middle of."""
        if self._home.guard.is_mine():
            self._home.afterwards = self._close_at_last
        elif self._reader.is_mine():
            self._reader.afterwards = self._close_at_last
        else:
            self._close()

    def _close(self) -> None:
        try:
            # First: while the other connection is open, closing this one deletes no log.
            self._reader.close()
        finally:
            try:
                self._home.leave(self._give_everything_back, again=self._close_at_last)
            finally:
                if self.done:  # also if that failed: others will find this holder gone
                    forsake(self._own.values())
                    self._own.clear()

    def _close_at_last(self) -> None:
        """At the end of an operation, which has its own outcome."""
        try:
            self.close()
        except Exception as error:  # noqa: BLE001 - others will find this holder gone
            journal.log().warning("could not say goodbye to the store: %s", error)

    def _give_everything_back(self, connection: Connection) -> None:
        forsake(self._own.values())
        self._ledger.transact(connection, self._end_all)
        self._wakeups.send_last()

    def _end_all(self, book: SqlBook) -> None:
        self._ledger.end_all_of(book, self._home.holder_id)

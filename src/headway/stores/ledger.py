"""The ledger: runs the rules of admission as transactions on a home's database."""

from __future__ import annotations

import time

from headway.stores.admission import Admission
from headway.stores.pacing import Pacing
from headway.stores.sqlbook import SqlBook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from sqlite3 import Connection
    from typing import TypeVar

    from headway.stores.home import Home
    from headway.tickets import Decision, Ticket

    T = TypeVar("T")

# Idle keys are forgotten when this process has made as many new ones.
_MANY_KEYS = 8192


class Ledger:
    """Transactions of one process; what each decided is noted once it is committed."""

    def __init__(
        self,
        home: Home,
        *,
        max_waiting: int,
        max_cooling_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._home, self._clock = home, clock
        self._max_waiting, self._max_cooling_seconds = max_waiting, max_cooling_seconds
        self._new_keys = 0
        self.note: Callable[[list[Decision], set[str], set[str]], None]
        self.note_dead: Callable[[str, list[Ticket]], None]

    def admission(self, book: SqlBook) -> Admission:
        """The rules, applied to a book."""
        return Admission(
            book, max_waiting=self._max_waiting, max_cooling_seconds=self._max_cooling_seconds
        )

    def pacing(self, book: SqlBook) -> Pacing:
        """The timed rules, applied to a book."""
        return Pacing(book, self.admission(book))

    def transact(self, connection: Connection, work: Callable[[SqlBook], T]) -> T:
        """Run the work in one transaction; the caller is under the guard."""
        book = SqlBook(
            connection,
            next_token=self._home.guard.next_token,
            time_of_day=time.time(),
            now=self._clock(),
            settled=self._home.settled,
        )
        try:
            connection.execute("begin immediate")
            result = work(book)
            book.flush()
            self._new_keys += book.new_keys
            if self._new_keys > _MANY_KEYS:
                book.drop_idle_keys()
                self._new_keys = 0
            heads = book.heads() if book.stirred else set()
            connection.execute("commit")
        except BaseException:
            roll_back(connection)
            raise
        if book.told or heads:
            self.note(book.told, heads, book.timekeepers)
        for holder, tickets in book.buried.items():
            self.note_dead(holder, tickets)
        return result

    def reclaim(self, book: SqlBook, holders: Iterable[str]) -> None:
        """Give back what those of the holders left who are dead."""
        for holder in holders:
            if holder == self._home.holder_id or self._home.live.is_alive(holder):
                continue
            book.buried[holder] = tickets = self.end_all_of(book, holder)
            if tickets:
                self._home.live.mark_reclaimed(holder)

    def end_all_of(self, book: SqlBook, holder: str) -> list[Ticket]:
        """Take everything of a holder's off the book; what was more than a place in line."""
        admission, freed = self.admission(book), book.drop_plain_waiting(holder)
        tickets = book.tickets_of(holder)
        admission.end_all(tickets, freed=freed)
        if book.expect_no_more(holder):
            admission.serve_everyone(book.all_keys())
        return tickets


def roll_back(connection: Connection) -> None:
    """Undo what a failed operation has done so far."""
    if connection.in_transaction:
        connection.execute("rollback")

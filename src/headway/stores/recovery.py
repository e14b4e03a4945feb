"""What a store does when its database is not what it was."""

from __future__ import annotations

from headway import config
from headway.errors import ConfigError
from headway.limits import Terms
from headway.stores.processes import describe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from headway.stores.home import Home
    from headway.stores.ledger import Ledger
    from headway.stores.sqlbook import SqlBook
    from headway.tickets import Ticket


class Recovery:
    """Brings one process's tickets and the limits it knows into another database."""

    def __init__(self, home: Home, ledger: Ledger, own: dict[str, Ticket]) -> None:
        self._home, self._ledger, self._own = home, ledger, own
        # What was in force when last looked at: limits from code are nowhere else.
        self.known_terms = Terms()

    def write_terms(self, connection: Connection) -> None:
        """Put the limits in force into a new database, before anything is granted."""
        try:
            settings = config.load(self._home.directory)
            terms = self.known_terms.with_file(settings.lines, settings.paused)
        except ConfigError:
            # Someone is editing the file: what was in force stays so.
            terms = self.known_terms
        self._ledger.transact(connection, lambda book: book.set_terms(terms))

    def announce(self, connection: Connection) -> None:
        """Say what this process holds and waits for, and nothing else."""
        self._ledger.transact(connection, self._announce)

    def _announce(self, book: SqlBook) -> None:
        # A copy: other threads put in what they are about to ask for.
        own = {ticket.id: ticket for ticket in list(self._own.values()) if ticket.is_decided}
        admission = self._ledger.admission(book)
        on_book = book.tickets_of(self._home.holder_id)
        admission.end_all([ticket for ticket in on_book if ticket.id not in own])
        for ticket in own.values():
            if book.ticket(ticket.id) is not None:
                continue
            if ticket.at is not None:
                # A copy: if it is granted here, its owner is told like everyone else.
                admission.restart(ticket.copy())
                continue
            # Lenders may be back later than we are: until then count it as our own.
            ticket.borrowed.clear()
            book.insert_lease(ticket)
            book.note_child(ticket.id)  # perhaps: those who count on it may be back later
            for key in ticket.path:
                book.key(key).used += ticket.weight
        book.is_back(self._home.holder_id)
        if not book.awaits_someone():
            admission.serve(book.all_keys())

    def clear_up(self, connection: Connection, dead: list[str]) -> None:
        """Give back what dead holders left in a database that is in use."""
        if dead:
            self._ledger.transact(connection, lambda book: self._ledger.reclaim(book, dead))


class Unsettled(Exception):  # noqa: N818 - handled inside the store
    """The database is new, and not everyone alive has said what they hold."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(pids)
        self.pids = pids

    def __str__(self) -> str:
        who = ", ".join(map(describe, self.pids))
        return f"it was made anew, and {who} has not said yet what it holds"

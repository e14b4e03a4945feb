"""What a store does when its database is not what it was."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sqlite3 import Connection

    from headway.stores.home import Home
    from headway.stores.ledger import Ledger
    from headway.stores.sqlbook import SqlBook
    from headway.stores.terms import TermsInForce
    from headway.tickets import Ticket


class Recovery:
    """Brings one process's tickets and the limits it knows into another database."""

    def __init__(
        self, home: Home, ledger: Ledger, terms: TermsInForce, own: dict[str, Ticket]
    ) -> None:
        self._home, self._ledger, self._terms, self._own = home, ledger, terms, own

    def write_terms(self, connection: Connection) -> None:
        """Put the limits in force into a new database, before anything is granted."""
        self._ledger.transact(connection, self._terms.write_into_new)

    def bring_terms(self, connection: Connection) -> None:
        """Offer the limits from code that this process knows where a new database has none."""
        if self._terms.knows_offers:
            self._ledger.transact(connection, self._terms.offer_again)

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
        book.expect_no_more(self._home.holder_id)
        if not book.awaits_someone():
            admission.serve_everyone(book.all_keys())

    def clear_out(self, connection: Connection) -> None:
        """Forget what stands in a database of which nobody is alive."""
        self._ledger.transact(connection, self._clear_out)

    def _clear_out(self, book: SqlBook) -> None:
        book.forget_everyone()
        self._terms.forget_offers(book)

    def clear_up(self, connection: Connection, dead: list[str]) -> None:
        """Give back what dead holders left in a database that is in use."""
        if dead:
            self._ledger.transact(connection, lambda book: self._ledger.reclaim(book, dead))

    def examine(self, connection: Connection) -> None:
        """Read everything in a database, and raise any error if that makes no sense."""
        from headway.stores.repair import miscounts  # noqa: PLC0415 - seldom needed
        from headway.stores.sqlrows import read_all  # noqa: PLC0415

        wrong = miscounts(read_all(connection.execute))
        if wrong:
            raise ValueError(f"its counts are not those of its tickets: {wrong[0]}")

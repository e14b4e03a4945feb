"""Loans: going ahead on a slot that an ancestor holds."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.stores.book import Book, Sight
    from headway.tickets import Ticket


class Lending:
    """Who stands inside of whose lease, and which slot may be borrowed."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def borrow(self, ticket: Ticket, key: str) -> bool:
        """Go ahead on an ancestor's slot, if it has one on this key that is not lent out."""
        lender = self.lender(ticket, key)
        if lender is None or lender.weight < ticket.weight:
            return False
        if self._book.borrower(lender.id, key) is not None:
            return False
        self.lend(lender.id, key, ticket)
        return True

    def lender(self, ticket: Ticket, key: str) -> Ticket | None:
        """The nearest ancestor among the leases that holds this key."""
        return lender_of(self._book, ticket, key)

    def ancestors(self, ticket: Ticket) -> Iterable[Ticket]:
        """The leases a ticket stands inside of, the nearest first; those that ended are passed."""
        return ancestors_of(self._book, ticket)

    def lend(self, lender: str, key: str, borrower: Ticket) -> None:
        """Let the borrower go ahead on the lender's slot."""
        self._book.lend(lender, key, borrower.id)
        borrower.borrowed[key] = lender


def lender_of(sight: Sight, ticket: Ticket, key: str) -> Ticket | None:
    """The nearest ancestor among the leases that holds this key."""
    for ancestor in ancestors_of(sight, ticket):
        if key in ancestor.path:
            return ancestor
    return None


def ancestors_of(sight: Sight, ticket: Ticket) -> Iterable[Ticket]:
    """The leases a ticket stands inside of, the nearest first; those that ended are passed."""
    seen, ahead = {ticket.id}, list(ticket.parents)
    while ahead:
        parent = ahead.pop(0)
        lease = None if parent in seen else sight.lease(parent)
        seen.add(parent)
        if lease is not None:
            yield lease
            ahead[:0] = lease.parents

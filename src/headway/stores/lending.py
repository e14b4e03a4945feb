"""Loans: going ahead on a slot that an ancestor holds, and waits that only that could end."""

from __future__ import annotations

from headway.tickets import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.stores.book import Book
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
        for ancestor in self.ancestors(ticket):
            if key in ancestor.path:
                return ancestor
        return None

    def ancestors(self, ticket: Ticket) -> Iterable[Ticket]:
        """The leases a ticket stands inside of, the nearest first; those that ended are passed."""
        seen, ahead = {ticket.id}, list(ticket.parents)
        while ahead:
            parent = ahead.pop(0)
            lease = None if parent in seen else self._book.lease(parent)
            seen.add(parent)
            if lease is not None:
                yield lease
                ahead[:0] = lease.parents

    def lend(self, lender: str, key: str, borrower: Ticket) -> None:
        """Let the borrower go ahead on the lender's slot."""
        self._book.lend(lender, key, borrower.id)
        borrower.borrowed[key] = lender

    def deadlock(self, ticket: Ticket) -> Refused | None:
        """Refuse a wait that only the caller's own leases could end.

        Those are the leases it asks from within and all their ancestors. A loan
        that is out to a sibling is no deadlock: the sibling will bring it back.
        """
        own = self._own_leases(ticket)
        if not own:
            return None
        for key in ticket.path:
            probe = self._own_probe(ticket, key, own)
            if probe is not None:
                return Refused(ticket.id, "deadlock", key, (probe,))
            if key in ticket.borrowed:
                continue
            holding = [
                lease for lease in own.values() if key in lease.path and key not in lease.borrowed
            ]
            held = sum(lease.weight for lease in holding)
            if held == 0 or held + ticket.weight <= self._book.key(key).cap:
                continue
            if self._will_borrow(ticket, key, own):
                continue
            return Refused(ticket.id, "deadlock", key, tuple(lease.id for lease in holding))
        return None

    def _own_probe(self, ticket: Ticket, key: str, own: dict[str, Ticket]) -> str | None:
        """The caller's own lease that tries the key, if this would wait for its answer there."""
        cooldown = self._book.key(key).cooldown
        if cooldown is None or cooldown.probe not in own:
            return None
        is_part = any(ancestor.id == cooldown.probe for ancestor in self.ancestors(ticket))
        goes_on = key in ticket.borrowed or self._will_borrow(ticket, key, own)
        return None if is_part and goes_on else cooldown.probe

    def _will_borrow(self, ticket: Ticket, key: str, own: dict[str, Ticket]) -> bool:
        """Whether an ancestor's slot carries the ticket, now or when a sibling brings it back."""
        lender = self.lender(ticket, key)
        if lender is None or lender.weight < ticket.weight:
            return False
        borrower = self._book.borrower(lender.id, key)
        return borrower is None or borrower not in own

    def _own_leases(self, ticket: Ticket) -> dict[str, Ticket]:
        own = {lease.id: lease for lease in self.ancestors(ticket)}
        for lease_id in ticket.within:
            lease = self._book.lease(lease_id)
            if lease is not None:
                own[lease.id] = lease
                own.update({ancestor.id: ancestor for ancestor in self.ancestors(lease)})
        return own

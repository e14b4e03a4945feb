"""Who goes next: the rules of the queue, written once, over whatever keeps the book.

A ticket collects its keys in one fixed order, deepest first. At each limited
key it takes room if there is some and nobody with a better rank waits there;
otherwise it parks at that key and keeps what it has reserved so far. So it
waits at one key at a time, always for a key that comes later than those it
has, and no circle of waiting tickets can form.

Two facts hold between any two operations, and the tests check them:

* where a reservation stands on a key, that key is open and not over its limit;
* the best-ranked ticket parked at a key does not fit there now.
"""

from __future__ import annotations

from headway.keys import collection_order
from headway.limits import UNCAPPED
from headway.tickets import Granted, Refused, Revoked, Withdrawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from headway.limits import Terms
    from headway.stores.book import Book, KeyState
    from headway.tickets import Refusal, Ticket


class Admission:
    """The operations on a book. Each leaves nobody waiting who could be served."""

    def __init__(self, book: Book, *, max_waiting: int) -> None:
        self._book, self._max_waiting = book, max_waiting

    def enter(self, ticket: Ticket) -> Refused | None:
        """Grant or park a new ticket; refuse one that can never fit."""
        for key in ticket.path:
            if self._never_fits(ticket, key):
                return Refused(ticket.id, "too_heavy", key)
        if ticket.parents:
            ticket.parents = tuple(ancestor.id for ancestor in self._ancestors(ticket))
            for parent in ticket.parents:
                self._book.note_child(parent)
        self._collect(ticket, ticket.path)
        return None

    def turn_away(self, ticket: Ticket, *, wait: bool) -> Refused | None:
        """Refuse a newly parked ticket that must not wait, and leave no trace of it."""
        at = ticket.at
        if at is None:
            return None
        state = self._book.key(at)
        if not wait:
            reason: Refusal = "paused" if state.paused else "full"
            refusal: Refused | None = Refused(ticket.id, reason, at)
        elif state.waiting > self._max_waiting:
            refusal = Refused(ticket.id, "queue_full", at)
        else:
            refusal = self._deadlock(ticket)
        if refusal is not None:
            self.withdraw(ticket)
        return refusal

    def withdraw(self, ticket: Ticket) -> None:
        """Take a parked ticket out of line and pass on what it had collected."""
        self.end_all([ticket])

    def cancel(self, ticket: Ticket) -> None:
        """Withdraw someone's ticket and tell them."""
        self._book.tell(ticket, Withdrawn(ticket.id))
        self.withdraw(ticket)

    def release(self, lease: Ticket) -> None:
        """End a lease and hand its slots to those next in line."""
        self.end_all([lease])

    def end_all(self, tickets: Iterable[Ticket], *, freed: Iterable[str] = ()) -> None:
        """Take tickets off the book, parked or granted, and then serve what became free.

        All of them leave before anyone is served: by rank, not by who happened to
        leave first.
        """
        given_back = GivenBack(freed)
        for ticket in tickets:
            if ticket.at is None:
                given_back += self._end_lease(ticket)
            else:
                given_back += self._give_back(ticket, ticket.path)
                self._book.strike(ticket)
        self._serve(given_back)

    def _end_lease(self, lease: Ticket) -> GivenBack:
        book, given_back = self._book, GivenBack()
        for key in lease.path:
            lender, borrower = lease.borrowed.get(key), book.borrower(lease.id, key)
            child = None if borrower is None else book.ticket(borrower)
            if borrower is not None:
                book.end_loan(lease.id, key)
            if lender is not None:
                book.end_loan(lender, key)
                if child is None:
                    given_back.loans.append((lender, key))
                else:
                    # Lent on: the one in the middle leaves, the loan stays.
                    self._lend(lender, key, child)
                continue
            state = book.key(key)
            state.used -= lease.weight
            given_back.keys.append(key)
            if child is not None:
                given_back += self._take_over(child, state)
        book.strike(lease)
        for child in list(book.parked_children()):
            # Someone may have waited for nothing but a loan that was large enough.
            given_back += self._refuse_if_too_heavy(child)
            given_back += self._next_lender(child, lease)
        return given_back

    def _next_lender(self, child: Ticket, ended: Ticket) -> GivenBack:
        """Whose slot a parked child may try now that one of its ancestors has ended."""
        given_back = GivenBack()
        if ended.id in child.parents and child.at is not None:
            lender = self._lender(child, child.at)
            if lender is not None:
                given_back.loans.append((lender.id, child.at))
        return given_back

    def revoke(self, lease: Ticket, reason: str) -> None:
        """Take a lease back from its holder and tell them."""
        self._book.tell(lease, Revoked(lease.id, reason))
        self.release(lease)

    def change(self, changes: Iterable[tuple[str, int, bool]]) -> None:
        """Give keys other limits or close them; nothing reserved under old terms stays.

        All terms change and all reservations fall before anyone is served: a place
        given away in between could go to a ticket that the next change would stop.
        """
        given_back = GivenBack()
        for key, cap, paused in changes:
            state = self._book.key(key)
            tightened = cap < state.cap or (paused and not state.paused)
            state.cap, state.paused = cap, paused
            given_back.keys.append(key)
            if tightened:
                for ticket in list(self._book.parked()):
                    given_back += self._readmit(ticket, key)
        self._serve(given_back)

    def restart(self, ticket: Ticket) -> None:
        """Put a waiting ticket back to its first key, with nothing reserved.

        For a book whose counts were lost; ``serve`` follows.
        """
        ticket.reserved.clear()
        ticket.borrowed.clear()
        self._park(ticket, self._book.key(ticket.path[0]))

    def serve(self, keys: Iterable[str]) -> None:
        """Grant whoever can be granted at these keys."""
        self._serve(GivenBack(keys))

    def _readmit(self, ticket: Ticket, key: str) -> GivenBack:
        """Make a parked ticket ask again for a key whose terms became harder."""
        if key not in ticket.path or key in ticket.borrowed or ticket.at is None:
            return GivenBack()
        if self._never_fits(ticket, key):
            return self._refuse_if_too_heavy(ticket)
        if ticket.path.index(key) < ticket.path.index(ticket.at):
            return self._pull_back(ticket, key)
        return GivenBack()

    def _refuse_if_too_heavy(self, ticket: Ticket) -> GivenBack:
        """Send a parked ticket away that no longer fits anywhere on its path."""
        for key in ticket.path:
            if key not in ticket.borrowed and self._never_fits(ticket, key):
                given_back = self._give_back(ticket, ticket.path)
                self._book.strike(ticket)
                self._book.tell(ticket, Refused(ticket.id, "too_heavy", key))
                return given_back
        return GivenBack()

    def _collect(self, ticket: Ticket, keys: Iterable[str]) -> None:
        """Take room key by key; park at the first that has none."""
        book, weight = self._book, ticket.weight
        for key in keys:
            if ticket.parents and self._borrow(ticket, key):
                continue
            state = book.key(key)
            if state.cap >= UNCAPPED and not state.paused:
                continue
            if not state.admits(weight) or self._someone_before(ticket, state):
                self._park(ticket, state)
                return
            state.reserved += weight
            ticket.reserved.append(key)
            if state.waiting:
                book.stir(key)
        for key in ticket.path:
            if key not in ticket.borrowed:
                state = book.key(key)
                state.used += weight
                if key in ticket.reserved:
                    state.reserved -= weight
        ticket.reserved.clear()
        book.grant(ticket)
        book.tell(ticket, Granted(ticket.id, ticket.token))

    def _someone_before(self, ticket: Ticket, state: KeyState) -> bool:
        if not state.waiting:
            return False
        head = self._book.head(state.key)
        return head is not None and head.place < ticket.place

    def _park(self, ticket: Ticket, state: KeyState) -> None:
        ticket.at = state.key
        state.waiting += 1
        self._book.park(ticket)

    def _unpark(self, ticket: Ticket) -> str:
        assert ticket.at is not None
        left, ticket.at = ticket.at, None
        self._book.key(left).waiting -= 1
        return left

    def _serve(self, given_back: GivenBack) -> None:
        """Hand room on: returned loans to the lender's other children, the rest by rank.

        In a book that awaits someone room may only seem free. All keys are served when it is
        complete.
        """
        if self._book.awaits_someone():
            return
        for lender, key in given_back.loans:
            self._pass_on_loan(lender, key)
            given_back.keys.append(key)
        book = self._book
        states = [book.key(key) for key in dict.fromkeys(given_back.keys)]
        while True:
            # Of all lines that got room, the best-ranked head goes first: further on, at
            # an ancestor, there may be room for one of them only.
            heads = [(book.head(s.key), s) for s in states if s.waiting and s.admits(1)]
            fitting = [(head, s) for head, s in heads if head and s.admits(head.weight)]
            if not fitting:
                break
            head, state = min(fitting, key=lambda pair: pair[0].place)
            self._unpark(head)
            state.reserved += head.weight
            head.reserved.append(state.key)
            self._collect(head, _rest(head, state.key))
        for state in states:
            if state.waiting:
                book.stir(state.key)

    def _give_back(self, ticket: Ticket, keys: Iterable[str]) -> GivenBack:
        """Undo a parked ticket's collecting of these keys."""
        given_back = GivenBack(keys=[self._unpark(ticket)])
        for key in keys:
            if key in ticket.borrowed:
                lender = ticket.borrowed.pop(key)
                self._book.end_loan(lender, key)
                given_back.loans.append((lender, key))
            elif key in ticket.reserved:
                ticket.reserved.remove(key)
                self._book.key(key).reserved -= ticket.weight
                given_back.keys.append(key)
        return given_back

    def _pull_back(self, ticket: Ticket, key: str) -> GivenBack:
        """Let a parked ticket that had passed the key wait at it again."""
        given_back = self._give_back(ticket, (key, *_rest(ticket, key)))
        self._park(ticket, self._book.key(key))
        return given_back

    def _borrow(self, ticket: Ticket, key: str) -> bool:
        """Go ahead on an ancestor's slot, if it has one on this key that is not lent out."""
        lender = self._lender(ticket, key)
        if lender is None or lender.weight < ticket.weight:
            return False
        if self._book.borrower(lender.id, key) is not None:
            return False
        self._lend(lender.id, key, ticket)
        return True

    def _lender(self, ticket: Ticket, key: str) -> Ticket | None:
        """The nearest ancestor among the leases that holds this key."""
        for ancestor in self._ancestors(ticket):
            if key in ancestor.path:
                return ancestor
        return None

    def _ancestors(self, ticket: Ticket) -> Iterable[Ticket]:
        """The leases a ticket stands inside of, the nearest first; those that ended are passed."""
        seen, ahead = {ticket.id}, list(ticket.parents)
        while ahead:
            parent = ahead.pop(0)
            lease = None if parent in seen else self._book.lease(parent)
            seen.add(parent)
            if lease is not None:
                yield lease
                ahead[:0] = lease.parents

    def _lend(self, lender: str, key: str, borrower: Ticket) -> None:
        self._book.lend(lender, key, borrower.id)
        borrower.borrowed[key] = lender

    def _pass_on_loan(self, lender: str, key: str) -> None:
        for child in list(self._book.parked_children()):
            nearest = self._lender(child, key) if child.at == key else None
            if nearest is not None and nearest.id == lender and self._borrow(child, key):
                self._unpark(child)
                self._collect(child, _rest(child, key))
                return

    def _take_over(self, borrower: Ticket, state: KeyState) -> GivenBack:
        """The lender is gone: the borrower counts for itself from now on."""
        del borrower.borrowed[state.key]
        if borrower.at is None:
            state.used += borrower.weight
        elif state.admits(borrower.weight):
            state.reserved += borrower.weight
            borrower.reserved.append(state.key)
            self._book.park(borrower)
        else:
            return self._readmit(borrower, state.key)
        return GivenBack()

    def _never_fits(self, ticket: Ticket, key: str) -> bool:
        if ticket.weight <= self._book.key(key).cap:
            return False
        lender = self._lender(ticket, key)
        return lender is None or lender.weight < ticket.weight

    def _deadlock(self, ticket: Ticket) -> Refused | None:
        """Refuse a wait that only the caller's own leases could end.

        Those are the leases it asks from within and all their ancestors. A loan
        that is out to a sibling is no deadlock: the sibling will bring it back.
        """
        own = self._own_leases(ticket)
        if not own:
            return None
        for key in ticket.path:
            if key in ticket.borrowed:
                continue
            holding = [
                lease for lease in own.values() if key in lease.path and key not in lease.borrowed
            ]
            held = sum(lease.weight for lease in holding)
            if held == 0 or held + ticket.weight <= self._book.key(key).cap:
                continue
            lender = self._lender(ticket, key)
            if lender is not None and lender.weight >= ticket.weight:
                borrower = self._book.borrower(lender.id, key)
                if borrower is None or borrower not in own:
                    continue
            return Refused(ticket.id, "deadlock", key, tuple(lease.id for lease in holding))
        return None

    def _own_leases(self, ticket: Ticket) -> dict[str, Ticket]:
        own = {lease.id: lease for lease in self._ancestors(ticket)}
        for lease_id in ticket.within:
            lease = self._book.lease(lease_id)
            if lease is not None:
                own[lease.id] = lease
                own.update({ancestor.id: ancestor for ancestor in self._ancestors(lease)})
        return own


class GivenBack:
    """What became free in an operation: room on keys, and loans that ended."""

    __slots__ = ("keys", "loans")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.keys = list(keys)
        self.loans: list[tuple[str, str]] = []

    def __iadd__(self, more: GivenBack) -> Self:
        self.keys += more.keys
        self.loans += more.loans
        return self


def _rest(ticket: Ticket, key: str) -> tuple[str, ...]:
    """The part of the ticket's path that comes after the key."""
    return ticket.path[ticket.path.index(key) + 1 :]


def changed_keys(terms: Terms, states: Iterable[KeyState]) -> list[tuple[str, int, bool]]:
    """The keys that new terms treat otherwise: their new cap, and whether they are paused."""
    ordered = sorted(states, key=lambda state: collection_order(state.key))
    wanted = [(s, terms.line_for(s.key).slots, s.key in terms.paused) for s in ordered]
    return [
        (state.key, cap, paused)
        for state, cap, paused in wanted
        if (state.cap, state.paused) != (cap, paused)
    ]

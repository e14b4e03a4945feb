"""Who goes next: the rules of the queue, written once, over whatever keeps the book.

A ticket collects its keys in one fixed order, deepest first. At each limited
key it takes room if there is some and nobody with a better rank waits there;
otherwise it parks at that key and keeps what it has reserved so far. So it
waits at one key at a time, always for a key that comes later than those it
has, and no circle of waiting tickets can form. One of tickets and leases can: see
``circles.py``.

Two facts hold between any two operations, and the tests check them:

* where a reservation stands on a key, that key is open and not over its limit;
* the best-ranked ticket parked at a key does not fit there now.

A key may also be left alone for a while, or have a budget of requests (``pacing.py``).
That binds those on loan too, who need no room: they wait for nothing else then, and
so for nobody in line.
"""

from __future__ import annotations

import math

from headway.limits import UNCAPPED
from headway.stores.book import COOLING, METERED, PAUSED
from headway.stores.circles import Circles
from headway.stores.given_back import GivenBack
from headway.stores.lending import Lending
from headway.stores.probing import Probing, passed, takes_over
from headway.tickets import Granted, Refused, Revoked, Withdrawn, job_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.stores.book import Book, Change, KeyState
    from headway.tickets import Ticket


class Admission:
    """The operations on a book. Each leaves nobody waiting who could be served."""

    def __init__(
        self, book: Book, *, max_waiting: int, max_cooling_seconds: float = math.inf
    ) -> None:
        self._book, self._lending = book, Lending(book)
        self._probing, self._circles = Probing(book, self._lending), Circles(book, self._lending)
        # Whether somebody has come to wait elsewhere, or for more, since circles were looked for.
        self._may_circle = False
        self._max_waiting, self._max_cooling = max_waiting, max_cooling_seconds

    def enter(self, ticket: Ticket) -> Refused | None:
        """Grant or park a new ticket; refuse one that can never fit, or not in good time."""
        refusal = self._hopeless(ticket)
        if refusal is not None:
            return refusal
        if ticket.parents:
            ticket.parents = tuple(ancestor.id for ancestor in self._lending.ancestors(ticket))
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
            refusal: Refused | None = Refused(ticket.id, state.obstacle(), at)
        elif state.waiting > self._max_waiting:
            refusal = Refused(ticket.id, "queue_full", at)
        else:
            refusal = self._circles.refusal(ticket)
        if refusal is not None:
            self.withdraw(ticket)
        elif (ticket.reserved or ticket.weight > 1) and not ticket.within:
            self._break_circles()
        return refusal

    def withdraw(self, ticket: Ticket) -> None:
        """Take a parked ticket out of line and pass on what it had collected."""
        self.end_all([ticket])

    def cancel(self, ticket: Ticket) -> None:
        """Withdraw someone's ticket and tell them."""
        self._book.tell(ticket, Withdrawn(ticket.id))
        self.withdraw(ticket)

    def release(self, lease: Ticket) -> None:
        """End a lease as its holder wishes, and hand its slots to those next in line."""
        self.end_all([lease], opened=self._probing.proved_by(lease))

    def prove(self, lease: Ticket) -> None:
        """Let everyone in at the keys that this lease was the first to try."""
        self.hand_on(GivenBack(opened=self._probing.proved_by(lease)))

    def stand_back(self, lease: Ticket) -> None:
        """It proves nothing by its end: whatever it was the first to try, somebody else may try."""
        given_back = GivenBack()
        for key in lease.path:
            borrower = self._book.borrower(lease.id, key)
            child = None if borrower is None else self._book.ticket(borrower)
            given_back += self._probing.stop_trying(lease, key, heir=child)
        self.hand_on(given_back)

    def end_all(
        self, tickets: Iterable[Ticket], *, freed: Iterable[str] = (), opened: Iterable[str] = ()
    ) -> None:
        """Take tickets off the book, parked or granted, and then serve what became free.

        All of them leave before anyone is served: by rank, not by who happened to
        leave first.
        """
        given_back = GivenBack(freed, opened=opened)
        for ticket in tickets:
            if ticket.at is None:
                given_back += self._end_lease(ticket)
            else:
                given_back += self._give_back(ticket, ticket.path)
                self._book.strike(ticket)
        self.hand_on(given_back)

    def _end_lease(self, lease: Ticket) -> GivenBack:
        book, given_back = self._book, GivenBack()
        for key in lease.path:
            lender, borrower = lease.borrowed.get(key), book.borrower(lease.id, key)
            child = None if borrower is None else book.ticket(borrower)
            given_back += self._probing.stop_trying(lease, key, heir=child)
            if borrower is not None:
                book.end_loan(lease.id, key)
            if lender is not None:
                book.end_loan(lender, key)
                if child is None:
                    given_back.loans.append((lender, key))
                else:
                    # Lent on: the one in the middle leaves, the loan stays.
                    self._lending.lend(lender, key, child)
                continue
            state = book.key(key)
            state.used -= lease.weight
            given_back.keys.append(key)
            if child is not None:
                given_back += self._take_over(child, state)
        book.strike(lease)
        for child in list(book.parked_children()):
            # Someone may have waited for nothing but a loan that was large enough.
            given_back += self._refuse_if_hopeless(child)
            if lease.id in child.parents:
                self._may_circle = True
                given_back += self._loan_for(child)
        return given_back

    def _loan_for(self, ticket: Ticket) -> GivenBack:
        """The slot that a ticket which was parked before, or elsewhere, may go ahead on now."""
        given_back = GivenBack()
        if ticket.at is not None:
            lender = self._lending.lender(ticket, ticket.at)
            if lender is not None:
                given_back.loans.append((lender.id, ticket.at))
        return given_back

    def revoke(self, lease: Ticket, reason: str) -> None:
        """Take a lease back from its holder and tell them."""
        self._book.tell(lease, Revoked(lease.id, reason))
        self.end_all([lease])

    def change(self, changes: Iterable[Change]) -> None:
        """Give keys other limits or close them; nothing reserved under old terms stays.

        All terms change and all reservations fall before anyone is served: a place
        given away in between could go to a ticket that the next change would stop.
        """
        given_back = GivenBack()
        # Read once: many keys may change at once, and many tickets wait.
        waiting_for: dict[str, list[Ticket]] | None = None
        for key, cap, paused, budget in changes:
            state = self._book.key(key)
            tightened = cap < state.cap or (paused and not state.paused)
            shortened = budget < state.budget
            state.cap, state.paused, state.budget = cap, paused, budget
            given_back += GivenBack(opened=[key])
            if (shortened or tightened) and waiting_for is None:
                waiting_for = self._parked_by_key()
            among = [] if waiting_for is None else waiting_for.get(key, [])
            if shortened:
                given_back += self.call_back(key, among)
            if tightened:
                self._may_circle = True
                for ticket in among:
                    given_back += self._readmit(ticket, key)
        self.hand_on(given_back)

    def _parked_by_key(self) -> dict[str, list[Ticket]]:
        """The parked tickets that need each key, best rank first."""
        found: dict[str, list[Ticket]] = {}
        for ticket in self._book.parked():
            for key in ticket.path:
                found.setdefault(key, []).append(ticket)
        return found

    def call_back(self, key: str, among: Iterable[Ticket]) -> GivenBack:
        """Let those wait at a key who have passed it and wait further on, also on loan."""
        given_back = GivenBack()
        for ticket in among:
            if key in ticket.path and ticket.at is not None and key in passed(ticket):
                given_back += self._pull_back(ticket, key)
        return given_back

    def send_hopeless_away(self, key: str) -> GivenBack:
        """Refuse those who wait for a key that is left alone for longer than they would."""
        given_back = GivenBack()
        for ticket in list(self._book.parked()):
            if key in ticket.path:
                given_back += self._refuse_if_hopeless(ticket)
        return given_back

    def restart(self, ticket: Ticket) -> None:
        """Put a waiting ticket back to its first key, with nothing reserved.

        For a book whose counts were lost; ``serve_everyone`` follows.
        """
        ticket.reserved.clear()
        ticket.borrowed.clear()
        self._may_circle = True
        self._park(ticket, self._book.key(ticket.path[0]))

    def serve(self, keys: Iterable[str]) -> None:
        """Grant whoever can be granted at these keys."""
        self.hand_on(GivenBack(keys))

    def serve_everyone(self, keys: Iterable[str]) -> None:
        """Grant whoever can be granted in a book whose keys are these, also on loan."""
        given_back = GivenBack(opened=keys)
        for child in self._book.parked_children():
            given_back += self._loan_for(child)
        self.hand_on(given_back)

    def _readmit(self, ticket: Ticket, key: str) -> GivenBack:
        """Make a parked ticket ask again for a key whose terms became harder."""
        if key not in ticket.path or key in ticket.borrowed or ticket.at is None:
            return GivenBack()
        if self._never_fits(ticket, key):
            return self._refuse_if_hopeless(ticket)
        if key in passed(ticket):
            return self._pull_back(ticket, key)
        return GivenBack()

    def _refuse_if_hopeless(self, ticket: Ticket) -> GivenBack:
        """Send a parked ticket away that will not get what it needs."""
        refusal = self._hopeless(ticket)
        return GivenBack() if refusal is None else self._send_away(ticket, refusal)

    def _send_away(self, ticket: Ticket, refusal: Refused) -> GivenBack:
        given_back = self._give_back(ticket, ticket.path)
        self._book.tell(ticket, refusal)  # before it is gone: Ctrl-C may strike in between
        self._book.strike(ticket)
        return given_back

    def _break_circles(self) -> None:
        """Refuse one of those who can only wait for each other, until all others can go on."""
        self._may_circle = False
        victim = self._circles.victim()
        while victim is not None:
            self.hand_on(self._send_away(*victim))
            victim = self._circles.victim()

    def _hopeless(self, ticket: Ticket) -> Refused | None:
        """Refuse what fits nowhere on its path, or is left alone for too long; jobs can wait."""
        for key in ticket.path:
            if key not in ticket.borrowed and self._never_fits(ticket, key):
                return Refused(ticket.id, "too_heavy", key)
        for key in ticket.path:
            cooldown = self._book.key(key).cooldown
            if cooldown is None or cooldown.over or job_of(ticket.id) is not None:
                continue
            if cooldown.until - self._book.now > self._max_cooling:
                return Refused(ticket.id, "cooling", key)
        return None

    def _collect(self, ticket: Ticket, keys: Iterable[str]) -> None:
        """Take room key by key; park at the first that has none."""
        for key in keys:
            state = self._book.key(key)
            if ticket.parents and self._lending.borrow(ticket, key):
                if not self._probing.may_ask(ticket, state):
                    self._park(ticket, state)
                    return
            elif state.is_open:
                continue
            elif not state.admits(ticket.weight) or self._someone_before(ticket, state):
                self._park(ticket, state)
                return
            self._pass(ticket, state)
        self._grant(ticket)

    def _grant(self, ticket: Ticket) -> None:
        """Make a lease of what the ticket has collected."""
        book, weight = self._book, ticket.weight
        for key in ticket.path:
            state = book.key(key)
            if key in ticket.borrowed:
                state.promised -= 1
                if state.cooldown is not None and self._probing.tries(ticket, state.cooldown):
                    state.cooldown.probe = ticket.id
            else:
                state.used += weight
                if key in ticket.reserved:
                    state.reserved -= weight
                    state.promised -= 1
            if state.budget < UNCAPPED and not takes_over(ticket, key):
                book.charge(state)
        ticket.reserved.clear()
        book.grant(ticket)
        book.tell(ticket, Granted(ticket.id, ticket.token))

    def _pass(self, ticket: Ticket, state: KeyState) -> None:
        """Take what the key has to give, until the grant or until it is given back."""
        state.promised += 1
        if state.cooldown is not None and state.cooldown.admits_probe():
            state.cooldown.probe = ticket.id
        if state.key not in ticket.borrowed:
            state.reserved += ticket.weight
            ticket.reserved.append(state.key)
        if state.waiting:
            self._book.stir(state.key)

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

    def hand_on(self, given_back: GivenBack) -> None:
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
            fitting = [
                (ticket, state)
                for state in states
                if state.waiting
                for ticket in self._next(state, opened=state.key in given_back.opened)
            ]
            if not fitting:
                break
            ticket, state = min(fitting, key=lambda pair: pair[0].place)
            self._move_on(ticket, state)
        for state in states:
            if state.waiting:
                book.stir(state.key)
        if self._may_circle:
            self._break_circles()

    def _move_on(self, ticket: Ticket, state: KeyState) -> None:
        """Let a parked ticket pass the key that it waits at."""
        self._unpark(ticket)
        self._pass(ticket, state)
        self._collect(ticket, _rest(ticket, state.key))
        at = ticket.at
        if at is None:
            return
        self._may_circle = True
        if self._book.key(at).gate > PAUSED and self._book.head(at) is ticket:
            self._book.stir(at)  # its owner has to watch the clock, and does not know yet

    def _next(self, state: KeyState, *, opened: bool) -> Iterable[Ticket]:
        """Who of those parked at a key can go on: its head, and the first who needs no room."""
        head = self._book.head(state.key) if state.admits(1) else None
        if head is not None and state.admits(head.weight):
            yield head
        cools = state.cooldown is not None and not state.cooldown.over
        if not cools and state.within_budget and (opened or state.gate & (METERED | COOLING)):
            for child in self._book.parked_children():
                on_loan = child.at == state.key and state.key in child.borrowed
                if on_loan and self._probing.may_ask(child, state):
                    yield child
                    return

    def _give_back(self, ticket: Ticket, keys: Iterable[str]) -> GivenBack:
        """Undo a parked ticket's collecting of these keys."""
        left = self._unpark(ticket)
        given_back = GivenBack([left])
        for key in keys:
            state = self._book.key(key)
            given_back += self._probing.stop_trying(ticket, key)
            if key in ticket.borrowed:
                lender = ticket.borrowed.pop(key)
                self._book.end_loan(lender, key)
                given_back.loans.append((lender, key))
                state.promised -= key != left
            elif key in ticket.reserved:
                ticket.reserved.remove(key)
                state.reserved -= ticket.weight
                state.promised -= 1
                given_back.keys.append(key)
        return given_back

    def _pull_back(self, ticket: Ticket, key: str) -> GivenBack:
        """Let a parked ticket that had passed the key wait at it again."""
        given_back = self._give_back(ticket, (key, *_rest(ticket, key)))
        self._may_circle = True
        self._park(ticket, self._book.key(key))
        return given_back + self._loan_for(ticket)

    def _pass_on_loan(self, lender: str, key: str) -> None:
        for child in list(self._book.parked_children()):
            nearest = self._lending.lender(child, key) if child.at == key else None
            if nearest is not None and nearest.id == lender and self._lending.borrow(child, key):
                self._may_circle = True
                state = self._book.key(key)
                if self._probing.may_ask(child, state):
                    self._move_on(child, state)
                return

    def _take_over(self, borrower: Ticket, state: KeyState) -> GivenBack:
        """The lender is gone: the borrower counts for itself from now on."""
        del borrower.borrowed[state.key]
        if borrower.at is None:
            state.used += borrower.weight
        elif borrower.at == state.key:
            pass  # it waits here, and from now on for room as well
        elif state.has_room(borrower.weight):
            state.reserved += borrower.weight
            borrower.reserved.append(state.key)
            self._book.park(borrower)
        else:
            state.promised -= 1
            given_back = self._probing.stop_trying(borrower, state.key)
            return given_back + self._readmit(borrower, state.key)
        return GivenBack()

    def _never_fits(self, ticket: Ticket, key: str) -> bool:
        if ticket.weight <= self._book.key(key).cap:
            return False
        lender = self._lending.lender(ticket, key)
        return lender is None or lender.weight < ticket.weight


def _rest(ticket: Ticket, key: str) -> tuple[str, ...]:
    """The part of the ticket's path that comes after the key."""
    return ticket.path[ticket.path.index(key) + 1 :]

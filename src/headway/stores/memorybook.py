"""The book of admission, kept in plain dictionaries."""

from __future__ import annotations

import time
from heapq import heapify, heappop, heappush, nsmallest

from headway.lean import deque
from headway.stores.book import PAUSED, milliseconds, new_state, window
from headway.tickets import Granted, Revoked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.limits import Terms
    from headway.stores.admission import Admission
    from headway.stores.book import KeyState
    from headway.tickets import Decision, Ticket

# Idle keys are forgotten when there are more of them than this.
_MANY_KEYS = 8192


class MemoryBook:
    """All tickets, leases, loans and counts; whoever reads or writes it has the store's lock."""

    def __init__(self, terms: Terms, news: deque[Decision], *, clock: Callable[[], float]) -> None:
        self.terms, self._news, self._clock = terms, news, clock
        self.states: dict[str, KeyState] = {}
        # Those where time may let someone in, or did.
        self.gated: dict[str, KeyState] = {}
        # When the requests of a key were admitted that count on its budget.
        self.admitted: dict[str, deque[int]] = {}
        # Paths that may be gone straight, without a look at anything but room.
        self._routes: dict[tuple[str, ...], tuple[KeyState, ...]] = {}
        self.leases: dict[str, Ticket] = {}
        self.waiting: dict[str, Ticket] = {}
        self._lines: dict[str, list[tuple[tuple[int, str], Ticket]]] = {}
        self.loans: dict[tuple[str, str], str] = {}
        self._parked_children: dict[str, Ticket] = {}
        self._parked_insiders: dict[str, Ticket] = {}
        # How many of these have a lease that counts on a key; and on which each of them has.
        self._insiders_on: dict[str, int] = {}
        self._keys_inside: dict[str, set[str]] = {}
        # Leases taken back whose holder has not left yet.
        self.revoked: dict[str, Ticket] = {}
        # The ticket whose owner gets the answer of this very operation.
        self.asking: Ticket | None = None
        self.crowded = False
        self._token = 0

    # -- what admission needs ---------------------------------------------------

    def key(self, key: str) -> KeyState:
        state = self.states.get(key)
        if state is None:
            self.crowded = len(self.states) >= _MANY_KEYS
            state = self.states[key] = new_state(key, self.terms)
            if state.gate > PAUSED:
                self.gated[key] = state
        return state

    def head(self, key: str) -> Ticket | None:
        line = self._lines.get(key)
        while line:
            ticket = line[0][1]
            if ticket.at == key and ticket.id in self.waiting:
                return ticket
            heappop(line)
        return None

    def line(self, key: str, most: int) -> list[Ticket]:
        parked = {
            ticket.id: ticket
            for _, ticket in self._lines.get(key, ())
            if ticket.at == key and ticket.id in self.waiting
        }
        return nsmallest(most, parked.values(), key=lambda ticket: ticket.place)

    def park(self, ticket: Ticket) -> None:
        assert ticket.at is not None
        self.waiting[ticket.id] = ticket
        if ticket.parents:
            self._parked_children[ticket.id] = ticket
        if ticket.within:
            self._note_insider(ticket)
        line = self._lines.setdefault(ticket.at, [])
        if len(line) > 2 * self.states[ticket.at].waiting + 64:
            line[:] = {entry[1].id: entry for entry in line if entry[1].at == ticket.at}.values()
            heapify(line)
        heappush(line, (ticket.place, ticket))

    def grant(self, ticket: Ticket) -> None:
        """Until ``tell`` it waits as well: Ctrl-C in between must not keep it from its owner."""
        self._token += 1
        ticket.token, ticket.since = self._token, time.time()
        self.leases[ticket.id] = ticket

    def strike(self, ticket: Ticket) -> None:
        self.waiting.pop(ticket.id, None)
        self._parked_children.pop(ticket.id, None)
        self._forget_insider(ticket)
        self.leases.pop(ticket.id, None)

    def lease(self, ticket_id: str) -> Ticket | None:
        return self.leases.get(ticket_id)

    def ticket(self, ticket_id: str) -> Ticket | None:
        return self.leases.get(ticket_id) or self.waiting.get(ticket_id)

    def borrower(self, lender: str, key: str) -> str | None:
        return self.loans.get((lender, key)) if self.loans else None

    def lend(self, lender: str, key: str, borrower: str) -> None:
        self.loans[lender, key] = borrower

    def end_loan(self, lender: str, key: str) -> None:
        del self.loans[lender, key]

    def note_child(self, parent: str) -> None:
        """The parked children are known anyway."""

    def parked_children(self) -> list[Ticket]:
        return sorted(self._parked_children.values(), key=lambda ticket: ticket.place)

    def parked_insiders(self, most: int) -> list[Ticket]:
        return nsmallest(most, self._parked_insiders.values(), key=lambda ticket: ticket.place)

    def insiders_have(self, keys: set[str], most: int) -> bool:  # noqa: ARG002 - it knows of all
        # On loan it may be the slot of a lease that nobody waits in.
        return any(map(self._insiders_on.get, keys)) or any(key in keys for _, key in self.loans)

    def _note_insider(self, ticket: Ticket) -> None:
        self._parked_insiders[ticket.id] = ticket
        if ticket.id not in self._keys_inside:
            leases = filter(None, map(self.ticket, ticket.within))
            inside = {key for lease in leases for key in lease.path}
            self._keys_inside[ticket.id] = inside
            for key in inside:
                self._insiders_on[key] = self._insiders_on.get(key, 0) + 1

    def _forget_insider(self, ticket: Ticket) -> None:
        if self._parked_insiders.pop(ticket.id, None) is None:
            return
        for key in self._keys_inside.pop(ticket.id, ()):
            self._insiders_on[key] -= 1
            if not self._insiders_on[key]:
                del self._insiders_on[key]

    def parked_reserving(self, most: int) -> list[Ticket]:
        reserving = [ticket for ticket in self.waiting.values() if ticket.reserved]
        return nsmallest(most, reserving, key=lambda ticket: ticket.place)

    def parked(self) -> list[Ticket]:
        return sorted(self.waiting.values(), key=lambda ticket: ticket.place)

    def tell(self, ticket: Ticket, decision: Decision) -> None:
        if ticket is not self.asking:
            if not isinstance(decision, Granted):
                ticket.verdict = decision
            if isinstance(decision, Revoked):
                self.revoked[ticket.id] = ticket
            self._news.append(decision)
        if isinstance(decision, Granted):
            self._parked_children.pop(ticket.id, None)
            self._forget_insider(ticket)
            self.waiting.pop(ticket.id, None)

    def awaits_someone(self) -> bool:
        return False  # it cannot lose what it knows

    def stir(self, key: str) -> None:
        """There is only one holder."""

    @property
    def now(self) -> float:
        return self._clock()

    def charge(self, state: KeyState) -> None:
        self.admitted.setdefault(state.key, deque()).append(milliseconds(self.now))
        state.spent += 1

    def forgive(self, state: KeyState) -> None:
        admitted, (oldest, _) = self.admitted.get(state.key, deque()), window(self.now)
        while admitted and admitted[0] <= oldest:
            admitted.popleft()
        state.spent = len(admitted)

    def oldest(self, state: KeyState) -> int | None:
        """The first of a key's admissions that count on its budget."""
        admitted = self.admitted.get(state.key)
        return admitted[0] if admitted else None

    # -- the usual cases, without admission -----------------------------------------

    def go_straight_in(self, ticket: Ticket) -> bool:
        """Grant a ticket that finds room and nobody waiting on every one of its keys."""
        states, weight = self._routes.get(ticket.path), ticket.weight
        if states is None:
            states = self._route(ticket.path)
            if ticket.path not in self._routes:
                return False
        for state in states:
            if state.waiting or state.used + state.reserved + weight > state.cap:
                return False
        for state in states:
            state.used += weight
        self.grant(ticket)
        return True

    def go_straight_out(self, ticket: Ticket, held_seconds: float) -> bool:
        """End a lease that nobody waits for or counts on; of another one only learn its length."""
        if ticket.id not in self.leases:
            return False
        states, weight = self._routes.get(ticket.path), ticket.weight
        simple = states is not None and not self.loans and not self._parked_children
        if states is None:
            states = self._route(ticket.path)
        handed_on = not simple and any((ticket.id, key) in self.loans for key in ticket.path)
        for state in states:
            usual = state.hold_seconds
            if not handed_on:
                state.hold_seconds = (
                    held_seconds if usual is None else usual + (held_seconds - usual) / 5
                )
            simple = simple and not state.waiting
        if not simple:
            return False
        del self.leases[ticket.id]
        for state in states:
            state.used -= weight
        return True

    def _route(self, path: tuple[str, ...]) -> tuple[KeyState, ...]:
        """The states of a path; remembered while nothing but room stands in the way there."""
        route = tuple([self.key(key) for key in path])
        self.crowded = self.crowded or len(self._routes) >= _MANY_KEYS
        if not any(state.gate for state in route):
            self._routes[path] = route
        return route

    def look_anew(self) -> None:
        """Something besides room may stand in the way from now on, or not any more."""
        self._routes.clear()
        self.gated = {key: state for key, state in self.states.items() if state.gate > PAUSED}

    # -- what the store needs besides -----------------------------------------------

    def positions(self, key: str) -> dict[str, int]:
        """The places of those parked at the key."""
        waiting = [ticket for ticket in self.parked() if ticket.at == key]
        return {ticket.id: place for place, ticket in enumerate(waiting, 1)}

    def recount(self, admission: Admission) -> None:
        """Make the counts anew from the tickets: Ctrl-C strikes between any two lines."""
        for state in self.states.values():
            state.used = state.reserved = state.waiting = state.promised = 0
            if state.cooldown is not None and state.cooldown.probe not in self.leases:
                state.cooldown.probe = None
        self.loans.clear()
        for granted in [ticket for ticket in self.waiting.values() if ticket.id in self.leases]:
            self.tell(granted, Granted(granted.id, granted.token))  # once more, perhaps
        self._parked_children = {id_: child for id_, child in self.waiting.items() if child.parents}
        self._parked_insiders, self._insiders_on, self._keys_inside = {}, {}, {}
        for waiting in self.waiting.values():
            if waiting.within:
                self._note_insider(waiting)
        for lease in self.leases.values():
            lease.at = None
            lease.reserved.clear()
            for key in lease.path:
                lender = lease.borrowed.get(key)
                if lender in self.leases and (lender, key) not in self.loans:
                    self.loans[lender, key] = lease.id
                else:
                    lease.borrowed.pop(key, None)
                    self.key(key).used += lease.weight
        self._lines.clear()
        for ticket in self.parked():
            admission.restart(ticket)
        admission.serve_everyone(list(self.states))

    def drop_idle_keys(self) -> None:
        """Forget keys that nobody uses; they come back when asked for."""
        for state in self.states.values():
            self.forgive(state)
        idle = [
            state.key
            for state in self.states.values()
            if not (state.used or state.reserved or state.waiting or state.spent)
            and (state.cooldown is None or state.cooldown.over)
        ]
        for key in idle:
            del self.states[key]
            self.admitted.pop(key, None)
            self.gated.pop(key, None)
            self._lines.pop(key, None)
        self._routes.clear()
        self.crowded = False

"""The memory store: one governor, one process, no files.

It is the plain reading of the rules, and the model that the other stores are
held against. Threads and any number of event loops may share it. Its holders
end with the process, so there is nothing to recover.
"""

from __future__ import annotations

import os
import sys
import time
from heapq import heapify, heappop, heappush

from headway.errors import StoreUnavailable
from headway.lean import deque
from headway.limits import Terms
from headway.stores.admission import Admission, changed_keys
from headway.stores.base import Census, Holder, Outlook, new_holder_id, say_nothing
from headway.stores.book import KeyState
from headway.stores.locks import owned_lock
from headway.tickets import Granted, Revoked, Waiting, job_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeVar

    from headway.config import Settings
    from headway.limits import Line
    from headway.tickets import Answer, Decision, Ticket

    T = TypeVar("T")

_REST_SECONDS = 1.0
# Idle keys are forgotten when there are more of them than this.
_MANY_KEYS = 8192


class MemoryStore:
    """Tickets and leases in plain dictionaries behind one lock."""

    name = "memory://"
    shared = False
    lifeline = None

    def __init__(
        self,
        *,
        boost_seconds: float = 600.0,
        max_waiting: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._boost, self._clock = int(boost_seconds * 1e6), clock
        self._max_waiting = max_waiting
        self._terms = Terms()
        self.news: deque[Decision] = deque()
        self.on_reclaimed: Callable[[Ticket, str], None] = say_nothing
        self._start()

    def _start(self) -> None:
        self._id = new_holder_id(os.urandom(6))
        self._lock = owned_lock()
        self._count = self._arrival = self._token = self._version = 0
        self._states: dict[str, KeyState] = {}
        self._routes: dict[tuple[str, ...], tuple[KeyState, ...]] = {}
        self._leases: dict[str, Ticket] = {}
        self._waiting: dict[str, Ticket] = {}
        self._lines: dict[str, list[tuple[tuple[int, str], Ticket]]] = {}
        self._loans: dict[tuple[str, str], str] = {}
        self._parked_children: dict[str, Ticket] = {}
        # Leases taken back whose holder has not left yet.
        self._revoked: dict[str, Ticket] = {}
        self._left_over: deque[tuple[Ticket, float]] = deque()
        self._asking: Ticket | None = None
        self._crowded = False
        self._admission = Admission(self, max_waiting=self._max_waiting)

    def introduce(self) -> None:
        """Nobody else is here."""

    def new_id(self, name: str = "") -> str:
        self._count += 1
        return f"{self._id}-{name or self._count}"

    # -- operations ------------------------------------------------------------

    def request(self, ticket: Ticket, *, wait: bool, patient: bool = True) -> Answer:  # noqa: ARG002
        if self._lock._is_owned():  # noqa: SLF001
            self._refuse_reentry()
        with self._lock:
            try:
                if not ticket.parents and self._go_straight_in(ticket):
                    answer: Answer = Granted(ticket.id, ticket.token)
                else:
                    answer = self._stand_in_line(ticket, wait=wait)
            except BaseException:
                self._recount()
                raise
            finally:
                self._asking = None
                self._version += 1
                if self._crowded:
                    self._drop_idle_keys()
        if self._left_over:
            self._do_left_over()
        return answer

    def _go_straight_in(self, ticket: Ticket) -> bool:
        """Grant a ticket that finds room and nobody waiting on every one of its keys."""
        states, weight = self._routes.get(ticket.path) or self._route(ticket.path), ticket.weight
        for state in states:
            if state.waiting or state.used + state.reserved + weight > state.cap or state.paused:
                return False
        for state in states:
            state.used += weight
        self.grant(ticket)
        return True

    def _stand_in_line(self, ticket: Ticket, *, wait: bool) -> Answer:
        self._asking = ticket
        if not ticket.arrival:
            self._arrival = max(int(self._clock() * 1e6), self._arrival + 1)
            self.place(ticket, arrival=self._arrival, since=time.time())
        refusal = self._admission.enter(ticket) or self._admission.turn_away(ticket, wait=wait)
        if refusal is not None:
            return refusal
        return Granted(ticket.id, ticket.token) if ticket.at is None else Waiting(ticket.id)

    def place(self, ticket: Ticket, *, arrival: int, since: float) -> None:
        ticket.arrival, ticket.since = arrival, since
        ticket.rank = arrival - ticket.priority * self._boost

    def release(
        self,
        ticket: Ticket,
        held_seconds: float,
        *,
        patient: bool = True,  # noqa: ARG002
    ) -> bool:
        if self._lock._is_owned():  # noqa: SLF001
            # A collected generator or a signal handler gives back while this very
            # thread is inside an operation: that operation will do it on its way out.
            self._left_over.append((ticket, held_seconds))
            return True
        with self._lock:
            try:
                was_lease = self._release(ticket, held_seconds)
            except BaseException:
                self._recount()
                raise
            finally:
                self._asking = None
                self._version += 1
                if self._crowded:
                    self._drop_idle_keys()
        if self._left_over:
            self._do_left_over()
        return was_lease

    def _do_left_over(self) -> None:
        while self._left_over:
            self.release(*self._left_over.popleft())

    def _release(self, ticket: Ticket, held_seconds: float) -> bool:
        if ticket.id not in self._leases:
            self._revoked.pop(ticket.id, None)
            if ticket.id in self._waiting:
                self._admission.withdraw(ticket)
            return False
        states, weight = self._routes.get(ticket.path) or self._route(ticket.path), ticket.weight
        simple = not self._loans and not self._parked_children
        handed_on = not simple and any((ticket.id, key) in self._loans for key in ticket.path)
        for state in states:
            usual = state.hold_seconds
            if not handed_on:
                state.hold_seconds = (
                    held_seconds if usual is None else usual + (held_seconds - usual) / 5
                )
            simple = simple and not state.waiting
        if not simple:
            self._admission.release(ticket)
            return True
        del self._leases[ticket.id]
        for state in states:
            state.used -= weight
        return True

    def withdraw(self, ticket: Ticket, *, patient: bool = True) -> Decision | None:  # noqa: ARG002
        return self._locked(self._withdraw, ticket)

    def _withdraw(self, ticket: Ticket) -> Decision | None:
        if ticket.id in self._leases:
            return Granted(ticket.id, ticket.token)
        if ticket.id in self._waiting:
            self._admission.withdraw(ticket)
        return ticket.verdict

    def is_lost(self, ticket: Ticket) -> bool:
        return ticket.id in self._revoked

    def own_ticket(self, ticket_id: str) -> Ticket | None:
        return self.ticket(ticket_id) or self._revoked.get(ticket_id)

    def cancel(self, ticket_id: str) -> bool:
        return self._locked(self._end, self._waiting, ticket_id, None)

    def revoke(self, ticket_id: str, reason: str) -> bool:
        return self._locked(self._end, self._leases, ticket_id, reason)

    def _end(self, among: dict[str, Ticket], ticket_id: str, reason: str | None) -> bool:
        ticket = among.get(ticket_id)
        if ticket is None:
            return False
        if reason is None:
            self._admission.cancel(ticket)
        else:
            self._admission.revoke(ticket, reason)
        return True

    def terms(self) -> Terms:
        return self._terms

    def set_terms(
        self, terms: Terms, *, expected: Terms, also: Callable[[], None] | None = None
    ) -> bool:
        return self._locked(self._set_terms, terms, expected, also)

    def _set_terms(self, terms: Terms, expected: Terms, also: Callable[[], None] | None) -> bool:
        if self._terms != expected:
            return False
        if also is not None:
            also()
        self._terms = terms
        self._admission.change(changed_keys(terms, self._states.values()))
        return True

    def awaits_someone(self) -> bool:
        return False  # it cannot lose what it knows

    def follow_file(self, known: Settings | None = None) -> list[Line]:  # noqa: ARG002
        return []  # there is none

    def survey(self, path: Sequence[str]) -> list[KeyState]:
        self._refuse_reentry()
        with self._lock:
            return [_copy(self.key(key)) for key in path]

    def census(self) -> Census:
        self._refuse_reentry()
        with self._lock:
            return Census(
                terms=self._terms,
                states=[_copy(state) for state in self._states.values()],
                leases=self._leases.values(),
                waiting=self.parked(),
                loans=[(lender, key, to) for (lender, key), to in self._loans.items()],
                holders=[self._holder()],
            )

    def outlook(self, ticket: Ticket) -> Outlook | None:
        self._refuse_reentry()
        with self._lock:
            if ticket.at is None or ticket.id not in self._waiting:
                return None
            return Outlook(
                state=_copy(self.key(ticket.at)),
                position=self._positions(ticket.at)[ticket.id],
                leases=[lease for lease in self._leases.values() if ticket.at in lease.path],
                holders=[self._holder()],
            )

    def positions(self, tickets: Iterable[Ticket]) -> dict[str, int]:
        self._refuse_reentry()
        with self._lock:
            keys = {ticket.at for ticket in tickets if ticket.at is not None}
            return {id_: place for key in keys for id_, place in self._positions(key).items()}

    def bystanders(self) -> list[tuple[str, int]]:
        waiting = [ticket for ticket in self._waiting.values() if job_of(ticket.id) is None]
        return [(ticket.at or "", ticket.rank) for ticket in waiting]

    def ahead(self, key: str, rank: int) -> int:
        return sum(at == key and place < rank for at, place in self.bystanders())

    def version(self) -> int:
        return self._version

    def listen(self, timeout_seconds: float) -> None:
        raise NotImplementedError("nobody outside this process decides about its tickets")

    def doze(self, timeout_seconds: float) -> bool:
        raise NotImplementedError("nobody outside this process decides about its tickets")

    def interrupt(self) -> None:
        """Nobody listens."""

    def come_to_rest(self) -> bool:
        """Let no other thread be inside while this one forks."""
        return self._lock.acquire(True, _REST_SECONDS)

    def go_on(self) -> None:
        self._lock.release()

    def forget_after_fork(self) -> None:
        self.news.clear()
        self._start()

    def close(self) -> None:
        """Nothing outlives the governor."""

    # -- the book that admission keeps ------------------------------------------

    def key(self, key: str) -> KeyState:
        state = self._states.get(key)
        if state is None:
            self._crowded = len(self._states) >= _MANY_KEYS
            line = self._terms.line_for(key)
            state = KeyState(key, line.slots, paused=key in self._terms.paused)
            self._states[key] = state
        return state

    def head(self, key: str) -> Ticket | None:
        line = self._lines.get(key)
        while line:
            ticket = line[0][1]
            if ticket.at == key and ticket.id in self._waiting:
                return ticket
            heappop(line)
        return None

    def park(self, ticket: Ticket) -> None:
        assert ticket.at is not None
        self._waiting[ticket.id] = ticket
        if ticket.parents:
            self._parked_children[ticket.id] = ticket
        line = self._lines.setdefault(ticket.at, [])
        if len(line) > 2 * self._states[ticket.at].waiting + 64:
            line[:] = {entry[1].id: entry for entry in line if entry[1].at == ticket.at}.values()
            heapify(line)
        heappush(line, (ticket.place, ticket))

    def grant(self, ticket: Ticket) -> None:
        self._token += 1
        ticket.token, ticket.since = self._token, time.time()
        self._waiting.pop(ticket.id, None)
        self._parked_children.pop(ticket.id, None)
        self._leases[ticket.id] = ticket

    def strike(self, ticket: Ticket) -> None:
        self._waiting.pop(ticket.id, None)
        self._parked_children.pop(ticket.id, None)
        self._leases.pop(ticket.id, None)

    def lease(self, ticket_id: str) -> Ticket | None:
        return self._leases.get(ticket_id)

    def ticket(self, ticket_id: str) -> Ticket | None:
        return self._leases.get(ticket_id) or self._waiting.get(ticket_id)

    def borrower(self, lender: str, key: str) -> str | None:
        return self._loans.get((lender, key)) if self._loans else None

    def lend(self, lender: str, key: str, borrower: str) -> None:
        self._loans[lender, key] = borrower

    def end_loan(self, lender: str, key: str) -> None:
        del self._loans[lender, key]

    def note_child(self, parent: str) -> None:
        """The parked children are known anyway."""

    def parked_children(self) -> list[Ticket]:
        return sorted(self._parked_children.values(), key=lambda ticket: ticket.place)

    def parked(self) -> list[Ticket]:
        return sorted(self._waiting.values(), key=lambda ticket: ticket.place)

    def tell(self, ticket: Ticket, decision: Decision) -> None:
        if ticket is not self._asking:
            if not isinstance(decision, Granted):
                ticket.verdict = decision
            if isinstance(decision, Revoked):
                self._revoked[ticket.id] = ticket
            self.news.append(decision)

    def stir(self, key: str) -> None:
        """There is only one holder."""

    # -- inside -------------------------------------------------------------------

    def _refuse_reentry(self) -> None:
        if self._lock._is_owned():  # noqa: SLF001
            raise StoreUnavailable(
                self.name, "asked for from inside one of its own operations (a signal handler?)"
            )

    def _locked(self, operation: Callable[..., T], *args: object) -> T:
        self._refuse_reentry()
        with self._lock:
            try:
                result = operation(*args)
            except BaseException:
                self._recount()
                raise
            finally:
                self._asking = None
                self._version += 1
                if self._crowded:
                    self._drop_idle_keys()
        if self._left_over:
            self._do_left_over()
        return result

    def _recount(self) -> None:
        """Make the counts anew from the tickets: Ctrl-C strikes between any two lines."""
        for state in self._states.values():
            state.used = state.reserved = state.waiting = 0
        self._loans.clear()
        for lease in self._leases.values():
            lease.at = None
            lease.reserved.clear()
            for key in lease.path:
                lender = lease.borrowed.get(key)
                if lender in self._leases and (lender, key) not in self._loans:
                    self._loans[lender, key] = lease.id
                else:
                    lease.borrowed.pop(key, None)
                    self.key(key).used += lease.weight
        self._lines.clear()
        for ticket in self.parked():
            self._admission.restart(ticket)
        self._admission.serve(list(self._states))

    def _route(self, path: tuple[str, ...]) -> tuple[KeyState, ...]:
        route = self._routes.get(path)
        if route is None:
            route = tuple([self.key(key) for key in path])
            self._crowded = self._crowded or len(self._routes) >= _MANY_KEYS
            self._routes[path] = route
        return route

    def _positions(self, key: str) -> dict[str, int]:
        waiting = [ticket for ticket in self.parked() if ticket.at == key]
        return {ticket.id: place for place, ticket in enumerate(waiting, 1)}

    def _drop_idle_keys(self) -> None:
        idle = [s.key for s in self._states.values() if not (s.used or s.reserved or s.waiting)]
        for key in idle:
            del self._states[key]
            self._lines.pop(key, None)
        self._routes.clear()
        self._crowded = False

    def _holder(self) -> Holder:
        return Holder(self._id, os.getpid(), os.uname().nodename, " ".join(sys.argv)[:200])


def _copy(state: KeyState) -> KeyState:
    copied = KeyState(state.key, state.cap, paused=state.paused)
    copied.used, copied.reserved, copied.waiting = state.used, state.reserved, state.waiting
    copied.hold_seconds = state.hold_seconds
    return copied

"""The memory store: one governor, one process, no files.

It is the plain reading of the rules, and the model that the other stores are
held against. Threads and any number of event loops may share it. Its holders
end with the process, so there is nothing to recover.
"""

from __future__ import annotations

import os
import sys
import time

from headway.errors import StoreUnavailable
from headway.lean import deque
from headway.limits import CODE, Terms
from headway.stores.admission import Admission
from headway.stores.base import Census, Holder, Outlook, forsake, new_holder_id, say_nothing
from headway.stores.book import changed_keys
from headway.stores.locks import owned_lock
from headway.stores.memorybook import MemoryBook
from headway.stores.pacing import Pacing
from headway.tickets import Granted, Waiting, job_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeVar

    from headway.config import Settings
    from headway.limits import Line
    from headway.stores.book import KeyState
    from headway.stores.repair import Correction
    from headway.tickets import Answer, Decision, Ticket

    T = TypeVar("T")

_REST_SECONDS = 1.0
# So often whoever keeps the time looks, while somebody waits and time may matter.
_LOOK_SECONDS = 0.25


class MemoryStore:
    """A book in memory behind one lock."""

    name = "memory://"
    shared = distant = is_unheard = False
    source = CODE
    lifeline = None

    def __init__(
        self,
        *,
        boost_seconds: float = 600.0,
        max_waiting: int = 100_000,
        max_cooling_seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._boost, self._clock = int(boost_seconds * 1e6), clock
        self._max_waiting, self._max_cooling_seconds = max_waiting, max_cooling_seconds
        self.news: deque[Decision] = deque()
        self.on_reclaimed: Callable[[Ticket, str], None] = say_nothing
        self.on_unheard: Callable[[Ticket, float], None] = say_nothing
        self._start(Terms())

    def _start(self, terms: Terms) -> None:
        self._id = new_holder_id()
        self._lock = owned_lock()
        self._count = self._arrival = self._version = 0
        self._book = MemoryBook(terms, self.news, clock=self._clock)
        self._left_over: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self.closed = False
        self._admission = Admission(
            self._book,
            max_waiting=self._max_waiting,
            max_cooling_seconds=self._max_cooling_seconds,
        )
        self._pacing = Pacing(self._book, self._admission)

    def introduce(self, stopped: str = "") -> None:
        """Nobody else is here."""

    def new_id(self, name: str = "") -> str:
        self._count += 1
        return f"{self._id}-{name or self._count}"

    # -- operations ------------------------------------------------------------

    def request(self, ticket: Ticket, *, wait: bool, patient: bool = True) -> Answer:  # noqa: ARG002
        if self._lock._is_owned():  # noqa: SLF001
            self._refuse_reentry()
        with self._lock:
            book = self._book
            try:
                if not ticket.parents and book.go_straight_in(ticket):
                    answer: Answer = Granted(ticket.id, ticket.token)
                else:
                    answer = self._stand_in_line(ticket, wait=wait)
            except BaseException:
                book.recount(self._admission)
                raise
            finally:
                book.asking = None
                self._version += 1
                if book.crowded:
                    book.drop_idle_keys()
        if self._left_over:
            self._do_left_over()
        return answer

    def _stand_in_line(self, ticket: Ticket, *, wait: bool) -> Answer:
        self._book.asking = ticket
        if not ticket.arrival:
            self._arrival = max(int(self._clock() * 1e6), self._arrival + 1)
            self.place(ticket, arrival=self._arrival, since=time.time())
        self._pacing.tend(ticket.path)
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
            self._left_over.append((self._leave, (ticket, held_seconds)))
            return True
        with self._lock:
            book = self._book
            try:
                was_lease = book.go_straight_out(ticket, held_seconds) or self._release(ticket)
            except BaseException:
                book.recount(self._admission)
                raise
            finally:
                book.asking = None
                self._version += 1
                if book.crowded:
                    book.drop_idle_keys()
        if self._left_over:
            self._do_left_over()
        return was_lease

    def _do_left_over(self) -> None:
        while self._left_over:
            self._locked(self._do_first_left_over)

    def _do_first_left_over(self) -> None:
        if self._left_over:  # otherwise another thread did it
            work, args = self._left_over[0]
            work(*args)
            # After it: it is done twice rather than never, if Ctrl-C strikes in between.
            del self._left_over[0]

    def _leave(self, ticket: Ticket, held_seconds: float) -> bool:
        return self._book.go_straight_out(ticket, held_seconds) or self._release(ticket)

    def _release(self, ticket: Ticket) -> bool:
        if ticket.id in self._book.leases:
            self._admission.release(ticket)
            return True
        self._book.revoked.pop(ticket.id, None)
        if ticket.id in self._book.waiting:
            self._admission.withdraw(ticket)
        return False

    def withdraw(self, ticket: Ticket, *, patient: bool = True) -> Decision | None:  # noqa: ARG002
        return self._locked(self._withdraw, ticket)

    def _withdraw(self, ticket: Ticket) -> Decision | None:
        if ticket.id in self._book.leases:
            return Granted(ticket.id, ticket.token)
        if ticket.id in self._book.waiting:
            self._admission.withdraw(ticket)
        return ticket.verdict

    def is_lost(self, ticket: Ticket) -> bool:
        return ticket.id in self._book.revoked

    def own_ticket(self, ticket_id: str) -> Ticket | None:
        return self._book.ticket(ticket_id) or self._book.revoked.get(ticket_id)

    def own_tickets(self) -> list[Ticket]:
        return [*self._book.leases.values(), *self._book.waiting.values()]

    def cancel(self, ticket_id: str) -> bool:
        return self._locked(self._end, self._book.waiting, ticket_id, None)

    def revoke(self, ticket_id: str, reason: str) -> bool:
        return self._locked(self._end, self._book.leases, ticket_id, reason)

    def _end(self, among: dict[str, Ticket], ticket_id: str, reason: str | None) -> bool:
        ticket = among.get(ticket_id)
        if ticket is None:
            return False
        if reason is None:
            self._admission.cancel(ticket)
        else:
            self._admission.revoke(ticket, reason)
        return True

    # -- leaving a key alone ---------------------------------------------------------

    def cool_down(self, key: str, seconds: float | None, reason: str, *, jitter: float) -> float:
        def work() -> float:
            try:
                return self._pacing.cool_down(key, seconds, reason, jitter=jitter)
            finally:
                self._book.look_anew()

        return self._locked(work)

    def end_cool_down(self, key: str) -> bool:
        return self._locked(self._pacing.end_cool_down, key)

    def prove(self, ticket: Ticket) -> None:
        self._locked(self._pacing.prove, ticket)

    def stand_back(self, ticket: Ticket) -> None:
        self._locked(self._pacing.stand_back, ticket)

    def tend(self) -> None:
        self._locked(self._pacing.tend, list(self._book.gated))

    def due_seconds(self) -> float | None:
        if not self._book.gated or not self._book.waiting or self._lock._is_owned():  # noqa: SLF001
            return None
        with self._lock:
            gated = [state for state in self._book.gated.values() if state.waiting]
            due = [state.due_at(self._book.oldest(state)) for state in gated]
            now = self._clock()
            # Someone may come to wait there without anyone being told.
            return min([_LOOK_SECONDS, *(max(0.0, at - now) for at in due if at is not None)])

    def terms(self) -> Terms:
        return self._book.terms

    def set_terms(
        self, terms: Terms, *, expected: Terms, also: Callable[[], None] | None = None
    ) -> bool:
        return self._locked(self._set_terms, terms, expected, also)

    def _set_terms(self, terms: Terms, expected: Terms, also: Callable[[], None] | None) -> bool:
        if self._book.terms != expected:
            return False
        if also is not None:
            also()
        self._book.terms = terms
        try:
            self._admission.change(changed_keys(terms, self._book.states.values()))
        finally:
            self._book.look_anew()
        return True

    def follow_file(self, known: Settings | None = None) -> list[Line]:  # noqa: ARG002
        return []  # there is none

    def repair(self) -> list[Correction]:
        return self._locked(self._repair)

    def _repair(self) -> list[Correction]:
        from headway.stores.repair import miscounts  # noqa: PLC0415 - seldom needed

        corrections = miscounts(self._census(self._book.states.values()))
        if corrections:
            self._book.recount(self._admission)
        return corrections

    def survey(self, path: Sequence[str]) -> list[KeyState]:
        self._refuse_reentry()
        with self._lock:
            return [self._shown(self._book.key(key)) for key in path]

    def census(self) -> Census:
        self._refuse_reentry()
        with self._lock:
            return self._census([self._shown(state) for state in self._book.states.values()])

    def _census(self, states: Iterable[KeyState]) -> Census:
        return Census(
            terms=self._book.terms,
            states=states,
            leases=self._book.leases.values(),
            waiting=self._book.parked(),
            loans=[(lender, key, to) for (lender, key), to in self._book.loans.items()],
            holders=[self._holder()],
        )

    def outlook(self, ticket: Ticket) -> Outlook | None:
        self._refuse_reentry()
        with self._lock:
            if ticket.at is None or ticket.id not in self._book.waiting:
                return None
            return Outlook(
                state=self._shown(self._book.key(ticket.at)),
                position=self._book.positions(ticket.at)[ticket.id],
                leases=[lease for lease in self._book.leases.values() if ticket.at in lease.path],
                holders=[self._holder()],
            )

    def positions(self, tickets: Iterable[Ticket]) -> dict[str, int]:
        self._refuse_reentry()
        with self._lock:
            keys = {ticket.at for ticket in tickets if ticket.at is not None}
            return {id_: place for key in keys for id_, place in self._book.positions(key).items()}

    def bystanders(self) -> list[tuple[str, int]]:
        waiting = [ticket for ticket in self._book.waiting.values() if job_of(ticket.id) is None]
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
        self._start(self._book.terms)

    def close(self) -> None:
        """Nobody can see it any more; who holds something has to know."""
        if self._lock._is_owned():  # noqa: SLF001
            self._left_over.append((self._give_everything_back, ()))
            return
        self._locked(self._give_everything_back)

    def _give_everything_back(self) -> None:
        tickets = [*self._book.waiting.values(), *self._book.leases.values()]
        forsake(tickets)
        self._admission.end_all(tickets)
        self.closed = True

    # -- inside -------------------------------------------------------------------

    def _shown(self, state: KeyState) -> KeyState:
        """A key as it is now, for someone who only looks."""
        copied = state.copy()
        copied.look(self._clock(), self._book.admitted.get(state.key, ()))
        return copied

    def _refuse_reentry(self) -> None:
        if self._lock._is_owned():  # noqa: SLF001
            raise StoreUnavailable(
                self.name, "asked for from inside one of its own operations (a signal handler?)"
            )

    def _locked(self, operation: Callable[..., T], *args: object) -> T:
        self._refuse_reentry()
        with self._lock:
            book = self._book
            try:
                result = operation(*args)
            except BaseException:
                book.recount(self._admission)
                raise
            finally:
                book.asking = None
                self._version += 1
                if book.crowded:
                    book.drop_idle_keys()
        if self._left_over:
            self._do_left_over()
        return result

    def _holder(self) -> Holder:
        return Holder(self._id, os.getpid(), os.uname().nodename, " ".join(sys.argv)[:200])

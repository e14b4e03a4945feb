"""The SQLite store: one machine, any number of processes, nothing to start.

Each operation is one short transaction under the home's guard. Who frees room
grants it to the next in line in that same transaction, and wakes its holder
with a datagram after the commit.
"""

from __future__ import annotations

import time

from headway import clocks, forking
from headway.lean import deque
from headway.limits import FILE
from headway.stores.base import StoreClosed, WouldBlock, say_nothing
from headway.stores.book import PAUSED
from headway.stores.closing import Closing
from headway.stores.home import Home
from headway.stores.ledger import Ledger
from headway.stores.own_tickets import OwnTickets
from headway.stores.reader import Reader
from headway.stores.recovery import Recovery
from headway.stores.settling import Settling, Unsettled
from headway.stores.shortcuts import Shortcuts
from headway.stores.terms import TermsInForce
from headway.stores.wakeups import Wakeups
from headway.tickets import Granted, Refused, Revoked, Waiting

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from sqlite3 import Connection
    from typing import TypeVar

    from headway.config import Settings
    from headway.limits import Line, Terms
    from headway.stores.base import Census, Outlook
    from headway.stores.book import KeyState
    from headway.stores.repair import Correction
    from headway.stores.sqlbook import SqlBook
    from headway.tickets import Answer, Decision, Ticket

    T = TypeVar("T")

_REST = 1.0
_TAKEN_FOR_DEAD = "its process has lost its lock file and was taken for dead"


class SqliteStore:
    """Tickets and leases of a home, in ``slots.db``."""

    shared, distant, is_unheard = True, False, False
    source = FILE

    def __init__(self, settings: Settings, *, clock: Callable[[], float] | None = None) -> None:
        self.name = f"sqlite:///{settings.home}"
        self._clock = clock or clocks.boot_seconds
        self._boost = int(settings.boost_seconds * 1e6)
        self.news: deque[Decision] = deque()
        self.on_reclaimed: Callable[[Ticket, str], None] = say_nothing
        self.on_unheard: Callable[[Ticket, float], None] = say_nothing
        self._own = OwnTickets(self.news)
        self._count = 0
        patience = settings.store_timeout_seconds
        self._home = Home(settings.home, timeout_seconds=patience)
        self._reader = Reader(self._home, clock=self._clock)
        self._settling = Settling(self._home, self._reader, timeout_seconds=patience)
        self._wakeups = Wakeups(self._home, self._reader, self._own, self, clock=self._clock)
        self._ledger = Ledger(
            self._home,
            max_waiting=settings.max_waiting,
            max_cooling_seconds=settings.max_cooling_seconds,
            clock=self._clock,
        )
        self._ledger.note, self._ledger.note_dead = self._wakeups.note, self._wakeups.note_dead
        self._shortcuts = Shortcuts(
            self._home,
            self._wakeups,
            max_waiting=settings.max_waiting,
            new_place=self._give_place,
        )
        self._terms = TermsInForce(self._home, self._ledger, self._reader)
        self._recovery = Recovery(self._home, self._ledger, self._terms, self._own)
        self._home.tenant = self._recovery
        self._closing = Closing(self._home, self._reader, self._ledger, self._wakeups, self._own)

    @property
    def lifeline(self) -> int | None:
        return self._home.presence.lock if self._home.holder_id else None

    def introduce(self, stopped: str = "") -> None:
        self._home.presence.get_busy(stopped)

    def new_id(self, name: str = "") -> str:
        self._count += 1
        return f"{self._home.holder_id or self._appear()}-{name or self._count}"

    def _appear(self) -> str:
        self._home.operate(lambda _: None)
        return self._home.holder_id

    # -- tickets ------------------------------------------------------------------------

    def request(self, ticket: Ticket, *, wait: bool, patient: bool = True) -> Answer:
        if self._home.guard.is_mine():
            self._home.refuse_reentry()
        self._own[ticket.id] = ticket
        try:
            answer = self._home.operate(self._request, ticket, wait, patient=patient)
        except Unsettled:
            if not patient:
                raise WouldBlock from None
            answer = self._settling.repeat(lambda: self._home.operate(self._request, ticket, wait))
        if self._wakeups.something_to_tell:
            self.wrap_up()
        if answer.__class__ is Refused:
            del self._own[ticket.id]
        return answer

    def _request(self, connection: Connection, ticket: Ticket, wait: bool) -> Answer:  # noqa: FBT001
        if not self._home.presence.is_busy:
            self._home.presence.get_busy()
        self._settling.check(connection)
        if not ticket.parents:
            answer = self._shortcuts.come(ticket, wait=wait)
            if answer is not None:
                return answer
        self._give_place(ticket)
        try:
            return self._ledger.transact(
                connection, lambda book: self._enter(book, ticket, wait=wait)
            )
        except BaseException:
            # Not decided, whatever the failed attempt wrote on it: not to be announced.
            ticket.clear()
            raise

    def _give_place(self, ticket: Ticket) -> None:
        if ticket.arrival:
            return
        arrival = self._home.guard.next_arrival(int(self._clock() * 1e6))
        self.place(ticket, arrival=arrival, since=time.time())

    def place(self, ticket: Ticket, *, arrival: int, since: float) -> None:
        ticket.arrival, ticket.since = arrival, since
        ticket.rank = arrival - ticket.priority * self._boost

    def _enter(self, book: SqlBook, ticket: Ticket, *, wait: bool) -> Answer:
        admission = self._ledger.admission(book)
        if self._ledger.pacing(book).tend(ticket.path):
            book.flush()  # what follows looks at who waits now
        refusal = admission.enter(ticket)
        if refusal is None and ticket.at is not None:
            # Before anyone waits or is sent away: are those in front alive at all?
            self._ledger.reclaim(book, self._home.presence.watch(book.in_front_of(ticket)))
        refusal = refusal or admission.turn_away(ticket, wait=wait)
        if refusal is not None:
            return refusal
        if ticket.at is None:
            return Granted(ticket.id, ticket.token)
        if book.key(ticket.at).gate > PAUSED:
            self._wakeups.due_is_known = False
        return Waiting(ticket.id)

    def release(self, ticket: Ticket, held_seconds: float, *, patient: bool = True) -> bool:
        if self._home.guard.is_mine():
            # A collected generator or a signal handler gives back while this very
            # thread is inside an operation: that operation will do it on its way out.
            self._wakeups.left_over.append((ticket, held_seconds))
            return True
        if ticket.id not in self._own:
            return False
        try:
            was_lease = self._home.operate(
                self._release, ticket, held_seconds, patient=patient, eager=True
            )
        except StoreClosed:  # given back with everything else
            return False
        if self._wakeups.something_to_tell:
            self.wrap_up()
        return was_lease

    def _release(self, connection: Connection, ticket: Ticket, held_seconds: float) -> bool:
        was_lease = not ticket.parents and self._shortcuts.go(ticket, held_seconds)
        if not was_lease:
            was_lease = self._ledger.transact(
                connection, lambda book: self._leave(book, ticket, held_seconds)
            )
        # Still inside: who opens the database next announces what is ours.
        self._own.pop(ticket.id, None)
        return was_lease

    def _leave(self, book: SqlBook, ticket: Ticket, held_seconds: float) -> bool:
        found = book.ticket(ticket.id)
        if found is None:
            book.take_verdict(ticket.id)
            return False
        if found.at is not None:
            self._ledger.admission(book).withdraw(found)
            return False
        handed_on = any(book.borrower(found.id, key) for key in found.path)
        if not handed_on:  # otherwise the slots are held on by the borrower
            for key in found.path:
                book.key(key).learn(held_seconds)
        self._ledger.admission(book).release(found)
        return True

    def withdraw(self, ticket: Ticket, *, patient: bool = True) -> Decision | None:
        return self._operate(self._withdraw, ticket, patient=patient)

    def _withdraw(self, connection: Connection, ticket: Ticket) -> Decision | None:
        decision = self._ledger.transact(connection, lambda book: self._take_out(book, ticket))
        if not isinstance(decision, Granted):
            self._own.pop(ticket.id, None)
        return decision

    def _take_out(self, book: SqlBook, ticket: Ticket) -> Decision | None:
        found = book.ticket(ticket.id)
        if found is None:
            verdict = book.take_verdict(ticket.id)
            return ticket.verdict or verdict
        if found.at is None:
            ticket.token, ticket.at, ticket.since = found.token, None, found.since
            return Granted(ticket.id, ticket.token)
        self._ledger.admission(book).withdraw(found)
        return None

    def is_lost(self, ticket: Ticket) -> bool:
        if not self._reader.has_lease(ticket.id):
            verdict = self._operate(self._find_verdict, ticket)
            if verdict is not None:
                self._own.decided(verdict)
        return isinstance(ticket.verdict, Revoked)

    def _find_verdict(self, connection: Connection, ticket: Ticket) -> Decision | None:
        """Inside, where the database is the newest, with everything in it that we hold."""

        def work(book: SqlBook) -> Decision | None:
            if ticket.id not in self._own or book.lease(ticket.id) is not None:
                return None
            return book.take_verdict(ticket.id) or Revoked(ticket.id, _TAKEN_FOR_DEAD)

        return self._ledger.transact(connection, work)

    def own_ticket(self, ticket_id: str) -> Ticket | None:
        return self._own.get(ticket_id)

    def own_tickets(self) -> list[Ticket]:
        return list(self._own.values())

    def cancel(self, ticket_id: str) -> bool:
        def work(book: SqlBook) -> bool:
            ticket = book.ticket(ticket_id)
            if ticket is None or ticket.at is None:
                return False
            self._ledger.admission(book).cancel(ticket)
            return True

        return self._change(work)

    def revoke(self, ticket_id: str, reason: str) -> bool:
        def work(book: SqlBook) -> bool:
            lease = book.lease(ticket_id)
            if lease is None:
                return False
            self._ledger.admission(book).revoke(lease, reason)
            return True

        return self._change(work)

    # -- leaving a key alone --------------------------------------------------------------

    def cool_down(self, key: str, seconds: float | None, reason: str, *, jitter: float) -> float:
        return self._change(
            lambda book: self._ledger.pacing(book).cool_down(key, seconds, reason, jitter=jitter)
        )

    def end_cool_down(self, key: str) -> bool:
        return self._change(lambda book: self._ledger.pacing(book).end_cool_down(key))

    def prove(self, ticket: Ticket) -> None:
        if self._reader.is_probe(ticket.id):
            self._change(lambda book: self._ledger.pacing(book).prove(ticket))

    def stand_back(self, ticket: Ticket) -> None:
        if self._reader.is_probe(ticket.id):
            self._change(lambda book: self._ledger.pacing(book).stand_back(ticket))

    def tend(self) -> None:
        self._change(lambda book: self._ledger.pacing(book).tend(book.gated()))

    def due_seconds(self) -> float | None:
        return None  # whoever listens to it tends to it

    # -- terms ----------------------------------------------------------------------------

    def terms(self) -> Terms:
        return self._terms.read()

    def set_terms(
        self, terms: Terms, *, expected: Terms, also: Callable[[], None] | None = None
    ) -> bool:
        return self._change(lambda book: self._terms.replace(book, terms, expected, also))

    def follow_file(self, known: Settings | None = None) -> list[Line]:
        if known is not None and self._terms.agree_with(known):
            return []
        return self._change(self._terms.follow_file)

    # -- looking --------------------------------------------------------------------------

    def survey(self, path: Sequence[str]) -> list[KeyState]:
        self._prepare_to_look()
        return self._reader.survey(path)

    def census(self) -> Census:
        self._prepare_to_look()
        return self._reader.census()

    def outlook(self, ticket: Ticket) -> Outlook | None:
        return self._reader.outlook(ticket)

    def positions(self, tickets: Iterable[Ticket]) -> dict[str, int]:
        return self._reader.positions([ticket.id for ticket in tickets])

    def ahead(self, key: str, rank: int) -> int:
        return self._reader.ahead(key, rank)

    def bystanders(self) -> list[tuple[str, int]]:
        return self._reader.bystanders()

    def version(self) -> int:
        return self._reader.version()

    def _prepare_to_look(self) -> None:
        """Nobody may be waiting who would notice the dead: bury them before showing."""
        live, own = self._home.live, self._home.holder_id
        dead = [h for h in live.holders() if h != own and not live.is_alive(h)]
        if dead:
            self.reclaim(dead)
        self._settling.wait_to_look()

    # -- news from others -------------------------------------------------------------------

    def listen(self, timeout_seconds: float) -> None:
        self._wakeups.listen(timeout_seconds)

    def doze(self, timeout_seconds: float) -> bool:
        return self._home.presence.doze(timeout_seconds)

    def interrupt(self) -> None:
        self._wakeups.interrupt()

    def reclaim(self, holders: Iterable[str]) -> None:
        """Give back what holders left that are gone, if they are."""
        self._change(lambda book: self._ledger.reclaim(book, holders))

    def repair(self) -> list[Correction]:
        from headway.stores.sqlrepair import repair  # noqa: PLC0415 - seldom needed

        return self._operate(repair, self._ledger)

    def wrap_up(self) -> None:
        """Outside the guard: wake whom it concerns, and do what was put off meanwhile."""
        self._wakeups.send()
        left_over = self._wakeups.left_over
        for ticket, held_seconds in list(left_over):
            self.release(ticket, held_seconds)
            # After it: a release that is repeated does nothing, if Ctrl-C strikes in between.
            if (ticket, held_seconds) in left_over:
                left_over.remove((ticket, held_seconds))

    # -- life -------------------------------------------------------------------------------

    def come_to_rest(self) -> bool:
        if self._home.guard.is_mine() or self._reader.is_mine():
            return False
        at_rest = False
        try:
            at_rest = self._reader.come_to_rest(_REST) and self._home.come_to_rest(_REST)
        finally:
            if not at_rest:
                self.go_on()
        return at_rest

    def go_on(self) -> None:
        self._reader.go_on()
        self._home.guard.go_on()

    def forget_after_fork(self) -> None:
        self.news.clear()
        parts = (self._own, self._reader, self._home, self._wakeups)
        forking.run_all([part.forget_after_fork for part in parts])

    @property
    def closed(self) -> bool:
        return self._closing.done

    def close(self) -> None:
        self._closing.close()

    # -- inside -----------------------------------------------------------------------------

    def _change(self, work: Callable[[SqlBook], T]) -> T:
        result: T = self._operate(self._ledger.transact, work)
        return result

    def _operate(self, work: Callable[..., T], *args: object, patient: bool = True) -> T:
        result: T = self._home.operate(work, *args, patient=patient)
        if self._wakeups.something_to_tell:
            self.wrap_up()
        return result

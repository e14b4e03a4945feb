"""The Redis store: any number of machines, one server.

Each operation is one script on the server (``lua/``), which also tells those whom it
concerns. A process is alive as long as the server hears from it.
"""

from __future__ import annotations

import _thread
import time
from typing import TYPE_CHECKING

from headway import background, clocks, forking, journal
from headway.errors import ConfigError, StoreUnavailable
from headway.lean import deque
from headway.limits import STORE
from headway.stores import patience
from headway.stores.base import (
    Census,
    Outlook,
    StoreClosed,
    WouldBlock,
    forsake,
    say_nothing,
)
from headway.stores.home_record import HomeRecord
from headway.stores.own_tickets import FencedTickets
from headway.stores.redis_address import read_password
from headway.stores.redis_link import Link, Unreached
from headway.stores.redis_listening import Listening
from headway.stores.redis_looks import Looks
from headway.stores.redis_rows import (
    decision_from,
    short_release,
    short_request,
    ticket_row,
)
from headway.stores.redis_session import Session
from headway.stores.redis_terms import KnownTerms
from headway.tickets import Granted, Refused, Revoked, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headway.config import Settings
    from headway.limits import Line, Terms
    from headway.stores.book import KeyState
    from headway.stores.repair import Correction
    from headway.tickets import Answer, Decision, Ticket

_REST_SECONDS = 1.0


class RedisStore:
    """Tickets and leases of a namespace."""

    shared = distant = True
    source = STORE

    @staticmethod
    def link(url: str, settings: Settings, *, refuses_eviction: bool | None = None) -> Link:
        """The way to the server at this address; by default settings say which are refused."""
        if refuses_eviction is None:
            refuses_eviction = settings.store_eviction == "refuse"
        password = settings.store_password
        if settings.store_password_file is not None:
            password = read_password(settings.store_password_file)
        timeout = settings.store_timeout_seconds
        return Link(
            url,
            settings.namespace,
            timeout_seconds=timeout,
            password=password,
            refuses_eviction=refuses_eviction,
        )

    def __init__(
        self, settings: Settings, link: Link, *, clock: Callable[[], float] = clocks.boot_seconds
    ) -> None:
        self._settings, self._link, self.name = settings, link, link.name
        self._clock = clock
        self._boost = int(settings.boost_seconds * 1e6)
        self.news: deque[Decision] = deque()
        self.on_reclaimed: Callable[[Ticket, str], None] = say_nothing
        self.on_unheard: Callable[[Ticket, float], None] = say_nothing
        self._record = HomeRecord(settings.home, self.name)
        self._own = FencedTickets(self.news, self._record)
        self._start()

    def _start(self) -> None:
        self._known = KnownTerms(self._record)
        self._session = Session(
            self._settings,
            self._link,
            self._own,
            self._known,
            self._record,
            on_buried=self._tell_of_the_dead,
            on_free=self._wrap_up,
            on_unheard=self._tell_of_silence,
            clock=self._clock,
        )
        self._known.session = self._session
        self._own.clock = self._session.server_time
        self._looks = Looks(self._session)
        self._listening = Listening(self._link, self._session, self._own)
        self._count = 0
        # Releases asked for from inside an operation.
        self._left_over: deque[tuple[Ticket, float]] = deque()
        self._is_wrapping_up = False
        # What was asked for without an answer, and why there was none.
        self._doubted: dict[str, str] = {}
        self._closing = _thread.RLock()
        self.closed = False

    def _tell_of_the_dead(self, ticket: Ticket, holder: str) -> None:
        self.on_reclaimed(ticket, holder)

    def _tell_of_silence(self, ticket: Ticket, seconds: float) -> None:
        self.on_unheard(ticket, seconds)

    @property
    def lifeline(self) -> int | None:
        return self._session.lifeline

    def introduce(self, stopped: str = "") -> None:
        self._session.introduce(stopped)

    def new_id(self, name: str = "") -> str:
        self._count += 1
        return f"{self._session.id}-{name or self._count}"

    # -- tickets --------------------------------------------------------------------------

    def request(self, ticket: Ticket, *, wait: bool, patient: bool = True) -> Answer:
        self._check(patient=patient)
        is_new = ticket.id not in self._own
        self._own[ticket.id] = ticket
        calls, announced = self._listening.calls, self._session.announcements
        try:
            kind, *told = self._known.ask(
                b"request",
                ticket.path,
                lambda: ticket_row(ticket),
                lambda: wait,
                lambda: self._boost,
                shortcut=short_request(
                    ticket, self._boost, self._settings.max_waiting if wait else 0
                ),
            )
        except BaseException as error:
            # Not decided, whatever became of it there: not to be announced.
            ticket.clear()
            if is_new and isinstance(error, Unreached | ConfigError):
                self._own.forget(ticket.id)
            else:
                self._doubt(ticket, error)
            raise
        if kind == "refused":
            self._own.forget(ticket.id)
            reason, key, held_by = told
            return Refused(ticket.id, reason, key, tuple(held_by))
        token, at, ticket.arrival, ticket.rank, since, left = told
        ticket.since = float(since)
        answer: Answer = Granted(ticket.id, token)
        if kind == "waiting":
            self._own.parked(ticket, at)
            self._listening.expect(left, calls)
            answer = Waiting(ticket.id)
        elif wait and self._session.is_unheard:
            return self._ask_again(ticket)
        else:
            self._record.saw_token(token)
            ticket.token, ticket.at = token, None
        self._note_announcements(announced)
        return answer

    def _ask_again(self, ticket: Ticket) -> Answer:
        """The answer was read late, and the grant in it may be lost by now: then it waits again."""
        if not ticket.arrival:  # a shortcut gives none
            self.place(ticket, arrival=int(self._clock() * 1e6), since=time.time())
        ticket.at = ticket.path[0]
        self._listening.look_after([ticket.id])
        return Waiting(ticket.id)

    def _note_announcements(self, announced: int) -> None:
        """Another thread may have told all that is ours before this was known to be."""
        if self._session.announcements != announced:
            self._session.has_gap = True

    # Who keeps arrivals tells them by the clock of its machine, as in a home; here they are
    # told by the server's.

    def place(self, ticket: Ticket, *, arrival: int, since: float) -> None:
        ticket.arrival = arrival + self._session.clock_offset()
        ticket.since = since + self._session.ahead_seconds
        ticket.rank = ticket.arrival - ticket.priority * self._boost

    def release(self, ticket: Ticket, held_seconds: float, *, patient: bool = True) -> bool:
        if self._session.is_asking:
            # A collected generator or a signal handler gives back while this very
            # thread is inside an operation: that operation will do it on its way out.
            self._left_over.append((ticket, held_seconds))
            return True
        if ticket.id not in self._own:
            return False
        if not patient:
            raise WouldBlock
        if ticket.id in self._doubted:
            raise self._link.unavailable(self._doubted.pop(ticket.id))
        self._own.leaving.add(ticket.id)
        try:
            ended, *let_in = self._session.ask(
                b"release", ticket.id, held_seconds, shortcut=short_release(ticket, held_seconds)
            )
            self._own.forget(ticket.id)
            for ticket_id, row in let_in:
                self._own.decided(decision_from(ticket_id, row))
        except StoreClosed:  # given back with everything else
            return False
        except BaseException:  # Ctrl-C
            self._session.has_gap = True
            raise
        finally:
            self._own.leaving.discard(ticket.id)
        return bool(ended == "released")

    def withdraw(self, ticket: Ticket, *, patient: bool = True) -> Decision | None:
        self._check(patient=patient)
        announced = self._session.announcements
        self._own.leaving.add(ticket.id)
        try:
            row = self._session.ask(b"withdraw", ticket.id)
            if row[0] != "granted":
                self._own.forget(ticket.id)
        except BaseException as error:
            self._doubt(ticket, error)
            raise
        finally:
            self._own.leaving.discard(ticket.id)
        if row[0] == "granted":
            self._record.saw_token(row[1])
            ticket.token, ticket.at, ticket.since = row[1], None, float(row[2])
            self._note_announcements(announced)
            return Granted(ticket.id, ticket.token)
        if row[0] == "gone":
            return ticket.verdict
        return ticket.verdict or decision_from(ticket.id, row)

    def _doubt(self, ticket: Ticket, error: BaseException) -> None:
        """Its caller has waited for the server in vain, and does not wait for it once more."""
        if isinstance(error, StoreUnavailable):
            self._doubted[ticket.id] = error.reason

    def is_lost(self, ticket: Ticket) -> bool:
        if ticket.verdict is None and ticket.id in self._own:
            self._listening.look_after([ticket.id])
        return isinstance(ticket.verdict, Revoked)

    @property
    def is_unheard(self) -> bool:
        return self._session.is_unheard

    def own_ticket(self, ticket_id: str) -> Ticket | None:
        return self._own.get(ticket_id)

    def own_tickets(self) -> list[Ticket]:
        return list(self._own.values())

    def cancel(self, ticket_id: str) -> bool:
        return bool(self._session.ask(b"cancel", ticket_id)[0])

    def revoke(self, ticket_id: str, reason: str) -> bool:
        return bool(self._session.ask(b"revoke", ticket_id, reason)[0])

    # -- leaving a key alone ----------------------------------------------------------------

    def cool_down(self, key: str, seconds: float | None, reason: str, *, jitter: float) -> float:
        _, left = self._known.ask(
            b"cool_down",
            (key,),
            lambda: key,
            lambda: False if seconds is None else seconds,
            lambda: reason,
            lambda: jitter,
        )
        return float(left)

    def end_cool_down(self, key: str) -> bool:
        return bool(self._session.ask(b"end_cool_down", key)[0])

    def prove(self, ticket: Ticket) -> None:
        self._session.ask(b"prove", ticket.id)

    def stand_back(self, ticket: Ticket) -> None:
        self._session.ask(b"stand_back", ticket.id)

    def tend(self) -> None:
        self._listening.tend()

    def due_seconds(self) -> float | None:
        return None  # whoever listens to it tends to it

    # -- terms ------------------------------------------------------------------------------

    def terms(self) -> Terms:
        return self._known.read()

    def set_terms(
        self, terms: Terms, *, expected: Terms, also: Callable[[], None] | None = None
    ) -> bool:
        return self._known.replace(terms, expected, also)

    def follow_file(self, known: Settings | None = None) -> list[Line]:  # noqa: ARG002
        return []  # the file of one machine is not the truth of all

    # -- looking ----------------------------------------------------------------------------

    def survey(self, path: Sequence[str]) -> list[KeyState]:
        return self._looks.survey(path)

    def census(self) -> Census:
        return self._looks.census()

    def repair(self) -> list[Correction]:
        from headway.stores.repair import miscounts  # noqa: PLC0415 - seldom needed

        corrections = miscounts(self.census())
        if corrections:
            # Whoever is alive has to say what it holds before anything is granted: a count
            # without its lease may belong to a lease that the server has lost.
            self._session.ask(b"distrust")
            self._session.look(b"version")
        return corrections

    def outlook(self, ticket: Ticket) -> Outlook | None:
        return self._looks.outlook(ticket)

    def positions(self, tickets: Iterable[Ticket]) -> dict[str, int]:
        return self._looks.positions(tickets)

    def ahead(self, key: str, rank: int) -> int:
        return self._looks.ahead(key, rank)

    def bystanders(self) -> list[tuple[str, int]]:
        return self._looks.bystanders()

    def version(self) -> int:
        return self._looks.version()

    def verdicts(self, ticket_ids: Sequence[str]) -> list[Decision]:
        """How others have ended these tickets, anybody's; nothing of those that were given back."""
        return self._looks.verdicts(ticket_ids)

    @property
    def is_settling(self) -> bool:
        """Whether the server may have lost what it knew, and some may still come back to it."""
        return self._session.settling_seconds is not None

    # -- news from others ---------------------------------------------------------------------

    def listen(self, timeout_seconds: float) -> None:
        patience.listening(lambda: self._listening.listen(timeout_seconds))

    def doze(self, timeout_seconds: float) -> bool:
        return self._listening.inbox.is_ringing(timeout_seconds)

    def interrupt(self) -> None:
        self._listening.inbox.interrupt()

    # -- life ---------------------------------------------------------------------------------

    def come_to_rest(self) -> bool:
        return self._session.come_to_rest(_REST_SECONDS)

    def go_on(self) -> None:
        self._session.go_on()

    def forget_after_fork(self) -> None:
        self.news.clear()
        parts = [self._own.forget_after_fork, self._session.forget_after_fork]
        forking.run_all([*parts, self._listening.inbox.let_go, self._start])

    def bury_ended(self) -> None:
        """Give back what those of this machine had who have ended, and of whom nobody told."""
        self._session.bury_ended()

    def close(self) -> None:
        if self._session.is_asking:
            # A signal handler closes it in the middle of an operation, which has to end first.
            background.start(self._close_at_last)
            return
        with self._closing:
            if not self.closed:
                self._close()

    def _close(self) -> None:
        try:
            self._session.leave()
        finally:
            self.closed = True
            forsake(self._own.values())
            self._own.clear()
            self._listening.inbox.close()

    def _close_at_last(self) -> None:
        try:
            self.close()
        except StoreUnavailable as error:
            journal.log().warning("could not say goodbye to the store: %s", error)

    def _check(self, *, patient: bool) -> None:
        """Nothing is asked of a server that somebody cannot wait for."""
        if not patient:
            raise WouldBlock

    def _wrap_up(self) -> None:
        """Give back what was given back from inside an operation; if not now, after the next."""
        if self._is_wrapping_up:
            return
        self._is_wrapping_up = True
        try:
            while self._left_over:
                first = self._left_over[0]
                self.release(*first)
                # After it: a release that is repeated does nothing, if Ctrl-C strikes in between.
                if self._left_over and self._left_over[0] is first:
                    del self._left_over[0]
        except StoreUnavailable:
            pass
        finally:
            self._is_wrapping_up = False

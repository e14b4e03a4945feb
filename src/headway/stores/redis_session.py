"""One process on one server: who it is there, that it lives, and what it asks.

Whatever is asked is answered by the server that knows us. One that does not, because it lost
what it knew, is another server now, or has taken us for dead, is told first what we hold and
wait for.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import TYPE_CHECKING

from headway import clocks
from headway.errors import StoreUnavailable
from headway.stores.base import new_holder_id
from headway.stores.heart import Heart
from headway.stores.neighbours import NAME_LENGTH
from headway.stores.processes import own_command
from headway.stores.redis_link import Unreached
from headway.stores.redis_rows import (
    card,
    decision_from,
    described,
    packed,
    ticket_from,
    ticket_row,
    unpacked,
)
from headway.stores.redis_script import DATA_FORMAT
from headway.tickets import Granted, Revoked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from headway.config import Settings
    from headway.stores.home_record import HomeRecord
    from headway.stores.own_tickets import OwnTickets
    from headway.stores.redis_link import Link
    from headway.stores.redis_terms import KnownTerms
    from headway.tickets import Ticket

# So often a holder is heard before it would be taken for dead.
_BEATS = 3
# Idle keys are forgotten when so many new ones have come.
_MANY_KEYS = 8192
# Two clocks that differ by less are taken for one.
_SAME_CLOCK_SECONDS = 0.01


class Session:
    """A holder, and its conversation with the server."""

    def __init__(
        self,
        settings: Settings,
        link: Link,
        own: OwnTickets,
        terms: KnownTerms,
        record: HomeRecord,
        *,
        on_buried: Callable[[Ticket, str], None],
        on_free: Callable[[], None],
        on_unheard: Callable[[Ticket, float], None],
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._link, self._own, self._terms = settings, link, own, terms
        self._record = record
        self._on_buried, self._on_free, self._clock = on_buried, on_free, clock
        self._on_unheard = on_unheard
        self._heart = Heart(f"{link.name} {link.tag!r}", self.pause_seconds)
        self.id = self._heart.id or new_holder_id(NAME_LENGTH)
        self._connection = link.connect()
        # What the server calls the present state of its knowledge.
        self.epoch = ""
        # How often it was told what we hold and wait for.
        self.announcements = 0
        # The server's clock at the last answer.
        self.now = 0.0
        # How many seconds it is ahead of the time of day here.
        self.ahead_seconds = 0.0
        # How far it is ahead of this machine's: the same for all processes of it, so that what
        # came in an order stays in it.
        self._clock_offset = 0
        # Whether the last shortcut was one: then the next is likely to be, and is asked for alone.
        self._is_usual = False
        # Until when this process is surely not taken for dead, by the boot clock of its machine.
        self._heard_until = float("inf")
        self._is_silence_told = False
        # How long it lets nobody in, because it may have lost what it knew.
        self.settling_seconds: float | None = None
        # What others are told while this process, or its command, is stopped.
        self._stopped = ""

    @property
    def is_asking(self) -> bool:
        """Whether this very thread is in the middle of asking something."""
        return self._connection.lock._is_owned()  # noqa: SLF001

    def ask(self, name: bytes, *arguments: object, shortcut: Sequence[bytes] = ()) -> Any:
        """Have an operation done; its answer. The shortcut's arguments say the same, briefly."""
        return unpacked(self.look(name, *arguments, shortcut=shortcut))

    def look(
        self,
        name: bytes,
        *arguments: object,
        shortcut: Sequence[bytes] = (),
        deadline: float | None = None,
    ) -> Any:
        """The same for those that answer with what is kept."""
        if self.is_asking:
            raise StoreUnavailable(
                self._link.name,
                "asked for from inside one of its own operations (a signal handler?)",
            )
        try:
            answer = self._look(name, arguments, shortcut, deadline or self._link.deadline())
            self._on_free()
        except BaseException:  # Ctrl-C, before all of the answer was taken in
            self.has_gap = True
            raise
        return answer

    @property
    def has_gap(self) -> bool:
        """Whether something may have been decided about our tickets that we do not know."""
        return self._connection.has_gap

    @has_gap.setter
    def has_gap(self, is_so: bool) -> None:
        self._connection.has_gap = is_so

    def doubt(self) -> None:
        """Have the server say again which one it is, before anything else is asked."""
        self._connection.is_doubted = True

    def _look(
        self,
        name: bytes,
        arguments: Sequence[object],
        shortcut: Sequence[bytes],
        deadline: float,
    ) -> Any:
        is_brief = bool(shortcut) and self._is_usual
        answer = None
        while True:
            told = None if is_brief else arguments
            words = partial(self._words, name, told, shortcut)
            answer = self._operate(words, deadline, is_first=answer is None)
            if isinstance(answer, bytes):
                self._is_usual = True
                return answer  # nothing else happens on a shortcut
            if shortcut:
                self._is_usual = is_brief = False
            if answer[0] == b"ok":
                break
            if answer[0] != b"more":
                self.announce(deadline)
        _, result, news, now, buried, terms_version, settling_seconds = answer
        self._see_clock(now)
        self.settling_seconds = settling_seconds or None
        self._terms.seen(terms_version)
        self._take_note(unpacked(news))
        for whose, ticket_id, blob in zip(*[iter(buried)] * 3, strict=True):
            self._on_buried(ticket_from(ticket_id, blob), described(whose))
        return result

    def _operate(
        self, words: Callable[[], Sequence[bytes]], deadline: float, *, is_first: bool = False
    ) -> Any:
        try:
            answer = self._connection.operate(words, deadline)
        except Unreached as error:
            if is_first:
                raise
            # What was asked before this may have been done.
            raise self._link.unavailable(error.reason) from None
        if answer[0] == b"newer":
            raise self._link.unavailable(
                f"its data was written by a newer Headway (format {answer[1]}, this one knows"
                f" {DATA_FORMAT}); update Headway on this machine, or set another store.namespace",
                is_reached=False,
            )
        if answer[0] == b"late":
            raise self._link.unavailable("it has heard from a later connection of this process")
        return answer

    def _words(
        self, name: bytes, arguments: Sequence[object] | None, shortcut: Sequence[bytes] = ()
    ) -> tuple[bytes, ...]:
        settings, server, version = self._settings, self._connection.server, self._terms.version
        everything = b""
        if arguments is not None:
            bounds = settings.max_waiting, settings.max_cooling_seconds
            everything = packed(
                (self.epoch, arguments, *bounds, server, _MANY_KEYS, settings.lease_seconds)
            )
        seal = b"%b %b %d" % (self.epoch.encode(), server.encode(), version)
        number = b"%d" % self._connection.number
        return name, everything, self.id.encode(), seal, number, *shortcut

    def _take_note(self, rows: list[Any]) -> None:
        for ticket_id, row in rows:
            self.take_note(ticket_id, row)

    def take_note(self, ticket_id: str, row: list[Any]) -> None:
        """Pass on what was decided about one of our tickets, unless that may be over by now.

        A grant that is read late may have been lost since: its block must not begin. Nor must one
        of which only the loss is known. In both cases the server is asked, and has it queue again.
        """
        decision = decision_from(ticket_id, row)
        is_lost = isinstance(decision, Revoked) and decision.token > 0
        is_late = isinstance(decision, Granted) and self.is_unheard
        if (is_lost or is_late) and self._own.waits(ticket_id):
            self.has_gap = True
        else:
            self._own.decided(decision)

    def _see_clock(self, now: bytes) -> None:
        self.now = float(now)
        ahead = self.now - time.time()
        # A small difference is the time that the answer took: what screens show must not jump.
        if abs(ahead - self.ahead_seconds) > _SAME_CLOCK_SECONDS:
            self.ahead_seconds = ahead

    def server_time(self) -> float:
        """The time of day by the server's clock."""
        return time.time() + self.ahead_seconds

    def clock_offset(self) -> int:
        """How many microseconds the server's clock is ahead of the one that arrivals have here."""
        if not self.epoch:
            self.look(b"version")  # meets it
        return self._clock_offset

    # -- being known ------------------------------------------------------------------------

    def announce(self, deadline: float | None = None) -> None:
        """Say who we are, what we hold and what we wait for; and what we know of the limits.

        Tickets bring the limits of their keys, so those of the server are learned first.
        Who has to say so again may speak to a server that is another one by now, and would take
        us for dead instead of believing us.
        """
        deadline = self._link.deadline() if deadline is None else deadline
        is_new = not self.epoch
        if not is_new:
            self.doubt()
        self.announcements += 1  # before it: who is given something meanwhile sees that
        while True:
            started = clocks.boot_seconds()
            answer = self._operate(self._announcement, deadline)
            kind, *told = unpacked(answer[1])
            if kind == "known":
                break
            self._take_note(unpacked(answer[2]))
            self._terms.learn(*told)
        self.epoch, lost, is_alone, terms_version, offset, requeued = told
        for ticket_id, token in requeued:
            self._own.requeued(ticket_id, token)
        # After it: whoever is heard believes the grants that it reads.
        self._heard_until = started + self._settings.lease_seconds
        self._see_clock(answer[3])
        self._clock_offset = int(offset)
        self._terms.doubt(self.epoch)
        self._take_note([*lost, *unpacked(answer[2])])
        self._heart.start(self)
        try:
            self._terms.bring()
        except StoreUnavailable:
            pass  # tried again before the next request, and with the next beat
        if is_new and is_alone:
            self._terms.forget_offers(terms_version)

    def _announcement(self) -> tuple[bytes, ...]:
        if not self.epoch:  # what runs already goes on, whatever the server is set to
            self._link.refuse_eviction(self._connection.eviction)
        tickets = [
            (ticket_row(each), 0 if each.at else each.token, self._terms.route(each.path))
            for each in self._own.alive()
        ]
        arguments = (
            self._connection.server,
            self._card(),
            self._settings.lease_seconds,
            new_holder_id(),
            tickets,
            self._terms.epoch,
            self._terms.version,
            bool(tickets) or self._terms.knows_any,
            self._terms.has_more,
            clocks.boot_name(),
            int(self._clock() * 1e6),
            self._own.in_motion(),
            *self._record.tokens(),
        )
        return self._words(b"announce", arguments)

    def introduce(self, stopped: str) -> None:
        """Have others see the present command line of this process, and whether it is stopped."""
        self._stopped = stopped
        self.look(b"introduce", self._card())

    def _card(self) -> str:
        host, home = os.uname().nodename, self._settings.home
        lease_seconds = self._settings.lease_seconds
        return card(os.getpid(), host, own_command(), home, lease_seconds, self._stopped)

    @property
    def pause_seconds(self) -> float:
        """How long it is from one beat to the next."""
        return self._settings.lease_seconds / _BEATS

    @property
    def lifeline(self) -> int | None:
        """The descriptor whose lock the processes of this machine know us by."""
        return self._heart.lifeline

    def beat(self, orphans: Sequence[str] = ()) -> None:
        """Be heard; and so are those who cannot speak for what they guard any more."""
        seconds, known = self._settings.lease_seconds, self._own.count_alive()
        started, deadline = clocks.boot_seconds(), self._link.deadline()
        if self._heard_until > started:  # the heart has to notice when it is over
            deadline = min(deadline, time.monotonic() + self._heard_until - started)
        brief = () if orphans else (b"%r" % seconds, b"%d" % known)
        has_all, version = unpacked(
            self.look(b"beat", seconds, orphans, known, shortcut=brief, deadline=deadline)
        )
        self._heard_until, self._is_silence_told = started + seconds, False
        if not has_all:
            self.has_gap = True  # the server has fewer of our tickets: a message, or rows, are lost
        self._terms.seen(version)
        self._terms.keep_up()

    @property
    def is_unheard(self) -> bool:
        """Whether the server may take this process for dead: it was not reached for too long."""
        return clocks.boot_seconds() > self._heard_until

    def note_silence(self) -> None:
        """A beat has failed; if it is one too many, tell whose slots may be others' by now."""
        if self.is_unheard and not self._is_silence_told:
            self._is_silence_told = True
            for ticket in self._own.alive():
                if ticket.at is None:
                    self._on_unheard(ticket, self._settings.lease_seconds)

    def bury_ended(self) -> None:
        """Tell of all who have ended on this machine."""
        self._heart.bury_ended(self)

    def bury(self, holder: str) -> None:
        """One of this machine has ended, and the server need not wait for that to show."""
        self.look(b"bury", holder)

    # -- the end ------------------------------------------------------------------------------

    def come_to_rest(self, seconds: float) -> bool:
        """Before a fork: ask nothing until ``go_on``."""
        return self._connection.lock.acquire(True, seconds)

    def go_on(self) -> None:
        self._connection.lock.release()

    def leave(self) -> None:
        """Give everything back, and be a stranger from now on."""
        try:
            if self.epoch:
                self.ask(b"leave")
        finally:
            self._connection.close()
            self._heart.stop()

    def forget_after_fork(self) -> None:
        """In a forked child: all of it is the parent's."""
        self._heart.forget()

"""One process on one server: who it is there, that it lives, and what it asks.

Whatever is asked is answered by the server that knows us. One that does not, because it lost
what it knew, is another server now, or has taken us for dead, is told first what we hold and
wait for.
"""

from __future__ import annotations

import os
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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from headway.config import Settings
    from headway.stores.own_tickets import OwnTickets
    from headway.stores.redis_link import Link
    from headway.stores.redis_terms import KnownTerms
    from headway.tickets import Ticket

# So often a holder is heard before it would be taken for dead.
_BEATS = 3
# Idle keys are forgotten when so many new ones have come.
_MANY_KEYS = 8192


class Session:
    """A holder, and its conversation with the server."""

    def __init__(
        self,
        settings: Settings,
        link: Link,
        own: OwnTickets,
        terms: KnownTerms,
        *,
        on_buried: Callable[[Ticket, str], None],
        on_free: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._link, self._own, self._terms = settings, link, own, terms
        self._on_buried, self._on_free, self._clock = on_buried, on_free, clock
        self._heart = Heart(f"{link.name} {link.tag!r}", self.pause_seconds)
        self.id = self._heart.id or new_holder_id(NAME_LENGTH)
        self._connection = link.connect()
        # What the server calls the present state of its knowledge.
        self._epoch = ""
        # How often it was told what we hold and wait for.
        self.announcements = 0
        # The server's clock at the last answer.
        self.now = 0.0
        # How far it is ahead of this machine's: the same for all processes of it, so that what
        # came in an order stays in it.
        self._clock_offset = 0
        # Whether the last shortcut was one: then the next is likely to be, and is asked for alone.
        self._is_usual = False
        # How long it lets nobody in, because it may have lost what it knew.
        self.settling_seconds: float | None = None

    @property
    def is_asking(self) -> bool:
        """Whether this very thread is in the middle of asking something."""
        return self._connection.lock._is_owned()  # noqa: SLF001

    def ask(self, name: bytes, *arguments: object, shortcut: Sequence[bytes] = ()) -> Any:
        """Have an operation done; its answer. The shortcut's arguments say the same, briefly."""
        return unpacked(self.look(name, *arguments, shortcut=shortcut))

    def look(self, name: bytes, *arguments: object, shortcut: Sequence[bytes] = ()) -> Any:
        """The same for those that answer with what is kept."""
        if self.is_asking:
            raise StoreUnavailable(
                self._link.name,
                "asked for from inside one of its own operations (a signal handler?)",
            )
        try:
            answer = self._look(name, arguments, shortcut)
        except BaseException:  # Ctrl-C, before all of the answer was taken in
            self.has_gap = True
            raise
        self._on_free()
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

    def _look(self, name: bytes, arguments: Sequence[object], shortcut: Sequence[bytes]) -> Any:
        deadline, is_brief = self._link.deadline(), bool(shortcut) and self._is_usual
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
        self.now, self.settling_seconds = float(now), settling_seconds or None
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
                (self._epoch, arguments, *bounds, server, _MANY_KEYS, settings.lease_seconds)
            )
        seal = b"%b %b %d" % (self._epoch.encode(), server.encode(), version)
        number = b"%d" % self._connection.number
        return name, everything, self.id.encode(), seal, number, *shortcut

    def _take_note(self, rows: list[Any]) -> None:
        for ticket_id, row in rows:
            self._own.decided(decision_from(ticket_id, row))

    def clock_offset(self) -> int:
        """How many microseconds the server's clock is ahead of the one that arrivals have here."""
        if not self._epoch:
            self.look(b"version")  # meets it
        return self._clock_offset

    # -- being known ------------------------------------------------------------------------

    def announce(self, deadline: float | None = None) -> None:
        """Say who we are, what we hold and what we wait for.

        Who has to say so again may speak to a server that is another one by now, and would take
        us for dead instead of believing us.
        """
        deadline = self._link.deadline() if deadline is None else deadline
        is_new = not self._epoch
        if not is_new:
            self.doubt()
        self.announcements += 1  # before it: who is given something meanwhile sees that
        answer = self._operate(self._announcement, deadline)
        self._epoch, lost, is_alone, terms_version, offset = unpacked(answer[1])
        self._clock_offset = int(offset)
        self._take_note([*lost, *unpacked(answer[2])])
        self._heart.start(self)
        if is_new and is_alone:
            self._terms.forget_offers(terms_version)

    def _announcement(self) -> tuple[bytes, ...]:
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
            *self._terms.brought(),
            self._connection.uptime_seconds,
            clocks.boot_name(),
            int(self._clock() * 1e6),
            self._own.in_motion(),
        )
        return self._words(b"announce", arguments)

    def introduce(self) -> None:
        """Have others see the present command line of this process."""
        self.look(b"introduce", self._card())

    def _card(self) -> str:
        host, home = os.uname().nodename, self._settings.home
        return card(os.getpid(), host, own_command(), home)

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
        seconds = self._settings.lease_seconds
        self.look(b"beat", seconds, orphans, shortcut=() if orphans else [b"%r" % seconds])

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
            if self._epoch:
                self.ask(b"leave")
        finally:
            self._connection.close()
            self._heart.stop()

    def forget_after_fork(self) -> None:
        """In a forked child: all of it is the parent's."""
        self._heart.forget()

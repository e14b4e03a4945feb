"""What a store is: few operations, each atomic, none waiting for capacity.

Only the governor waits. What an operation decided about other tickets of the
same process lands in ``news``; the owners of tickets in other processes are
woken by the store itself, after its commit.
"""

from __future__ import annotations

import os

from headway.errors import HeadwayError
from headway.tickets import Revoked, Withdrawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol

    from headway.config import Settings
    from headway.limits import Line, Terms
    from headway.stores.book import KeyState
    from headway.stores.repair import Correction
    from headway.tickets import Answer, Decision, Ticket

    class Store(Protocol):
        """Tickets, leases and limits. Thread-safe; bounded in time by ``StoreUnavailable``.

        With ``patient=False`` an operation that would have to wait for the store
        itself raises ``WouldBlock`` at once and has done nothing.
        """

        name: str
        news: deque[Decision]
        # Whether other processes decide about our tickets, so that someone must listen.
        shared: bool
        # Whether every operation asks a server, so that a loop had better leave it to a thread.
        distant: bool
        # Where limits stand that people set in it: in the file of the home, or in the store itself.
        source: str
        # Called with each ticket of a dead holder and that holder's description.
        on_reclaimed: Callable[[Ticket, str], None]
        # Called with each lease that may be another's by now, and for how long we were not heard.
        on_unheard: Callable[[Ticket, float], None]

        @property
        def lifeline(self) -> int | None:
            """The descriptor whose lock says that this process lives, if that is how it is told."""

        def introduce(self, stopped: str = "") -> None:
            """Let others see the present command line of this process, and that it is stopped.

            ``stopped`` is what ``stores/stopped.py`` writes.
            """

        def new_id(self, name: str = "") -> str:
            """An id for a ticket of this process, ending in a number or in the name given."""

        def place(self, ticket: Ticket, *, arrival: int, since: float) -> None:
            """Give a new ticket the place in line that its owner had before."""

        def request(self, ticket: Ticket, *, wait: bool, patient: bool = True) -> Answer:
            """Grant the ticket, put it in line, or refuse it."""

        def release(self, ticket: Ticket, held_seconds: float, *, patient: bool = True) -> bool:
            """Take our ticket off the store, granted or waiting; true if it was a lease.

            Safe to repeat, and harmless for a ticket that is gone or not ours.
            """

        def withdraw(self, ticket: Ticket, *, patient: bool = True) -> Decision | None:
            """Leave the line; or learn what was decided before that (a grant stays granted)."""

        def is_lost(self, ticket: Ticket) -> bool:
            """Find out whether a lease of ours was taken back, and take note of it if so."""

        @property
        def is_unheard(self) -> bool:
            """Whether our leases may be others' by now: the store was not reached for too long."""

        def own_ticket(self, ticket_id: str) -> Ticket | None:
            """A ticket of this process that has not been released."""

        def own_tickets(self) -> list[Ticket]:
            """All of them, as far as is known here."""

        def cancel(self, ticket_id: str) -> bool:
            """End anyone's waiting ticket; false if it does not wait."""

        def revoke(self, ticket_id: str, reason: str) -> bool:
            """Take anyone's lease back; false if there is none."""

        def cool_down(
            self, key: str, seconds: float | None, reason: str, *, jitter: float
        ) -> float:
            """Leave a key alone, for everyone; how many seconds that will last.

            ``seconds`` is None if nobody said for how long; ``jitter`` is from 0 to 1.
            """

        def end_cool_down(self, key: str) -> bool:
            """Let everyone in again at once; false if the key was not left alone."""

        def prove(self, ticket: Ticket) -> None:
            """Our lease was answered: if it was the probe after a cool-down, let the others in."""

        def stand_back(self, ticket: Ticket) -> None:
            """Our lease will have no answer: if it was the probe, let the next one try."""

        def tend(self) -> None:
            """Let in whom only time has kept out."""

        def due_seconds(self) -> float | None:
            """How long until there is something to tend to, for a store that nobody listens to."""

        def terms(self) -> Terms: ...

        def set_terms(
            self, terms: Terms, *, expected: Terms, also: Callable[[], None] | None = None
        ) -> bool:
            """Replace the terms if they are still the expected ones, and do ``also`` with it."""

        def follow_file(self, known: Settings | None = None) -> list[Line]:
            """Put in force what the home's file says now; the lines that are new by that.

            ``known`` was read from the file just now: if it is in force, nothing is read again.
            """

        def survey(self, path: Sequence[str]) -> list[KeyState]:
            """The state of these keys now."""

        def census(self) -> Census:
            """Everything, at one instant."""

        def outlook(self, ticket: Ticket) -> Outlook | None:
            """Where a waiting ticket of ours stands; nothing if it waits no more."""

        def positions(self, tickets: Iterable[Ticket]) -> dict[str, int]:
            """The places of many waiting tickets of ours in one look, for those that wait."""

        def ahead(self, key: str, rank: int) -> int:
            """How many wait at a key before this rank, without those for jobs of our own board."""

        def bystanders(self) -> list[tuple[str, int]]:
            """Where all others wait, whom our own board does not know: the key, and the rank."""

        def version(self) -> int:
            """A number that differs when anything may have changed."""

        def repair(self) -> list[Correction]:
            """Recompute all counts from the tickets at one instant; those that were wrong.

            Tickets of dead holders are given back first, and tickets that fit afterwards are
            granted. Leases and ranks stay as they are. Without wrong counts nothing changes.
            """

        def listen(self, timeout_seconds: float) -> None:
            """Wait for news from other processes, for at most this long."""

        def doze(self, timeout_seconds: float) -> bool:
            """Sleep until there is a message that nobody listens for; whether there is one."""

        def interrupt(self) -> None:
            """Make ``listen`` or ``doze`` return."""

        def come_to_rest(self) -> bool:
            """Before a fork: have nothing under way until ``go_on``; false if that takes long."""

        def go_on(self) -> None:
            """After a fork, in the parent."""

        def forget_after_fork(self) -> None:
            """In a forked child: be a new holder, and leave the parent's alone."""

        @property
        def closed(self) -> bool:
            """Whether closing is done."""

        def close(self) -> None:
            """Give back everything that this process holds or waits for, and tell it lost.

            In the middle of an operation of this very thread (a signal handler) that is
            left to the operation, on its way out. Safe to repeat.
            """


class WouldBlock(Exception):  # noqa: N818 - an answer between the store and the governor
    """The store is busy; ask again from a thread that may wait for it."""


class StoreClosed(HeadwayError):  # noqa: N818 - to callers it is a HeadwayError
    """``close`` was called; whatever this process held or waited for was given back."""

    def __str__(self) -> str:
        return "this governor is closed; make a new one"


class Holder:
    """A process that owns tickets and leases."""

    __slots__ = ("command", "host", "id", "lease_seconds", "pid", "stopped")

    def __init__(
        self,
        id: str,  # noqa: A002
        pid: int,
        host: str,
        command: str,
        *,
        lease_seconds: float | None = None,
        stopped: str = "",
    ) -> None:
        self.id, self.pid, self.host, self.command = id, pid, host, command
        # On a server: how long it may be silent, by its own settings.
        self.lease_seconds = lease_seconds
        # What it says while it is stopped, as ``stores/stopped.py`` writes it.
        self.stopped = stopped


class Census:
    """One look at a whole store."""

    __slots__ = ("holders", "leases", "loans", "states", "stopped", "terms", "waiting")

    def __init__(
        self,
        *,
        terms: Terms,
        states: Iterable[KeyState],
        leases: Iterable[Ticket],
        waiting: Iterable[Ticket],
        loans: Iterable[tuple[str, str, str]],
        holders: Iterable[Holder],
    ) -> None:
        self.terms = terms
        self.states = {state.key: state for state in states}
        self.leases, self.waiting, self.loans = list(leases), list(waiting), list(loans)
        self.holders = {holder.id: holder for holder in holders}
        # Those who left their line when they were stopped, each at the key where it stood.
        self.stopped: list[Ticket] = []


class Outlook:
    """Where one waiting ticket stands: at which key, in which place, behind whom."""

    __slots__ = ("holders", "leases", "position", "state")

    def __init__(
        self,
        *,
        state: KeyState,
        position: int,
        leases: Iterable[Ticket],
        holders: Iterable[Holder],
    ) -> None:
        self.state, self.position = state, position
        self.leases = list(leases)
        self.holders = {holder.id: holder for holder in holders}


def new_holder_id(length: int = 6) -> str:
    """A short name for a holder that no other one has: five random bits for each letter."""
    return "".join("abcdefghijkmnpqrstuvwxyz23456789"[byte & 31] for byte in os.urandom(length))


def forsake(tickets: Iterable[Ticket]) -> None:
    """Let those who hold or wait know that it is over, before anyone else is served."""
    for ticket in list(tickets):
        if ticket.is_decided and ticket.at is None:
            ticket.verdict = Revoked(ticket.id, "its governor was closed")
            ticket.ended = True
        elif ticket.is_decided:
            ticket.verdict = Withdrawn(ticket.id)


def say_nothing(ticket: Ticket, detail: object) -> None:
    """What a store does with news of its tickets until somebody wants to hear of them."""

"""The tickets of this process, and what others have decided about them."""

from __future__ import annotations

import _thread
import time

from headway.tickets import Granted, Revoked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from headway.stores.home_record import HomeRecord
    from headway.tickets import Decision, Ticket


class OwnTickets(dict[str, "Ticket"]):
    """All that was asked for and not given back, by id. What is decided lands in ``news``."""

    def __init__(self, news: deque[Decision]) -> None:
        super().__init__()
        self._news = news
        # Whose clock tells since when they are held: on a server, the server's.
        self.clock: Callable[[], float] = time.time
        # Grants that were told before the answer to the request was read, by another thread.
        self._early: dict[str, Granted] = {}
        # Tokens of grants that ended before they were known here, of tickets that wait again.
        self._void: dict[str, int] = {}
        # Those that somebody is giving back, or taking out of the line, at this moment.
        self.leaving: set[str] = set()
        # Re-entrant: a lease may be looked at by a signal handler in the middle of it.
        self._deciding = _thread.RLock()

    def forget_after_fork(self) -> None:
        """They are the parent's."""
        self.clear()
        self._early.clear()
        self._void.clear()
        self.leaving.clear()
        self._deciding = _thread.RLock()

    def alive(self) -> list[Ticket]:
        """Those that wait or hold, as far as we know, and are to go on doing so."""
        return [ticket for ticket in list(self.values()) if self.is_alive(ticket)]

    def is_alive(self, ticket: Ticket) -> bool:
        """Whether it is one of those."""
        return ticket.is_decided and ticket.id in self and ticket.id not in self.leaving

    def count_alive(self) -> int:
        """How many wait or hold and have not been ended by others, as far as we know."""
        return sum(1 for ticket in self.alive() if ticket.verdict is None)

    def in_motion(self) -> list[str]:
        """The others, of which an answer may be on its way: just asked for, or given back."""
        return [ticket.id for ticket in list(self.values()) if not self.is_alive(ticket)]

    def waiting(self, most: int) -> list[Ticket]:
        """Up to so many that still wait, as far as we know."""
        found = []
        for ticket in list(self.values()):
            if ticket.at is not None and ticket.verdict is None:
                found.append(ticket)
                if len(found) == most:
                    break
        return found

    def parked(self, ticket: Ticket, at: str) -> None:
        """Take note that one of them waits; that it does no more may have been told before."""
        ticket.at = at
        grant = self._early.pop(ticket.id, None)
        if grant is not None:
            self.decided(grant)

    def forget(self, ticket_id: str) -> None:
        """It was given back, or never came to be."""
        self.pop(ticket_id, None)
        self._early.pop(ticket_id, None)
        self._void.pop(ticket_id, None)

    def waits(self, ticket_id: str) -> bool:
        """Whether it waits, as far as is known here."""
        ticket = self.get(ticket_id)
        return ticket is not None and ticket.at is not None and ticket.verdict is None

    def requeued(self, ticket_id: str, token: int) -> None:
        """Take note that one was granted and lost unnoticed, and waits at its place again.

        The message of that grant may still arrive.
        """
        self._void[ticket_id] = token

    def _is_early(self, ticket: Ticket, grant: Granted) -> bool:
        """Keep a grant for whoever is about to learn that the ticket waits."""
        if ticket.is_decided:
            return False
        self._early[ticket.id] = grant
        # It may have learned it just now, and found nothing.
        return not ticket.is_decided or self._early.pop(ticket.id, None) is None

    def decided(self, decision: Decision) -> None:
        """Take note of what became of one of them, once."""
        ticket = self.get(decision.ticket_id)
        if ticket is None or ticket.verdict is not None:
            return
        if isinstance(decision, Granted):
            if decision.token == self._void.get(ticket.id):
                return
            if self._is_early(ticket, decision) or ticket.at is None:
                return
            # In this order: at no moment may it look like one that neither waits nor holds.
            ticket.token, ticket.since = decision.token, self.clock()
            ticket.at = None
            self._news.append(decision)
            return
        if isinstance(decision, Revoked) and 0 < decision.token < ticket.token:
            return  # it was granted anew since
        with self._deciding:  # who asks for it may read it at the same time as who is told
            if ticket.verdict is None:
                self._ended(ticket, decision)

    def _ended(self, ticket: Ticket, verdict: Decision) -> None:
        if isinstance(verdict, Revoked) and ticket.at is not None:
            # Granted and taken back before we heard of it: who waits must hear both.
            ticket.at = None
            self._news.append(Granted(ticket.id, ticket.token))
        ticket.verdict = verdict
        self._news.append(verdict)


class FencedTickets(OwnTickets):
    """Those on a server: what is written down in the home is larger than each of their tokens."""

    def __init__(self, news: deque[Decision], record: HomeRecord) -> None:
        super().__init__(news)
        self._record = record

    def decided(self, decision: Decision) -> None:
        if isinstance(decision, Granted):
            self._record.saw_token(decision.token)
        super().decided(decision)

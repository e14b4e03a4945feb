"""The places in line of the jobs that wait: a ticket each, and neither thread nor process."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING

from headway.tickets import Granted

if TYPE_CHECKING:
    from headway.jobs.rows import Wish
    from headway.tickets import Decision, Ticket
    from headway.turnstile import Turnstile


class Line:
    """The tickets of one worker. What was decided about them can be waited for."""

    def __init__(self, turnstile: Turnstile) -> None:
        self._turnstile = turnstile
        # Their tickets, and the arrival and priority that make the place.
        self._places: dict[int, tuple[Ticket, tuple[int, int]]] = {}
        self._decided: deque[tuple[int, Ticket, Decision]] = deque()
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Readable when something was decided."""
        return self._wake

    def __contains__(self, job: int) -> bool:
        return job in self._places

    def __len__(self) -> int:
        return len(self._places)

    def jobs(self) -> list[int]:
        """Those that stand here."""
        return list(self._places)

    def stand(self, wish: Wish) -> None:
        """Ask for what a job needs, at the place that is the job's own."""
        known = self._places.get(wish.id)
        if known is not None:
            if known[1] == (wish.arrival, wish.priority):
                return
            self.leave(wish.id)
        ticket = self._turnstile.new_ticket(wish.for_worker())
        self._turnstile.store.place(ticket, arrival=wish.arrival, since=wish.submitted_at)
        self._places[wish.id] = (ticket, (wish.arrival, wish.priority))
        try:
            decision = self._turnstile.queue_up(ticket, Place(self, wish.id, ticket))
        except BaseException:
            del self._places[wish.id]
            self.give_back(ticket)
            raise
        if decision is not None:
            self.decided(wish.id, ticket, decision)

    def leave(self, job: int) -> None:
        """The job does not wait any more; if it was granted something meanwhile, that goes back."""
        place = self._places.pop(job, None)
        if place is not None:
            self.give_back(place[0])

    def give_back(self, ticket: Ticket) -> None:
        """End a ticket, waiting or granted."""
        self._turnstile.switchboard.detach(ticket.id)
        self._turnstile.finish_or_retry(ticket, 0.0)

    def decided(self, job: int, ticket: Ticket, decision: Decision) -> None:
        """Take note, in whatever thread this is."""
        self._decided.append((job, ticket, decision))
        try:
            os.write(self._woken, b".")
        except BlockingIOError:
            pass  # it will be looked at anyway

    def news(self) -> list[tuple[int, Ticket, Decision]]:
        """What was decided since the last time, about jobs that still stand here."""
        try:
            os.read(self._wake, 4096)
        except BlockingIOError:
            pass
        found = []
        while self._decided:
            job, ticket, decision = self._decided.popleft()
            place = self._places.get(job)
            if place is None or place[0] is not ticket:
                continue  # it left, or moved to another place
            del self._places[job]
            if not isinstance(decision, Granted):
                self.give_back(ticket)
            found.append((job, ticket, decision))
        return found


class Place:
    """Who waits for the decision on one job's ticket."""

    __slots__ = ("_job", "_line", "_ticket")

    def __init__(self, line: Line, job: int, ticket: Ticket) -> None:
        self._line, self._job, self._ticket = line, job, ticket

    def wake(self, decision: Decision) -> bool:
        """Hand the decision over."""
        self._line.decided(self._job, self._ticket, decision)
        return True

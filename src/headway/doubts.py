"""Waits that may never end, as far as one look at a store shows.

More than the store refuses: also those whose slots belong to whoever started the waiting task or
process. That one may give them back, or wait for what it started.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headway.stores.book import new_state
from headway.stores.circles import MOST, Stuck
from headway.stores.processes import ancestors
from headway.tickets import job_of

if TYPE_CHECKING:
    from headway.stores.base import Census, Holder
    from headway.stores.book import KeyState
    from headway.tickets import Ticket


class Doubts:
    """The possible deadlocks of one census."""

    def __init__(self, census: Census) -> None:
        self._census = census
        self._leases = {lease.id: lease for lease in census.leases}
        self._loans = {(lender, key): borrower for lender, key, borrower in census.loans}
        self._lines: dict[str | None, list[Ticket]] = {}
        for ticket in census.waiting:
            self._lines.setdefault(ticket.at, []).append(ticket)
        self._family = _Family(census)
        self._stuck = Stuck(self, self._nodes())

    def _nodes(self) -> list[tuple[Ticket, list[Ticket]]]:
        nodes: list[tuple[Ticket, list[Ticket]]] = []
        for ticket in self._census.waiting:
            inside = self.inside(ticket)
            if inside or ticket.reserved:
                nodes.append((ticket, inside))
        return nodes[: 4 * MOST]

    def inside(self, ticket: Ticket) -> list[Ticket]:
        """The leases that may be waiting for what this ticket is for."""
        ids = dict.fromkeys((*ticket.within, *ticket.around, *ticket.parents))
        found = [self._leases[lease] for lease in ids if lease in self._leases]
        return found + [each for each in self.of_ancestors(ticket) if each.id not in ids]

    def of_ancestors(self, ticket: Ticket) -> list[Ticket]:
        """The leases of the processes that the ticket's process descends from.

        None for a job: its worker serves everyone, and who happened to start that waits for no job.
        """
        if job_of(ticket.id) is not None:
            return []
        return self._family.leases_above(ticket.holder)

    def suspects(self, ticket: Ticket) -> bool:
        """Whether a ticket may wait for ever."""
        return bool(self.inside(ticket)) and self._stuck.blocks(ticket) is not None

    def affects(self, ticket: Ticket) -> bool:
        """Whether it waits, perhaps behind others, for what may never become free."""
        return ticket.at in self._stuck.slots and self._stuck.blocks(ticket) is not None

    # -- what has to be seen of a store ------------------------------------------------------

    def key(self, key: str) -> KeyState:
        return self._census.states.get(key) or new_state(key, self._census.terms)

    def line(self, key: str, most: int) -> list[Ticket]:
        return self._lines.get(key, [])[:most]

    def lease(self, ticket_id: str) -> Ticket | None:
        return self._leases.get(ticket_id)

    def borrower(self, lender: str, key: str) -> str | None:
        return self._loans.get((lender, key))


class _Family:
    """Which holders descend from which, among the processes of this machine."""

    def __init__(self, census: Census) -> None:
        self._holders, host = census.holders, os.uname().nodename
        self._held: dict[int, list[Ticket]] = {}
        for lease in census.leases:
            holder = self._holders.get(lease.holder)
            if holder is not None and holder.host == host:
                self._held.setdefault(holder.pid, []).append(lease)
        self._host = host
        self._parents: dict[int, int] = {}
        self._above: dict[str, list[Ticket]] = {}

    def leases_above(self, holder_id: str) -> list[Ticket]:
        """What the ancestors of a holder hold."""
        found = self._above.get(holder_id)
        if found is None:
            holder = self._holders.get(holder_id)
            found = self._above[holder_id] = [] if holder is None else self._find(holder)
        return found

    def _find(self, holder: Holder) -> list[Ticket]:
        if holder.host != self._host or self._held.keys() <= {holder.pid}:
            return []
        above = ancestors(holder.pid, self._parents)
        return [lease for pid in above for lease in self._held.get(pid, ())]

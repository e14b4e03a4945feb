"""What can be seen of a namespace, by someone who changes nothing there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.stores.base import Census, Outlook
from headway.stores.book import new_state
from headway.stores.redis_rows import (
    decision_from,
    everyone_from,
    pairs,
    state_from,
    terms_from,
    ticket_from,
    unpacked,
)
from headway.stores.stopped import waiters

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headway.limits import Terms
    from headway.stores.book import KeyState
    from headway.stores.redis_session import Session
    from headway.tickets import Decision, Ticket


class Looks:
    """The looks of one holder."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def survey(self, path: Sequence[str]) -> list[KeyState]:
        blobs, admitted, terms = self._session.look(b"survey", list(path))
        known = terms_from(terms)
        return [
            self._new(key, known) if blob is None else self._shown(key, blob, times)
            for key, blob, times in zip(path, blobs, admitted, strict=True)
        ]

    def census(self) -> Census:
        look = self._session.look
        keys, everyone, waiting, loans, terms, spent, admitted = look(b"census")
        holders, leases = everyone_from(everyone)
        times = dict(zip(spent, admitted, strict=True))
        lent = [(place.decode().partition(" "), to.decode()) for place, to in pairs(loans)]
        in_line = [ticket_from(*each) for rows in waiting for each in pairs(rows)]
        stopped = waiters(holders)
        for ticket in (*in_line, *stopped):
            ticket.rank -= self._session.clock_offset()
        self._tell_by_own_clock([*leases, *in_line, *stopped])
        census = Census(
            terms=terms_from(terms),
            states=[
                self._shown(key.decode(), blob, times.get(key, ())) for key, blob in pairs(keys)
            ],
            leases=leases,
            waiting=sorted(in_line, key=lambda ticket: ticket.place),
            loans=[(lender, key, to) for (lender, _, key), to in lent],
            holders=holders,
        )
        census.stopped = stopped
        return census

    def outlook(self, ticket: Ticket) -> Outlook | None:
        found = self._session.look(b"outlook", ticket.id)
        if not found:
            return None
        at, blob, (times,), position, everyone = found
        key = at.decode()
        holders, leases = everyone_from(everyone)
        self._tell_by_own_clock(leases)
        return Outlook(
            state=self._shown(key, blob, times),
            position=position,
            leases=[lease for lease in leases if key in lease.path],
            holders=holders,
        )

    def _tell_by_own_clock(self, tickets: Iterable[Ticket]) -> None:
        """The moments of the server, as a clock on the wall here would have shown them.

        Whoever looks tells how long ago something was by its own clock.
        """
        for ticket in tickets:
            ticket.since -= self._session.ahead_seconds

    def positions(self, tickets: Iterable[Ticket]) -> dict[str, int]:
        found = self._session.look(b"positions", [ticket.id for ticket in tickets])
        return {ticket_id.decode(): int(position) for ticket_id, position in pairs(found)}

    def ahead(self, key: str, rank: int) -> int:
        return int(self._session.look(b"ahead", key, rank + self._session.clock_offset())[0])

    def bystanders(self) -> list[tuple[str, int]]:
        offset = self._session.clock_offset()
        found = pairs(self._session.look(b"bystanders"))
        return [(at.decode(), int(rank) - offset) for at, rank in found]

    def verdicts(self, ticket_ids: Sequence[str]) -> list[Decision]:
        found = self._session.look(b"verdicts", ticket_ids) if ticket_ids else []
        return [decision_from(*unpacked(message)) for message in found]

    def version(self) -> int:
        return int(self._session.look(b"version")[0])

    def _new(self, key: str, terms: Terms) -> KeyState:
        state = new_state(key, terms)
        state.settling_seconds = self._session.settling_seconds
        return state

    def _shown(self, key: str, blob: bytes, admitted: Iterable[bytes]) -> KeyState:
        """A key as it is now, for someone who only looks."""
        state = state_from(key, blob)
        state.look(self._session.now, [int(each) for each in admitted])
        state.settling_seconds = self._session.settling_seconds
        return state

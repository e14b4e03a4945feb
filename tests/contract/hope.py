"""Who of those that wait can still go on: worked out by letting everyone do what they can.

Shares nothing with the code that decides. There, all are taken for stuck and some set free;
here, nobody has got anywhere, and one after the other gets what it needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.contract.oracle import Picture

    from headway.tickets import Ticket


class Hope:
    """A picture in which everyone who can go on does so, gives back and goes away."""

    def __init__(self, now: Picture, asking: Ticket | None = None) -> None:
        self.now, self.asking = now, asking
        self.waiting = dict(now.waiting)
        if asking is not None:
            self.waiting[asking.id] = asking
            self.collected, self.stop = _collected(now, asking)
        self._play()

    def _play(self) -> None:
        while True:
            gone = [
                ticket.id
                for ticket in self.waiting.values()
                if (ticket.timed and ticket is not self.asking) or not self.blocked_at(ticket)
            ]
            if not gone:
                return
            for ticket_id in gone:
                del self.waiting[ticket_id]

    def blocked_at(self, ticket: Ticket) -> list[str]:
        """The keys on its way where it can never pass, as far as is known."""
        at = self.stop if ticket is self.asking else self.now.at[ticket.id]
        path = _path(ticket)
        ahead = path[path.index(at) :] if at else []
        return [key for key in ahead if self._blocks(ticket, key)]

    def _blocks(self, ticket: Ticket, key: str) -> bool:
        on_loan = (ticket.id, key) in self.now.borrowed or self._will_be_lent(ticket, key)
        if self._waits_for_probe(ticket, key, on_loan=on_loan):
            return True
        return not on_loan and not self._has_room(ticket, key)

    def _has_room(self, ticket: Ticket, key: str) -> bool:
        kept = self._kept(key)
        left = self.now.cap(key) - sum(kept.values())
        if not kept or ticket.weight > left:
            return not kept
        line = [i for i in self.now.order if self.now.at[i] == key]
        in_front = [
            self.now.waiting[i]
            for i in line
            if (self.now.ranks[i], i) < (ticket.rank, ticket.id) and self._is_at(ticket, key)
        ]
        return all(
            other.timed or other.weight <= left or self._will_be_lent(other, key)
            for other in in_front
        )

    def _is_at(self, ticket: Ticket, key: str) -> bool:
        """Whether it stands in line there; of one that just asks, where it would stop."""
        return key == (self.stop if ticket is self.asking else self.now.at[ticket.id])

    def _kept(self, key: str) -> dict[str, int]:
        """The slots on a key whose owners wait, and do not give up."""
        kept: dict[str, int] = {}
        for ticket in self.waiting.values():
            if ticket is self.asking:
                reserved = [k for k, lender in self.collected.items() if not lender]
                lent = [(ticket.id, k) for k, lender in self.collected.items() if lender]
            else:
                reserved = [k for i, k in self.now.reserved if i == ticket.id]
                lent = [(ticket.id, k) for i, k in self.now.borrowed if i == ticket.id]
                lent = [(i, k) for i, k in lent if k != self.now.at[ticket.id]]
            if key in reserved:
                kept[ticket.id] = ticket.weight
            if (ticket.id, key) in lent:
                owner = self._owner(self._lender_of(ticket, key), key)
                kept[owner.id] = owner.weight
            for lease in self._held_by_caller(ticket):
                if key in _path(lease):
                    owner = self._owner(lease, key)
                    kept[owner.id] = owner.weight
        return kept

    def _lender_of(self, ticket: Ticket, key: str) -> Ticket:
        if ticket is self.asking:
            return self.now.leases[self.collected[key]]
        return self.now.leases[self.now.borrowed[ticket.id, key]]

    def _owner(self, lease: Ticket, key: str) -> Ticket:
        while (lease.id, key) in self.now.borrowed:
            lease = self.now.leases[self.now.borrowed[lease.id, key]]
        return lease

    def _held_by_caller(self, ticket: Ticket) -> Iterable[Ticket]:
        own = [self.now.leases[i] for i in ticket.within if i in self.now.leases]
        if ticket is self.asking:
            return [*own, *[a for o in (ticket, *own) for a in self.now.ancestors(o)]]
        return own

    def _frozen(self) -> set[str]:
        callers = {o.id for t in self.waiting.values() for o in self._held_by_caller(t)}
        return callers | self.waiting.keys()

    def _will_be_lent(self, ticket: Ticket, key: str) -> bool:
        if not self.now.can_be_lent(ticket, key):
            return False
        lender, frozen = self.now.lender(ticket, key), self._frozen()
        assert lender is not None
        borrower = self.now.loans.get((lender.id, key))
        while borrower is not None:
            if borrower in frozen:
                return False
            borrower = self.now.loans.get((borrower, key))
        return True

    def _waits_for_probe(self, ticket: Ticket, key: str, *, on_loan: bool) -> bool:
        state = self.now.states.get(key)
        probe = None if state is None or state.cooldown is None else state.cooldown.probe
        if probe is None or probe not in self._frozen():
            return False
        return not on_loan or probe not in {a.id for a in self.now.ancestors(ticket)}


def _path(ticket: Ticket) -> list[str]:
    from tests.contract.oracle import path_of  # noqa: PLC0415 - it needs this file

    return path_of(ticket)


def _collected(now: Picture, asking: Ticket) -> tuple[dict[str, str], str]:
    """What a new ticket gets: each key and who lends it; and where it has to wait."""
    found: dict[str, str] = {}
    for key in _path(asking):
        lender = now.lender(asking, key)
        lends = lender is not None and now.can_be_lent(asking, key)
        if lends and lender is not None and (lender.id, key) not in now.loans:
            if not now.may_be_asked(key) and not now.is_part_of_the_probe(asking, key):
                return found, key
            found[key] = lender.id
        elif now.is_special(key):
            before = [i for i in now.order if now.at[i] == key and now.ranks[i] < asking.rank]
            if before or not now.is_open(key, asking.weight) or not now.may_be_asked(key):
                return found, key
            found[key] = ""
    return found, ""

"""Circles: waits that can never end, because those in the way wait themselves.

A ticket that was asked for from inside a lease keeps that lease from ending while it waits. If
the slots that it waits for are held only by such leases, directly or through others, nobody
of them can ever go on. Found out by assuming that all who may be stuck are, and setting free,
until nothing changes, each of them that would have room if all others gave theirs back.

What only time or a person ends (a pause, a cool-down, a budget) is no reason by itself: who
has no room after that is stuck all the same, and who has some is not.
"""

from __future__ import annotations

from headway.limits import UNCAPPED
from headway.stores.lending import ancestors_of, lender_of
from headway.tickets import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from headway.stores.book import Book, Sight
    from headway.stores.lending import Lending
    from headway.tickets import Ticket

    # A waiting ticket, and the leases that cannot end while it waits.
    Node: TypeAlias = tuple[Ticket, Iterable[Ticket]]

# So many are looked at. Whoever waits further back counts as one who will go on.
MOST = 256
# So many of those who stand in front of someone at a key.
MOST_IN_LINE = 64


class Circles:
    """Looks for them in a book whenever a ticket comes to wait."""

    def __init__(self, book: Book, lending: Lending) -> None:
        self._book, self._lending = book, lending

    def refusal(self, ticket: Ticket) -> Refused | None:
        """Refuse a ticket that has just come to wait, if that would never end.

        Its own leases are those it asks from within and all that these, and itself, stand
        inside of.
        """
        own = self._own_leases(ticket)
        if not own or not self._is_in_question(ticket, own.values()):
            return None
        nodes = [(ticket, own.values()), *self._others(ticket)]
        return Stuck(self._book, nodes).refusal(ticket)

    def _is_in_question(self, ticket: Ticket, own: Iterable[Ticket]) -> bool:
        """Whether one who waits has anything at all that the ticket may wait for.

        Mostly nobody has, such as where agents wait for a model, and this is much faster than
        to look at all who wait.
        """
        book = self._book
        ahead = set(_ahead(ticket))
        if any(book.key(key).reserved for key in ahead):
            ahead.update(key for other in book.parked_reserving(MOST) for key in _ahead(other))
        states = [book.key(key) for key in ahead]
        if any(state.cooldown is not None and state.cooldown.probe for state in states):
            return True
        limited = {state.key for state in states if state.cap < UNCAPPED}
        if any(not limited.isdisjoint(lease.path) for lease in own):
            return True
        return bool(limited) and book.insiders_have(limited, MOST)

    def victim(self) -> tuple[Ticket, Refused] | None:
        """Of those who can only wait for each other, the last to come; none if all can go on."""
        nodes = self._others()
        stuck = Stuck(self._book, nodes)
        inside = [ticket for ticket, leases in nodes if ticket.id in stuck.at and leases]
        if not inside:
            return None
        inside.sort(key=lambda ticket: ticket.place, reverse=True)
        # One who only waits for them is no part of it, and sending it away would not help.
        parts = (ticket for ticket in inside if self._is_part(ticket, nodes))
        victim = next(parts, inside[0])
        refusal = stuck.refusal(victim)
        assert refusal is not None
        return victim, refusal

    def _is_part(self, ticket: Ticket, nodes: list[Node]) -> bool:
        """Whether it could go on if it had nothing itself that others wait for."""
        others = [node for node in nodes if node[0] is not ticket]
        return Stuck(self._book, others).blocks(ticket) is None

    def _others(self, asking: Ticket | None = None) -> list[Node]:
        """Those who do not give up by themselves, and have something that others may wait for."""
        nodes: list[Node] = [
            (ticket, self._leases(ticket))
            for ticket in self._book.parked_insiders(MOST)
            if not ticket.timed and ticket is not asking
        ]
        known = [ticket for ticket, _ in nodes] + ([] if asking is None else [asking])
        if any(self._book.key(key).reserved for ticket in known for key in _ahead(ticket)):
            reserving = self._book.parked_reserving(MOST)
            nodes += [(t, ()) for t in reserving if not t.timed and t not in known]
        return nodes

    def _leases(self, ticket: Ticket) -> list[Ticket]:
        """What cannot end while it waits; on a loop that it blocks, also who is in front of it."""
        found = map(self._book.ticket, ticket.within)
        return [lease for lease in found if lease is not None]

    def _own_leases(self, ticket: Ticket) -> dict[str, Ticket]:
        own = {lease.id: lease for lease in self._lending.ancestors(ticket)}
        for lease in self._leases(ticket):
            own[lease.id] = lease
            own.update({ancestor.id: ancestor for ancestor in self._lending.ancestors(lease)})
        return own


class Stuck:
    """Which of these tickets can never go on, and at which key each of them."""

    def __init__(self, sight: Sight, nodes: Iterable[Node]) -> None:
        self._sight = sight
        self._nodes, self._lines = list(nodes), dict[str, "Sequence[Ticket]"]()
        # Who is stuck, and where.
        self.at: dict[str, str] = {}
        while True:
            self._freeze()
            self.at = {t.id: key for t, _ in self._nodes if (key := self.blocks(t)) is not None}
            if len(self.at) == len(self._nodes):
                return
            self._nodes = [node for node in self._nodes if node[0].id in self.at]

    def refusal(self, ticket: Ticket) -> Refused | None:
        """What to tell one of them, if it is stuck: the key, and the leases that block it."""
        key = self.at.get(ticket.id)
        if key is None:
            return None
        probe = self._probe(ticket, key)
        held_by = sorted(self.slots.get(key, ())) if probe is None else [probe]
        return Refused(ticket.id, "deadlock", key, tuple(held_by))

    def _freeze(self) -> None:
        """Take all that those have who may be stuck for what will never become free."""
        # The leases and tickets that will not end; and for each key what they take up there.
        self._frozen: set[str] = set()
        self.slots: dict[str, dict[str, int]] = {}
        for ticket, leases in self._nodes:
            self._frozen.add(ticket.id)
            for key in ticket.reserved:
                self.slots.setdefault(key, {})[ticket.id] = ticket.weight
            for key in ticket.borrowed.keys() - {ticket.at}:
                self._take(ticket, key)
            for lease in leases:
                self._frozen.add(lease.id)
                for key in lease.path if lease.at is None else _before(lease, ticket):
                    self._take(lease, key)

    def _take(self, ticket: Ticket, key: str) -> None:
        """Count the slot that a ticket has on a key: while it is on loan, the lender's."""
        owner = ticket
        while key in owner.borrowed:
            lender = self._sight.lease(owner.borrowed[key])
            if lender is None:
                break
            owner = lender
        self.slots.setdefault(key, {})[owner.id] = owner.weight

    def blocks(self, ticket: Ticket) -> str | None:
        """The first key where a ticket would wait for ever."""
        for key in _ahead(ticket):
            if self._probe(ticket, key) is not None:
                return key
            if key not in self.slots or key in ticket.borrowed:
                continue
            if self._has_room(ticket, key) or self._will_borrow(ticket, key):
                continue
            return key
        return None

    def _has_room(self, ticket: Ticket, key: str) -> bool:
        """Whether there will be room, also for a heavy one that stands in front of it."""
        state, taken = self._sight.key(key), sum(self.slots[key].values())
        if state.cap >= UNCAPPED:
            return True
        if taken + ticket.weight > state.cap:
            return False
        in_front = self._line(key) if key == ticket.at else ()
        return not any(
            taken + other.weight > state.cap
            and not other.timed
            and other.place < ticket.place
            and not self._will_borrow(other, key)
            for other in in_front
        )

    def _line(self, key: str) -> Sequence[Ticket]:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = self._sight.line(key, MOST_IN_LINE)
        return line

    def _will_borrow(self, ticket: Ticket, key: str) -> bool:
        """Whether an ancestor's slot carries the ticket, now or when a sibling brings it back."""
        lender = lender_of(self._sight, ticket, key)
        if lender is None or lender.weight < ticket.weight:
            return False
        borrower = self._sight.borrower(lender.id, key)
        while borrower is not None:
            if borrower in self._frozen:
                return False
            borrower = self._sight.borrower(borrower, key)
        return True

    def _probe(self, ticket: Ticket, key: str) -> str | None:
        """Who tries the key and will never be answered, if this one waits for that."""
        cooldown = self._sight.key(key).cooldown
        probe = None if cooldown is None else cooldown.probe
        if probe is None or probe not in self._frozen:
            return None
        is_part = any(ancestor.id == probe for ancestor in ancestors_of(self._sight, ticket))
        goes_on = key in ticket.borrowed or self._will_borrow(ticket, key)
        return None if is_part and goes_on else probe


def _before(other: Ticket, ticket: Ticket) -> list[str]:
    """The keys that one who waits as well has, or gets before the ticket."""
    first = other.at is not None and other.at == ticket.at and other.place < ticket.place
    return [*other.reserved, *([other.at] if first and other.at is not None else ())]


def _ahead(ticket: Ticket) -> tuple[str, ...]:
    """The keys that a waiting ticket has still to pass."""
    return ticket.path if ticket.at is None else ticket.path[ticket.path.index(ticket.at) :]

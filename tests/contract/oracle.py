"""What must be true of a store between any two operations, worked out from its census alone.

Both stores share the code that decides, so that comparing them cannot find a
mistake in it. This file shares nothing with that code: it reads who holds and
who waits, and does the sums again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract.hope import Hope
from tests.contract.houses import BOOST_SECONDS, MAX_COOLING_SECONDS

from headway.limits import UNCAPPED
from headway.tickets import Refused, Waiting

if TYPE_CHECKING:
    from headway.limits import Terms
    from headway.stores.base import Census
    from headway.tickets import Answer, Ticket


class Picture:
    """A census, sorted for checking. Taken at once: a store's tickets change later."""

    def __init__(self, census: Census) -> None:
        self.terms = census.terms
        self.states = census.states
        self.leases = {lease.id: lease for lease in census.leases}
        self.waiting = {ticket.id: ticket for ticket in census.waiting}
        self.order = [ticket.id for ticket in census.waiting]
        self.ranks = {ticket.id: ticket.rank for ticket in census.waiting}
        self.tokens = {lease.id: lease.token for lease in census.leases}
        self.loans = {(lender, key): borrower for lender, key, borrower in census.loans}
        self.loan_count = len(census.loans)
        self.borrowed = {(borrower, key): lender for lender, key, borrower in census.loans}
        self.reserved = {(ticket.id, key) for ticket in census.waiting for key in ticket.reserved}
        self.at = {ticket.id: ticket.at for ticket in census.waiting}
        self.used = {key: state.used for key, state in census.states.items()}
        self.held = {key: state.reserved for key, state in census.states.items()}
        self.promised = {key: state.promised for key, state in census.states.items()}
        self.spent = {key: state.spent for key, state in census.states.items()}

    def tickets(self) -> dict[str, Ticket]:
        return self.leases | self.waiting

    def cap(self, key: str) -> int:
        return cap_of(self.terms, key)

    def is_open(self, key: str, weight: int) -> bool:
        """Whether this much fits on the key now, whoever else waits for it."""
        taken = self.used.get(key, 0) + self.held.get(key, 0)
        return key not in self.terms.paused and taken + weight <= self.cap(key)

    def budget(self, key: str) -> int:
        return part_of(self.terms, key, "requests_per_minute") or UNCAPPED

    def may_be_asked(self, key: str) -> bool:
        """Whether neither a cool-down nor a budget stands in the way on the key."""
        state = self.states.get(key)
        cooldown = None if state is None else state.cooldown
        if cooldown is not None and (not cooldown.over or cooldown.probe is not None):
            return False
        return self._has_requests_left(key)

    def is_part_of_the_probe(self, ticket: Ticket, key: str) -> bool:
        """Whether someone may go on at a key because the one who tries it is round it."""
        state = self.states.get(key)
        cooldown = None if state is None else state.cooldown
        probe = None if cooldown is None else cooldown.probe
        round_it = [ancestor.id for ancestor in self.ancestors(ticket)]
        return probe in round_it and self._has_requests_left(key)

    def _has_requests_left(self, key: str) -> bool:
        return self.spent.get(key, 0) + self.promised.get(key, 0) < self.budget(key)

    def is_special(self, key: str) -> bool:
        """Whether nobody may pass the key without being counted."""
        state = self.states.get(key)
        cooling = state is not None and state.cooldown is not None
        limited = self.cap(key) < UNCAPPED or self.budget(key) < UNCAPPED
        return limited or cooling or key in self.terms.paused

    def lender(self, ticket: Ticket, key: str) -> Ticket | None:
        """The nearest ancestor of a ticket that holds the key."""
        holding = [lease for lease in self.ancestors(ticket) if key in path_of(lease)]
        return holding[0] if holding else None

    def ancestors(self, ticket: Ticket) -> list[Ticket]:
        """The leases that a ticket descends from, the nearest first."""
        found: dict[str, Ticket] = {}
        for parent in ticket.parents:
            lease = self.leases.get(parent)
            for one in (lease, *self.ancestors(lease)) if lease is not None else ():
                found.setdefault(one.id, one)
        return list(found.values())

    def can_be_lent(self, ticket: Ticket, key: str) -> bool:
        """Whether a slot of an ancestor could ever carry this ticket on the key."""
        lender = self.lender(ticket, key)
        return lender is not None and lender.weight >= ticket.weight


def path_of(ticket: Ticket) -> list[str]:
    """What a ticket counts on, in the order it collects: deepest first, then by name."""
    found = set()
    for key in ticket.keys:
        parts = key.split("/")
        found |= {"/".join(parts[: end + 1]) for end in range(len(parts))}
    return sorted(found, key=lambda key: (-len(key.split("/")), key))


def rank_of(ticket: Ticket) -> int:
    """A ticket's place in line: its arrival, less a head start for its priority."""
    return ticket.arrival - ticket.priority * int(BOOST_SECONDS * 1e6)


def cap_of(terms: Terms, key: str) -> int:
    """The limit of a key."""
    return part_of(terms, key, "slots") or (3 if key == "agent" else UNCAPPED)


def part_of(terms: Terms, key: str, part: str) -> int | None:
    """What the line says of a part of a key that mentions it and is exact furthest left."""
    best: tuple[list[bool], int] | None = None
    for line in terms.lines:
        wanted, given = line.pattern.split("/"), key.split("/")
        if (
            getattr(line, part) is None
            or len(wanted) != len(given)
            or any(want not in ("*", have) for want, have in zip(wanted, given, strict=True))
        ):
            continue
        exact = [want != "*" for want in wanted]
        if best is None or exact > best[0]:
            best = exact, getattr(line, part)
    return None if best is None else best[1]


def check(picture: Picture) -> None:
    """Everything that one look at a store can show to be wrong."""
    _the_counts_are_the_tickets(picture)
    _nothing_is_over(picture)
    _nobody_is_stranded(picture)
    _each_has_collected_what_lies_before(picture)
    _loans_are_sound(picture)
    _nobody_waits_for_ever(picture)
    _nobody_waits_in_a_circle(picture)


def _the_counts_are_the_tickets(now: Picture) -> None:
    assert not now.leases.keys() & now.waiting.keys(), "a ticket both runs and waits"
    places = [(rank_of(now.waiting[ticket_id]), ticket_id) for ticket_id in now.order]
    assert places == sorted(places), "the waiting are not in the order of their rank"
    keys = set(now.states) | {key for t in now.tickets().values() for key in path_of(t)}
    for key in keys:
        state = now.states.get(key)
        used = sum(
            lease.weight
            for lease in now.leases.values()
            if key in path_of(lease) and (lease.id, key) not in now.borrowed
        )
        reserved = sum(t.weight for t in now.waiting.values() if (t.id, key) in now.reserved)
        parked = [t for t in now.waiting.values() if now.at[t.id] == key]
        counted = (state.used, state.reserved, state.waiting) if state else (0, 0, 0)
        assert counted == (used, reserved, len(parked)), f"{key} does not count its tickets"
        promised = [t.id for t in now.waiting.values() if _has_passed(now, t, key)]
        assert now.promised.get(key, 0) == len(promised), f"{key} does not count its promises"
        if state is not None:
            assert state.budget == now.budget(key), f"{key} has another budget than its line says"
            assert state.cap == now.cap(key), f"{key} has another limit than its line says"
            assert state.paused == (key in now.terms.paused), f"{key} is paused or not"


def _has_passed(now: Picture, ticket: Ticket, key: str) -> bool:
    """Whether a ticket has taken the key and waits further on."""
    on_loan = (ticket.id, key) in now.borrowed and now.at[ticket.id] != key
    return (ticket.id, key) in now.reserved or on_loan


def _nothing_is_over(now: Picture) -> None:
    for key, state in now.states.items():
        if state.spent + state.promised > state.budget:
            assert not state.promised, f"a request is promised on {key}, whose budget is spent"
        if state.cooldown is not None:
            most = 1 if state.cooldown.over else 0
            assert state.promised <= most, f"a request is promised on {key}, which cools"
        if state.used + state.reserved > now.cap(key):
            assert not state.reserved, f"something is reserved on {key}, which is over its limit"
        if key in now.terms.paused:
            assert not state.reserved, f"something is reserved on {key}, which is paused"


def _nobody_is_stranded(now: Picture) -> None:
    heads: set[str] = set()
    for ticket_id in now.order:
        ticket, at = now.waiting[ticket_id], now.at[ticket_id]
        assert at is not None, f"{ticket_id} waits nowhere"
        fits = now.may_be_asked(at)
        if (ticket_id, at) in now.borrowed:
            fits = fits or now.is_part_of_the_probe(ticket, at)
            assert not fits, f"{ticket_id} has {at} on loan, could go on, and waits"
        if at not in heads:
            heads.add(at)
            fits = now.may_be_asked(at) and now.is_open(at, ticket.weight)
            assert not fits, f"{ticket_id} fits on {at} and waits"
        lender = now.lender(ticket, at)
        if lender is not None and lender.weight >= ticket.weight:
            assert (lender.id, at) in now.loans, f"{ticket_id} could borrow {at} and waits"


def _each_has_collected_what_lies_before(now: Picture) -> None:
    for ticket in now.waiting.values():
        path, at = path_of(ticket), now.at[ticket.id]
        assert at in path, f"{ticket.id} waits at a key that it does not need"
        before = path[: path.index(at)]
        for key in path:
            reserved = (ticket.id, key) in now.reserved
            borrowed = (ticket.id, key) in now.borrowed
            assert not (reserved and borrowed), f"{ticket.id} has {key} twice"
            if key not in before:
                assert not reserved, f"{ticket.id} has {key} before its turn"
                assert not borrowed or key == at, f"{ticket.id} borrows {key} before its turn"
            elif now.is_special(key):
                assert reserved or borrowed, f"{ticket.id} has passed {key} without taking it"


def _loans_are_sound(now: Picture) -> None:
    assert len(now.loans) == now.loan_count, "a slot is lent twice"
    assert len(now.borrowed) == now.loan_count, "a ticket borrows one key twice"
    for (lender_id, key), borrower_id in now.loans.items():
        lender, borrower = now.leases.get(lender_id), now.tickets().get(borrower_id)
        assert lender is not None, f"{lender_id} lends {key} and runs no more"
        assert borrower is not None, f"{borrower_id} borrows {key} and is gone"
        assert lender_id != borrower_id, f"{lender_id} lends to itself"
        assert key in path_of(lender), f"{lender_id} lends {key} and does not hold it"
        assert key in path_of(borrower), f"{borrower_id} borrows {key} and does not need it"
        assert borrower.weight <= lender.weight, f"{borrower_id} is heavier than its loan"


def _nobody_waits_for_ever(now: Picture) -> None:
    for ticket in now.waiting.values():
        for key in path_of(ticket):
            state = now.states.get(key)
            cooling = 0.0 if state is None else state.cooling_seconds or 0.0
            patient = "-job" in ticket.id or cooling <= MAX_COOLING_SECONDS
            assert patient, f"{ticket.id} waits for {key} for too long"
            if (ticket.id, key) not in now.borrowed and ticket.weight > now.cap(key):
                assert now.can_be_lent(ticket, key), f"{ticket.id} will never fit on {key}"


def _nobody_waits_in_a_circle(now: Picture) -> None:
    if any(ticket.within for ticket in now.waiting.values()):
        stuck = [t.id for t in Hope(now).waiting.values() if _is_inside(now, t)]
        assert not stuck, f"{stuck} can only wait for each other"


def _is_inside(now: Picture, ticket: Ticket) -> bool:
    return any(lease in now.leases for lease in ticket.within)


def check_answer(before: Picture, ticket: Ticket, answer: Answer, *, most: int, wait: bool) -> None:
    """Whether a request was refused rightly, and let to wait rightly."""
    too_heavy = [
        key
        for key in path_of(ticket)
        if ticket.weight > before.cap(key) and not before.can_be_lent(ticket, key)
    ]
    hope = Hope(before, ticket)
    blocked = hope.blocked_at(ticket) if ticket.id in hope.waiting else []
    reason = answer.reason if isinstance(answer, Refused) else None
    assert (reason == "too_heavy") == bool(too_heavy), f"{reason} but {too_heavy} too small"
    if isinstance(answer, Waiting):
        assert wait, "someone waits who did not want to"
        inside = ticket.within or before.ancestors(ticket)
        assert not (inside and blocked), f"{ticket.id} waits for ever on {blocked}"
    elif isinstance(answer, Refused):
        keys = {"too_heavy": too_heavy, "deadlock": blocked}.get(answer.reason, path_of(ticket))
        assert answer.key in keys, f"{ticket.id} was refused as {reason} on {answer.key}"
        if reason in {"full", "paused", "budget"}:
            assert (reason == "paused") == (answer.key in before.terms.paused)
            assert not wait, "someone was sent away who wanted to wait"
        if reason == "cooling" and wait:
            seconds = before.states[answer.key].cooling_seconds or 0.0
            assert seconds > MAX_COOLING_SECONDS - 1, "someone was sent away who could wait"
        if reason == "queue_full":
            line = [at for at in before.at.values() if at == answer.key]
            # It can be longer: whoever moves on to a key, or is sent back to it, is let in.
            assert len(line) >= most, f"the line of {answer.key} is not full"


def check_step(before: Picture, now: Picture, ended: set[str]) -> None:
    """What two looks, one operation apart, can show to be wrong besides."""
    fresh = [lease for lease in now.leases.values() if lease.id not in before.leases]
    highest = max(before.tokens.values(), default=0)
    for lease in fresh:
        assert lease.id not in ended, f"{lease.id} started after its end"
        assert now.tokens[lease.id] > highest, f"the token of {lease.id} is not a later one"
        for key in path_of(lease):
            if (lease.id, key) in now.borrowed:
                continue
            assert key not in now.terms.paused, f"{lease.id} was let in on {key}, which is paused"
            assert now.used[key] <= now.cap(key), f"{lease.id} was let in on {key}, which is full"
            if (lease.id, key) not in before.reserved | before.borrowed.keys():
                _nobody_was_overtaken(lease, key, now)
    for ticket_id in before.waiting.keys() & now.waiting.keys():
        assert before.ranks[ticket_id] == now.ranks[ticket_id], f"{ticket_id} has another rank"
    assert len(set(now.tokens.values())) == len(now.tokens), "two leases have one token"
    for key in now.used:
        over = now.used[key] > now.cap(key)
        assert not over or now.used[key] <= before.used.get(key, 0), f"{key} went over its limit"


def _nobody_was_overtaken(lease: Ticket, key: str, now: Picture) -> None:
    """Who took a limited key in this step had the best rank of those who wait there."""
    place = rank_of(lease), lease.id
    for ticket_id in now.order:
        if now.at[ticket_id] == key:
            other = now.waiting[ticket_id]
            assert place < (rank_of(other), ticket_id), f"{lease.id} overtook {ticket_id} on {key}"

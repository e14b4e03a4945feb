"""What the rules of the queue read and write, whoever keeps it and wherever."""

from __future__ import annotations

import math

from headway.keys import collection_order
from headway.limits import UNCAPPED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Literal, Protocol, TypeAlias

    from headway.limits import Terms
    from headway.tickets import Decision, Ticket

    Obstacle: TypeAlias = Literal["paused", "settling", "cooling", "budget", "full"]
    # A key, its cap, whether it is paused, and its budget.
    Change: TypeAlias = tuple[str, int, bool, int]

    class Sight(Protocol):
        """What one has to see of a store to tell who waits for whom."""

        def key(self, key: str) -> KeyState: ...
        def line(self, key: str, most: int) -> Sequence[Ticket]:
            """Those parked at the key, so many, best rank first."""

        def lease(self, ticket_id: str) -> Ticket | None: ...
        def borrower(self, lender: str, key: str) -> str | None:
            """Who has the lender's slot on the key on loan."""

    class Book(Sight, Protocol):
        """A store's tickets, leases, loans and counts, as the rules see them.

        A ticket is on the book from ``park`` or ``grant`` until ``strike``. Objects
        handed out are the same ones for the length of an operation.
        """

        def head(self, key: str) -> Ticket | None:
            """The best-ranked ticket parked at the key."""

        def park(self, ticket: Ticket) -> None:
            """Put the ticket into the line of ``ticket.at``."""

        def grant(self, ticket: Ticket) -> None:
            """Make the ticket a lease and give it its token."""

        def strike(self, ticket: Ticket) -> None:
            """Take the ticket off the book."""

        def ticket(self, ticket_id: str) -> Ticket | None:
            """The ticket, parked or granted."""

        def lend(self, lender: str, key: str, borrower: str) -> None: ...
        def end_loan(self, lender: str, key: str) -> None: ...
        def note_child(self, parent: str) -> None:
            """Note that someone counts on a lease, so that its end is no simple one."""

        def parked_children(self) -> Iterable[Ticket]:
            """Every parked ticket that has a parent, best rank first."""

        def parked_insiders(self, most: int) -> Iterable[Ticket]:
            """Those parked that were asked for from within a lease, so many, best rank first."""

        def insiders_have(self, keys: set[str], most: int) -> bool:
            """Whether a lease that one of those was asked from within may count on these keys."""

        def parked_reserving(self, most: int) -> Iterable[Ticket]:
            """Those parked that have reserved something, so many, best rank first."""

        def parked(self) -> Iterable[Ticket]:
            """Every parked ticket, best rank first."""

        def tell(self, ticket: Ticket, decision: Decision) -> None:
            """Note what has to be told to the ticket's owner once this is committed."""

        def awaits_someone(self) -> bool:
            """Whether a live holder has still to say what it holds: nothing is granted before."""

        def stir(self, key: str) -> None:
            """Note that the head of a key's line, or a holder it should watch, is new."""

        @property
        def now(self) -> float:
            """The time of this operation, on the store's clock."""

        def charge(self, state: KeyState) -> None:
            """Note that a request was admitted on the key, now."""

        def forgive(self, state: KeyState) -> None:
            """Forget the requests that no longer count on the key's budget."""


# What stands in the way at a key besides room, as bits of one number: a key with none of them
# can be passed without a second look.
PAUSED, METERED, COOLING = 1, 2, 4
# A request counts on its budget for a minute, and for as long as it may take from its admission
# to the provider: one that was slow on its way must not meet one that is fast a minute later.
WINDOW_SECONDS = 61.0


def milliseconds(clock: float) -> int:
    """A time of the clock as admissions are noted by; never earlier than it was."""
    return math.ceil(clock * 1000)


def window(clock: float) -> tuple[int, int]:
    """The admissions that count now are later than the first of these and not than the second.

    Those that are later were noted before the machine was started again.
    """
    now = milliseconds(clock)
    return now - int(WINDOW_SECONDS * 1000), now


class Cooldown:
    """A key that its provider wants left alone: until when, and who tries it first after that.

    Times are those of the store's clock. It is ``over`` when its time has come; then one ticket may
    pass, the probe, and nobody else until that has been answered.
    """

    __slots__ = ("over", "probe", "reason", "since", "until")

    def __init__(
        self,
        since: float,
        until: float,
        reason: str,
        *,
        over: bool = False,
        probe: str | None = None,
    ) -> None:
        self.since, self.until, self.reason = since, until, reason
        self.over, self.probe = over, probe

    def has_passed(self, now: float) -> bool:
        """Whether its time is over; a clock before its beginning is of another start."""
        return not self.since <= now < self.until

    def admits_probe(self) -> bool:
        """Whether one may pass."""
        return self.over and self.probe is None

    def copy(self) -> Cooldown:
        """The same, for someone who only looks."""
        return Cooldown(self.since, self.until, self.reason, over=self.over, probe=self.probe)


class KeyState:
    """One key: its limit, and the weight of the leases and reservations on it.

    Its budget is how many requests a minute it may have; ``spent`` of them were admitted
    lately, and ``promised`` tickets have passed the key and wait at a later one. Those who look
    see ``cooling_seconds`` and ``budget_seconds``: how long a cool-down lasts, and how long
    until the budget has room again; and ``settling_seconds``: how long nobody is let in, in a
    store that may have lost what it knew.
    """

    __slots__ = (
        "budget",
        "budget_seconds",
        "cap",
        "cooldown",
        "cooling_seconds",
        "hold_seconds",
        "key",
        "paused",
        "promised",
        "reserved",
        "settling_seconds",
        "spent",
        "used",
        "waiting",
    )

    def __init__(self, key: str, cap: int, *, paused: bool = False, budget: int = UNCAPPED) -> None:
        self.key, self.cap, self.paused, self.budget = key, cap, paused, budget
        self.used = self.reserved = self.waiting = self.spent = self.promised = 0
        self.hold_seconds: float | None = None
        self.cooldown: Cooldown | None = None
        self.cooling_seconds: float | None = None
        self.budget_seconds: float | None = None
        self.settling_seconds: float | None = None

    @property
    def gate(self) -> int:
        """What stands in the way besides room."""
        return (
            (PAUSED if self.paused else 0)
            | (METERED if self.budget < UNCAPPED else 0)
            | (COOLING if self.cooldown is not None else 0)
        )

    @property
    def is_open(self) -> bool:
        """Whether anyone may pass without being counted first."""
        return (
            self.cap >= UNCAPPED
            and not self.paused
            and self.budget >= UNCAPPED
            and self.cooldown is None
        )

    def has_room(self, weight: int) -> bool:
        """Whether there is room, whoever else may be waiting for it."""
        return not self.paused and self.used + self.reserved + weight <= self.cap

    def admits(self, weight: int) -> bool:
        """Whether there is room, and the provider may be asked."""
        return self.has_room(weight) and self.admits_request()

    def admits_request(self) -> bool:
        """Whether the provider may be asked, by someone who needs no room or has it."""
        if self.settling_seconds is not None:
            return False
        if self.cooldown is not None and not self.cooldown.admits_probe():
            return False
        return self.within_budget

    @property
    def within_budget(self) -> bool:
        """Whether one more request may be promised."""
        return self.spent + self.promised < self.budget

    def obstacle(self) -> Obstacle:
        """Why someone waits here."""
        if self.paused:
            return "paused"
        if self.settling_seconds is not None:
            return "settling"
        if self.cooldown is not None and not self.cooldown.admits_probe():
            return "cooling"
        return "full" if self.within_budget else "budget"

    def due_at(self, oldest: int | None) -> float | None:
        """When time alone will let someone pass; ``oldest`` is the first admission that counts.

        While a probe is out, that can only be part of it.
        """
        if self.cooldown is not None and not self.cooldown.over:
            return self.cooldown.until
        if oldest is None or self.within_budget:
            return None
        return oldest / 1000 + WINDOW_SECONDS

    def look(self, now: float, admitted: Iterable[int]) -> None:
        """Work out what only those see who look; for a copy, which nobody decides by."""
        oldest, newest = window(now)
        counting = [at for at in admitted if oldest < at <= newest]
        self.spent = len(counting)
        cooldown = self.cooldown
        if cooldown is not None:
            cooldown.over = cooldown.over or cooldown.has_passed(now)
        if cooldown is not None and not cooldown.over:
            self.cooling_seconds = cooldown.until - now
        elif counting and not self.within_budget:
            self.budget_seconds = max(0.0, counting[0] / 1000 + WINDOW_SECONDS - now)

    def learn(self, held_seconds: float) -> None:
        """Move the usual hold time towards one that was just seen."""
        usual = self.hold_seconds
        self.hold_seconds = held_seconds if usual is None else usual + (held_seconds - usual) / 5

    def copy(self) -> KeyState:
        """The same, for someone who only looks."""
        copied = KeyState(self.key, self.cap, paused=self.paused, budget=self.budget)
        copied.used, copied.reserved, copied.waiting = self.used, self.reserved, self.waiting
        copied.spent, copied.promised = self.spent, self.promised
        copied.hold_seconds = self.hold_seconds
        copied.cooldown = None if self.cooldown is None else self.cooldown.copy()
        return copied


def new_state(key: str, terms: Terms) -> KeyState:
    """A key that nobody has asked for yet."""
    return KeyState(key, terms.cap(key), paused=key in terms.paused, budget=terms.budget(key))


def wanted_changes(terms: Terms, names: Iterable[str]) -> list[Change]:
    """What the terms make of these keys, in the order in which tickets collect them."""
    ordered = sorted(names, key=collection_order)
    return [(key, terms.cap(key), key in terms.paused, terms.budget(key)) for key in ordered]


def changed_keys(terms: Terms, states: Iterable[KeyState]) -> list[Change]:
    """The keys that new terms treat otherwise: cap, whether they are paused, and budget."""
    present = {s.key: (s.key, s.cap, s.paused, s.budget) for s in states}
    return [change for change in wanted_changes(terms, present) if change != present[change[0]]]

"""What people and planners see of a store: limits, leases, who waits and why."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal

from headway import plain_text
from headway.clocks import time_of_day
from headway.doubts import Doubts
from headway.errors import CoolingDown
from headway.forecasts import LineForecast, estimated_wait
from headway.keys import path
from headway.limits import UNCAPPED, UNLIMITED, shown
from headway.stores.book import new_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headway.finished import Holds
    from headway.stores.base import Census, Holder, Outlook
    from headway.stores.book import KeyState
    from headway.tickets import Ticket

Reason = Literal[
    "full",
    "paused",
    "settling",
    "cooling",
    "budget",
    "possible_deadlock",
    "no_worker",
    "after",
    "retry_delay",
    "starting",
    "stopped",
]
Pressure = Literal["ok", "near", "full"]
# From this share of a limit on, planners are told to slow down.
_NEAR = 0.8
# Reasons that are not said as they are written.
_WORDS = {
    "budget": "out of requests",
    "after": "after other jobs",
    "retry_delay": "to be retried",
    "possible_deadlock": "in a possible deadlock",
    "no_worker": "no worker runs",
    "starting": "about to start",
}
# Reasons that lie in the job or the process that waits, and not in a key.
_OWN_REASONS = ("no_worker", "after", "retry_delay", "starting", "stopped")


def in_words(reason: str) -> str:
    """A reason for people."""
    return _WORDS.get(reason, reason.replace("_", " "))


@dataclass(frozen=True, slots=True)
class BlockedBy:
    """The key that has no room, and why."""

    key: str
    reason: Reason

    @property
    def in_words(self) -> str:
        """Why, without the key."""
        return in_words(self.reason)

    @property
    def sentence(self) -> str:
        """``agent is full``; if the reason is none of the key's, the reason alone."""
        return f"{self.key} is {self.in_words}" if self.is_at_key else self.in_words

    @property
    def is_at_key(self) -> bool:
        """Whether the key is the reason, and not the job or the process that waits."""
        return self.reason not in _OWN_REASONS


@dataclass(frozen=True, slots=True)
class Capacity:
    """What asking for one slot on a key would meet right now, its ancestors included.

    ``limit`` and ``used`` are the key's own; ``free``, ``waiting`` and the rest
    take its ancestors into account, because they bind too.
    """

    key: str
    limit: int | Literal["unlimited"]
    used: int
    free: int | Literal["unlimited"]
    waiting: int
    estimated_wait_seconds: float | None
    blocked_by: BlockedBy | None
    pressure: Pressure


@dataclass(frozen=True, slots=True)
class HolderView:
    """The process behind a lease."""

    pid: int
    host: str
    command: str


@dataclass(frozen=True, slots=True)
class LimitView:
    """One key: its limit, where that comes from, and its use.

    While it is left alone, ``cooling_until`` and ``cooling_reason`` say until when and why; after
    that it is ``probing`` until the one request that tries it first was answered. With a
    budget, ``requests_per_minute`` is what it may have, and ``requests_lately`` what it had; if
    that is all, ``next_request_at`` is when there is room for another.
    """

    key: str
    limit: int | str
    source: str
    used: int
    reserved: int
    free: int | str
    waiting: int
    paused: bool
    cooling_until: float | None
    cooling_reason: str | None
    probing: bool
    requests_per_minute: int | str
    requests_lately: int
    next_request_at: float | None


@dataclass(frozen=True, slots=True)
class LeaseView:
    """One lease and who holds it; ``stopped`` if the command that runs under it is."""

    id: str
    task: str | None
    keys: tuple[str, ...]
    weight: int
    since: float
    holder: HolderView
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class WaitingView:
    """One ticket in line: its place at the key that blocks it.

    One that was ``stopped`` is passed over, and has its place again when it goes on.
    ``estimated_wait_range`` is there while too few holds are known for one number.
    """

    id: str
    task: str | None
    keys: tuple[str, ...]
    weight: int
    priority: int
    position: int
    blocked_by: BlockedBy
    since: float
    estimated_wait_seconds: float | None
    holder: HolderView
    stopped: bool = False
    estimated_wait_range: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole store at one instant."""

    limits: tuple[LimitView, ...]
    leases: tuple[LeaseView, ...]
    waiting: tuple[WaitingView, ...]

    def leases_on(self, key: str) -> list[LeaseView]:
        """The leases that count on a key, longest first."""
        return [lease for lease in self.leases if key in path(lease.keys)]

    def as_dict(self) -> dict[str, object]:
        """The shape that ``headway status --json`` prints."""
        return asdict(self)


def capacity(key: str, states: Sequence[KeyState], *, weight: int = 1) -> Capacity:
    """Sum up a key and its ancestors, given in collection order."""
    own = next(state for state in states if state.key == key)
    free = min(_free(state) for state in states)
    blocking = next((state for state in states if not state.admits(weight) or state.waiting), None)
    waiting = sum(state.waiting for state in states)
    return Capacity(
        key=key,
        limit=_shown(own.cap),
        used=own.used,
        free=_shown(free),
        waiting=waiting,
        estimated_wait_seconds=(
            0.0 if blocking is None else estimated_wait(blocking, blocking.waiting + 1)
        ),
        blocked_by=None if blocking is None else BlockedBy(blocking.key, blocking.obstacle()),
        pressure=_pressure(states, blocked=blocking is not None),
    )


def cooling_down(
    capacity: Capacity, states: Sequence[KeyState], *, would_wait: bool
) -> CoolingDown:
    """The error that says until when a key is left alone, to one who would wait or would not."""
    cooling = [state for state in states if state.cooling_seconds is not None]
    longest = max(cooling, key=lambda state: state.cooling_seconds or 0.0, default=None)
    if longest is None or longest.cooldown is None:  # it has just ended
        text = f"{capacity.key} was cooling, and one request tries it first; ask again"
        return CoolingDown(capacity, text, time.time())
    until = time.time() + (longest.cooling_seconds or 0.0)
    reason = plain_text.one_line(longest.cooldown.reason)
    why = f" ({reason})" if reason else ""
    too_long = ", longer than cooldown.max_wait" if would_wait else ""
    text = (
        f"{longest.key} is cooling until {time_of_day(until)}{why}{too_long};"
        " the work was not started"
    )
    return CoolingDown(capacity, text, until)


def snapshot(census: Census, known: Holds | None = None) -> Snapshot:
    """Everything in the words of design and documentation; ``known`` is how long things took."""
    waiting = (*_waiting(census, known), *_stopped(census))
    lines = {line.pattern for line in census.terms.lines if "*" not in line.pattern.split("/")}
    shown_keys = sorted({*census.states, *lines, *census.terms.paused, "agent"})
    return Snapshot(
        limits=tuple(_limit(census, key) for key in shown_keys),
        leases=tuple(
            _lease(census.holders, lease)
            for lease in sorted(census.leases, key=lambda lease: (lease.since, lease.id))
        ),
        waiting=waiting,
    )


def waiting(outlook: Outlook, ticket: Ticket, known: Holds | None = None) -> WaitingView:
    """One ticket's own row."""
    state, holders = outlook.state, outlook.holders
    row = _row(ticket, holders, state, outlook.position, state.obstacle())
    line = LineForecast(state, outlook.leases, holders, known)
    for _ in range(outlook.position - 1):
        line.next(ticket)
    seconds, between = line.next(ticket)
    return replace(row, estimated_wait_seconds=seconds, estimated_wait_range=between)


def holders(outlook: Outlook) -> tuple[LeaseView, ...]:
    """Who holds the key that a ticket waits at, longest first."""
    return described(outlook.leases, outlook.holders)


def described(leases: Iterable[Ticket], holders: dict[str, Holder]) -> tuple[LeaseView, ...]:
    """Leases and who holds them, longest first."""
    return tuple(_lease(holders, lease) for lease in sorted(leases, key=lambda one: one.since))


def _waiting(census: Census, known: Holds | None) -> Iterable[WaitingView]:
    doubts, places = Doubts(census), dict.fromkeys(census.states, 0)
    lines: dict[str, LineForecast] = {}
    for ticket in census.waiting:
        at = ticket.at or ticket.path[0]
        places[at] += 1
        state = census.states[at]
        reason: Reason = state.obstacle()
        if reason == "full" and doubts.suspects(ticket):
            reason = "possible_deadlock"
        row = _row(ticket, census.holders, state, places[at], reason)
        if at not in lines:
            lines[at] = LineForecast(state, census.leases, census.holders, known)
        seconds, between = lines[at].next(ticket)
        row = replace(row, estimated_wait_seconds=seconds, estimated_wait_range=between)
        # Whoever waits behind those does so for as long, and nobody knows how long that is.
        if doubts.affects(ticket):
            row = replace(row, estimated_wait_seconds=None, estimated_wait_range=None)
        yield row


def _stopped(census: Census) -> Iterable[WaitingView]:
    """Those who have left their line while they are stopped, with the place that they keep."""
    for ticket in census.stopped:
        at = ticket.at or ticket.path[0]
        state = census.states.get(at) or new_state(at, census.terms)
        before = [one for one in census.waiting if one.at == at and one.place < ticket.place]
        row = _row(ticket, census.holders, state, len(before) + 1, "stopped")
        yield replace(row, stopped=True, estimated_wait_seconds=None)


def _row(
    ticket: Ticket, holders: dict[str, Holder], state: KeyState, position: int, reason: Reason
) -> WaitingView:
    return WaitingView(
        id=ticket.id,
        task=ticket.task,
        keys=ticket.keys,
        weight=ticket.weight,
        priority=ticket.priority,
        position=position,
        blocked_by=BlockedBy(state.key, reason),
        since=ticket.since,
        estimated_wait_seconds=estimated_wait(state, position),
        holder=_holder(holders, ticket),
    )


def _limit(census: Census, key: str) -> LimitView:
    line, state = census.terms.line_for(key), census.states.get(key)
    used, reserved, waiting = (state.used, state.reserved, state.waiting) if state else (0, 0, 0)
    cap, now = census.terms.cap(key), time.time()
    cooldown, cooling = (state.cooldown, state.cooling_seconds) if state else (None, None)
    until_request = state.budget_seconds if state else None
    return LimitView(
        key=key,
        limit=shown(cap),
        source=line.source,
        used=used,
        reserved=reserved,
        free=UNLIMITED if cap >= UNCAPPED else max(0, cap - used - reserved),
        waiting=waiting,
        paused=key in census.terms.paused,
        cooling_until=None if cooling is None else now + cooling,
        cooling_reason=None if cooldown is None else cooldown.reason,
        probing=cooldown is not None and cooling is None,
        requests_per_minute=shown(census.terms.budget(key)),
        requests_lately=0 if state is None else state.spent,
        next_request_at=None if until_request is None else now + until_request,
    )


def _lease(holders: dict[str, Holder], lease: Ticket) -> LeaseView:
    return LeaseView(
        id=lease.id,
        task=lease.task,
        keys=lease.keys,
        weight=lease.weight,
        since=lease.since,
        holder=_holder(holders, lease),
        stopped=lease.holder in holders and bool(holders[lease.holder].stopped),
    )


def _holder(holders: dict[str, Holder], lease: Ticket) -> HolderView:
    holder = holders.get(lease.holder)
    if holder is None:
        return HolderView(pid=0, host="", command="(gone)")
    return HolderView(pid=holder.pid, host=holder.host, command=holder.command)


def _free(state: KeyState) -> int:
    if state.paused or state.waiting or not state.admits_request():
        return 0
    room = UNCAPPED if state.cap >= UNCAPPED else max(0, state.cap - state.used - state.reserved)
    left = UNCAPPED if state.budget >= UNCAPPED else state.budget - state.spent - state.promised
    return min(room, left)


def _shown(cap: int) -> int | Literal["unlimited"]:
    return "unlimited" if cap >= UNCAPPED else cap


def _pressure(states: Sequence[KeyState], *, blocked: bool) -> Pressure:
    if blocked:
        return "full"
    limited = [state for state in states if state.cap < UNCAPPED]
    near = any(state.used + state.reserved + 1 > _NEAR * state.cap for state in limited)
    return "near" if near else "ok"

"""Rows of the store's tables, and what they mean."""

from __future__ import annotations

from headway import keys
from headway.limits import Line, Terms
from headway.stores.base import Census
from headway.stores.book import COOLING, PAUSED, Cooldown, KeyState
from headway.tickets import Refused, Revoked, Ticket, Withdrawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from headway.tickets import Decision

LEASE_COLUMNS = "id, keys, weight, task, priority, parent, within, arrival, since, token"
WAITING_COLUMNS = (
    "id, keys, weight, task, priority, parent, within, arrival, since, rank, at, reserved"
)
INSERT_WAITING = (
    f"insert or replace into waiting ({WAITING_COLUMNS}) values (?,?,?,?,?,?,?,?,?,?,?,?)"
)
INSERT_LEASE = f"insert into leases ({LEASE_COLUMNS}) values (?,?,?,?,?,?,?,?,?,?)"
STATE_COLUMNS = "key, cap, gate, used, reserved, waiting, hold_seconds, budget, spent, promised"
_COOLDOWN_COLUMNS = "since, until, reason, over, probe"
_KINDS = {Withdrawn: "withdrawn", Refused: "refused", Revoked: "revoked"}


def verdict_row(ticket: Ticket, decision: Decision) -> tuple[object, ...] | None:
    """The values of a row in ``verdicts``; a grant has none, it is a lease."""
    kind = _KINDS.get(type(decision))
    return None if kind is None else (ticket.id, kind, _detail(decision))


def _detail(decision: Decision) -> str:
    if isinstance(decision, Refused):
        return "\n".join((f"{decision.reason} {decision.key}", *decision.held_by))
    return decision.reason if isinstance(decision, Revoked) else ""


def decision_from(ticket_id: str, kind: str, detail: str) -> Decision:
    """A row of ``verdicts`` as what it means."""
    if kind == "refused":
        (what, *held_by) = detail.split("\n")
        reason, _, key = what.partition(" ")
        return Refused(ticket_id, reason, key, tuple(held_by))  # type: ignore[arg-type]
    return Revoked(ticket_id, detail) if kind == "revoked" else Withdrawn(ticket_id)


def id_range(holder: str) -> tuple[str, str]:
    """Two texts that all ids of a holder's tickets lie between."""
    return f"{holder}-", f"{holder}."


def lease_row(ticket: Ticket, token: int) -> tuple[object, ...]:
    """The values of a row in ``leases``, but for who counts on it."""
    return (*_row(ticket), token)


def waiting_row(ticket: Ticket) -> tuple[object, ...]:
    """The values of a row in ``waiting``."""
    return (*_row(ticket), ticket.rank, ticket.at, "\n".join(ticket.reserved) or None)


def _row(ticket: Ticket) -> tuple[object, ...]:
    return (
        ticket.id,
        "\n".join(ticket.keys),
        ticket.weight,
        ticket.task,
        ticket.priority,
        " ".join(ticket.parents) or None,
        "\n".join(ticket.surroundings),
        ticket.arrival,
        ticket.since,
    )


def lease_from(row: tuple[str, ...]) -> Ticket:
    """A row of ``leases`` as a ticket."""
    ticket = _ticket_from(row)
    ticket.token = int(row[9])
    return ticket


def waiting_from(row: tuple[str, ...]) -> Ticket:
    """A row of ``waiting`` as a ticket."""
    ticket = _ticket_from(row)
    ticket.rank, ticket.at = int(row[9]), row[10]
    ticket.reserved = row[11].split("\n") if row[11] else []
    return ticket


def _ticket_from(row: tuple[str, ...]) -> Ticket:
    named = tuple(row[1].split("\n"))
    ticket = Ticket(
        row[0],
        named,
        keys.path(named),
        weight=int(row[2]),
        task=row[3],
        priority=int(row[4]),
        parents=tuple(row[5].split(" ")) if row[5] else (),
    )
    if row[6]:
        ticket.surroundings = row[6].split("\n")
    ticket.arrival, ticket.since = int(row[7]), float(row[8])
    return ticket


def state_from(row: tuple[object, ...], execute: Callable[..., Iterable[Any]]) -> KeyState:
    """A row of ``keys`` as a state, with what ``cooldowns`` says of it."""
    key, cap, gate, used, reserved, waiting, hold_seconds, budget, spent, promised = row
    state = KeyState(key, cap, paused=bool(gate & PAUSED), budget=budget)  # type: ignore[arg-type,operator]
    state.used, state.reserved, state.waiting = used, reserved, waiting  # type: ignore[assignment]
    state.hold_seconds, state.spent, state.promised = hold_seconds, spent, promised  # type: ignore[assignment]
    if gate & COOLING:  # type: ignore[operator]
        query = f"select {_COOLDOWN_COLUMNS} from cooldowns where key = ?"
        for since, until, reason, over, probe in execute(query, (key,)):
            state.cooldown = Cooldown(since, until, reason, over=bool(over), probe=probe)
    return state


def row_from(state: KeyState) -> tuple[object, ...]:
    """A state as a row of ``keys``."""
    return (
        state.key,
        state.cap,
        state.gate,
        state.used,
        state.reserved,
        state.waiting,
        state.hold_seconds,
        state.budget,
        state.spent,
        state.promised,
    )


def cooldown_row(state: KeyState) -> tuple[object, ...] | None:
    """A row of ``cooldowns``, if the key has one."""
    cooldown = state.cooldown
    if cooldown is None:
        return None
    return (
        state.key,
        cooldown.since,
        cooldown.until,
        cooldown.reason,
        int(cooldown.over),
        cooldown.probe,
    )


def read_terms(execute: Callable[..., Iterable[Any]]) -> Terms:
    """The terms in force."""
    lines = [Line(*row) for row in execute("select * from lines")]
    return Terms(lines, [key for (key,) in execute("select key from paused")])


def read_all(execute: Callable[..., Iterable[Any]]) -> Census:
    """Everything as it stands in the tables, without a word on the holders."""
    return Census(
        terms=read_terms(execute),
        states=[state_from(row, execute) for row in execute(f"select {STATE_COLUMNS} from keys")],
        leases=[lease_from(row) for row in execute(f"select {LEASE_COLUMNS} from leases")],
        waiting=[waiting_from(row) for row in execute(f"select {WAITING_COLUMNS} from waiting")],
        loans=execute("select lender, key, borrower from loans"),
        holders=(),
    )

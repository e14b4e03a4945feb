"""What the Redis store keeps, and what it means."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from headway.limits import Line, Terms
from headway.stores.base import Holder
from headway.stores.book import Cooldown, KeyState
from headway.stores.machine import board_name, machine_name
from headway.tickets import Granted, Refused, Revoked, Ticket, Withdrawn

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from headway.tickets import Decision

# What there is of a holder, beside its leases.
_CARD, _NEWEST = b"", b"#"
_NO_CARD = b'[0,"","(unknown)","",null]'
# As in the script: more are for the rules, which write them down in parts.
_FEW_KEYS = 100

unpacked = msgspec.msgpack.decode
packed = msgspec.msgpack.encode


def _constant(ticket: Ticket) -> tuple[object, ...]:
    """What was asked for, which does not change."""
    task, weight, priority = ticket.task or False, ticket.weight, ticket.priority
    return ticket.keys, ticket.path, task, weight, priority, ticket.parents, ticket.surroundings


def ticket_row(ticket: Ticket) -> tuple[object, ...]:
    """A ticket as it is asked for."""
    return ticket.id, _constant(ticket), ticket.arrival, ticket.rank, ticket.since


def short_request(ticket: Ticket, boost: int, most_waiting: int) -> list[bytes]:
    """The same for a shortcut; nothing if it is no usual request."""
    if ticket.arrival or ticket.parents or ticket.within or len(ticket.path) > _FEW_KEYS:
        return []
    numbers = ticket.weight, ticket.priority * boost, most_waiting
    constant = packed(_constant(ticket))
    return [
        ticket.id.encode(),
        *[b"%d" % number for number in numbers],
        constant,
        *[key.encode() for key in ticket.path],
    ]


def short_release(ticket: Ticket, held_seconds: float) -> list[bytes]:
    """A ticket as it is given back by a shortcut; nothing if it is no usual one."""
    if ticket.parents or len(ticket.path) > _FEW_KEYS:
        return []
    numbers = b"%d" % ticket.weight, b"%r" % held_seconds
    return [ticket.id.encode(), *numbers, *[key.encode() for key in ticket.path]]


def ticket_from(ticket_id: bytes, blob: bytes) -> Ticket:
    """One that is kept, waiting or granted."""
    changing, (keys, path, task, weight, priority, parents, within) = unpacked(blob)
    arrival, rank, since, at, reserved, borrowed, token = changing
    ticket = Ticket(
        ticket_id.decode(),
        tuple(keys),
        tuple(path),
        task=task or None,
        weight=weight,
        priority=priority,
        parents=tuple(parents),
    )
    ticket.surroundings = within
    ticket.arrival, ticket.rank, ticket.since, ticket.token = arrival, rank, float(since), token
    ticket.at, ticket.reserved = at or None, list(reserved)
    ticket.borrowed = dict(zip(borrowed[::2], borrowed[1::2], strict=True))
    return ticket


def state_from(key: str, blob: bytes) -> KeyState:
    """A key as it is kept."""
    cap, paused, budget, used, reserved, waiting, promised, spent, hold, cooldown = unpacked(blob)
    # Zero: the key came while its limit was changed, and has room for nobody for this moment.
    state = KeyState(key, max(1, cap), paused=paused, budget=budget)
    state.used, state.reserved, state.waiting = used, reserved, waiting
    state.promised, state.spent = promised, spent
    state.hold_seconds = None if hold is False else float(hold)
    if cooldown:
        since, until, reason, over, probe = cooldown
        state.cooldown = Cooldown(
            float(since), float(until), reason, over=over, probe=probe or None
        )
    return state


def decision_from(ticket_id: str, row: list[Any]) -> Decision:
    """What was decided about a ticket."""
    kind = row[0]
    if kind == "granted":
        return Granted(ticket_id, row[1])
    if kind == "refused":
        return Refused(ticket_id, row[1], row[2], tuple(row[3]))
    return Revoked(ticket_id, *row[1:]) if kind == "revoked" else Withdrawn(ticket_id)


def pairs(flat: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
    """Names and values, one after the other."""
    return zip(flat[::2], flat[1::2], strict=True)


def terms_from(blob: bytes) -> Terms:
    """The terms in force."""
    return terms_and_versions(blob)[0]


def terms_and_versions(blob: bytes | str) -> tuple[Terms, dict[str, int]]:
    """The same, and when what people set in them was last changed."""
    if not blob:
        return Terms(), {}
    lines, paused, *versions = msgspec.json.decode(blob)
    return Terms([Line(*line) for line in lines], paused), versions[0] if versions else {}


def terms_text(terms: Terms, versions: dict[str, int]) -> str:
    """The same as it is kept."""
    lines = [
        (line.pattern, line.slots, line.source, line.requests_per_minute) for line in terms.lines
    ]
    return msgspec.json.encode((lines, sorted(terms.paused), versions)).decode()


def card(  # noqa: PLR0917 - a row
    pid: int, host: str, command: str, home: str, lease_seconds: float, stopped: str = ""
) -> str:
    """What others are told of a holder, in text that can be kept."""
    texts = [text.encode(errors="replace").decode() for text in (command, home)]
    also = machine_name(), board_name(home), stopped
    return msgspec.json.encode((pid, host, *texts, lease_seconds, *also)).decode()


def described(text: bytes) -> str:
    """A holder, for people."""
    pid, host, command, *_ = msgspec.json.decode(text)
    return f"pid {pid} on {host} ({command})"


def everyone_from(found: list[Any]) -> tuple[list[Holder], list[Ticket]]:
    """Everyone who was heard lately, and what they hold.

    Where machines or containers share a host name, all but this one have a mark after it.
    """
    holders, leases, machines = [], [], {}
    for name, rows in found:
        of_holder = dict(pairs(rows))
        of_holder.pop(_NEWEST, None)
        # An evicted card is replaced when its holder is next heard.
        told = msgspec.json.decode(of_holder.pop(_CARD, _NO_CARD))
        pid, host, command, _, lease_seconds, *also = told
        machine, _, stopped = (*also, "", "", "")[:3]  # earlier versions say less
        holder = Holder(
            name.decode(), pid, host, command, lease_seconds=lease_seconds, stopped=stopped
        )
        holders.append(holder)
        machines[holder.id] = machine
        leases += [ticket_from(*each) for each in of_holder.items()]
    _tell_apart(holders, machines)
    return holders, leases


def _tell_apart(holders: list[Holder], machines: dict[str, str]) -> None:
    named: dict[str, set[str]] = {os.uname().nodename: {machine_name()}}
    for holder in holders:
        named.setdefault(holder.host, set()).add(machines[holder.id])
    for holder in holders:
        machine = machines[holder.id]
        if len(named[holder.host]) > 1 and machine not in {"", machine_name()}:
            holder.host = f"{holder.host}#{machine}"

"""Waits that never end, or perhaps never, in words: who waits for whom, and what to do.

Loaded when there is one to tell of.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headway import journal, views
from headway.callers import runs_on
from headway.doubts import Doubts
from headway.errors import DeadlockRefused, HeadwayError
from headway.stores.circles import MOST
from headway.stores.processes import ancestors

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from headway.stores.base import Census, Store
    from headway.telling import Teller
    from headway.tickets import Refused, Ticket

# So many leases are named in a text; the error has the ids of all.
_NAMED = 4
_has_warned = False


def refusal(store: Store, ticket: Ticket, refused: Refused) -> DeadlockRefused:
    """The error for a request that closes a circle, or waits for its own caller alone."""
    if set(refused.held_by) <= {*ticket.within, *ticket.parents}:
        return DeadlockRefused(refused.key, refused.held_by)
    try:
        census = store.census()
    except HeadwayError:  # the refusal is worth more than its details
        return DeadlockRefused(refused.key, refused.held_by, ("others",))
    return DeadlockRefused(refused.key, refused.held_by, _circle(census, ticket, refused))


def held_on(loop: AbstractEventLoop, store: Store, path: tuple[str, ...]) -> tuple[str, ...]:
    """The leases that cannot end while the present thread, which runs this loop, is blocked.

    And those who wait for one: it could not end either. At most so many; those that count
    on the path come first.
    """
    held = [
        ticket
        for ticket in store.own_tickets()
        if ticket.is_decided and not ticket.ended and runs_on(ticket.caller, loop)
    ]
    held.sort(key=lambda ticket: set(path).isdisjoint(ticket.path))
    return tuple([ticket.id for ticket in held[:MOST]])


def warn_of_blocked_loop(key: str) -> None:
    """Say once in a process that the wait for a slot stops everything else on its loop."""
    global _has_warned  # noqa: PLW0603 - once in a process
    if not _has_warned:
        _has_warned = True
        journal.log().warning(
            "a blocking slot waits for %s inside an event loop, and nothing else on that loop goes"
            " on meanwhile, no timeout either: enter it with `async with`",
            key,
        )


def warn(store: Store, teller: Teller, tickets: list[Ticket]) -> None:
    """Tell of those of these waits that may never end, once for each key."""
    if not any(ticket.within or ticket.around or ticket.parents for ticket in tickets):
        tickets = [ticket for ticket in tickets if _is_up_to_ancestors(store, ticket)]
    if not tickets:
        return
    census, told = store.census(), set()
    doubts, known = Doubts(census), {ticket.id: ticket for ticket in census.waiting}
    for mine in tickets:
        ticket = known.get(mine.id)  # as it is now
        if ticket is None or ticket.at is None or ticket.at in told or not doubts.suspects(ticket):
            continue
        told.add(ticket.at)
        leases = [lease for lease in census.leases if ticket.at in lease.path]
        holders = views.described(leases, census.holders)
        teller.doubted(ticket, ticket.at, holders, _fix(ticket, doubts))


def _is_up_to_ancestors(store: Store, ticket: Ticket) -> bool:
    """Whether only the processes that this one descends from hold what a ticket waits for."""
    outlook = store.outlook(ticket)
    if outlook is None:
        return False
    above, host = ancestors(os.getpid()), os.uname().nodename
    holders = [outlook.holders.get(lease.holder) for lease in outlook.leases]
    return bool(holders) and all(
        holder is not None and holder.host == host and holder.pid in above for holder in holders
    )


def _fix(ticket: Ticket, doubts: Doubts) -> str:
    if ticket.around:
        return (
            "If whoever started this task waits for it inside its slot, let this run on that slot"
            ' with parent="current", or have it awaited after that block'
        )
    if doubts.of_ancestors(ticket) and not ticket.within and not ticket.parents:
        return (
            "If the process that started this one waits for it inside its slot, start this one"
            " with the variables of lease.environ(), or pass parent=<the id of that lease> here"
        )
    return (
        'Let the inner request run on its caller\'s slot with parent="current", release the'
        " outer one first, or raise the limit"
    )


def _circle(census: Census, ticket: Ticket, refused: Refused) -> tuple[str, ...]:
    """Each of those in the way, and what it waits for itself."""
    leases = {lease.id: lease for lease in (*census.leases, *census.waiting)}
    waiting = {lease: other for other in census.waiting for lease in other.within}
    waiting |= {other.id: other for other in census.waiting}
    told = []
    for lease_id in refused.held_by:
        lease, inner = leases.get(lease_id), waiting.get(lease_id)
        name = lease_id if lease is None else described(census, lease)
        if lease_id in ticket.within:
            told.append(f"{name} is this caller's")
        elif inner is not None:
            told.append(f"{name} waits for {inner.at!r}")
        else:
            told.append(f"{name} is lent to one that waits")
    more = len(told) - _NAMED
    return (*told[:_NAMED], f"and {more} more") if more > 0 else tuple(told)


def described(census: Census, lease: Ticket) -> str:
    """A lease, for people: its id, its task and its process."""
    holder = census.holders.get(lease.holder)
    # As Python writes it: somebody else chose that name.
    task = "" if lease.task is None else f"task {lease.task!r}, "
    return f"{lease.id} ({task}pid {0 if holder is None else holder.pid})"

"""What must be true of a store between any two operations."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headway import Governor
    from headway.stores.base import Census


def problems(census: Census) -> list[str]:
    """Where the counts do not add up, or somebody waits who could be served."""
    found = []
    lent = {(borrower, key) for _, key, borrower in census.loans}
    known = {ticket.id for ticket in [*census.leases, *census.waiting]}
    for key, state in census.states.items():
        used = sum(
            lease.weight
            for lease in census.leases
            if key in lease.path and (lease.id, key) not in lent
        )
        reserved = sum(ticket.weight for ticket in census.waiting if key in ticket.reserved)
        parked = [ticket for ticket in census.waiting if ticket.at == key]
        if state.used != used:
            found.append(f"{key}: used is {state.used}, leases weigh {used}")
        if state.reserved != reserved:
            found.append(f"{key}: reserved is {state.reserved}, reservations weigh {reserved}")
        if state.waiting != len(parked):
            found.append(f"{key}: waiting is {state.waiting}, parked are {len(parked)}")
        if parked:
            head = min(parked, key=lambda ticket: ticket.place)
            if state.admits(head.weight):
                found.append(f"{key}: {head.id} is stranded, it would fit")
    found += [
        f"loan of {key} from {lender} to {borrower}, who is not there"
        for lender, key, borrower in census.loans
        if lender not in known or borrower not in known
    ]
    return found


def audit(governor: Governor) -> str:
    """One look at everything: ``fine``, or what is wrong."""
    return "; ".join(problems(governor._store.census())) or "fine"


def take_all(governor: Governor, limits: Mapping[str, int]) -> None:
    """For each of these keys, take every slot at once, and give them back."""
    for key, limit in limits.items():
        with contextlib.ExitStack() as held:
            for _ in range(limit):
                held.enter_context(governor.slot(key, timeout=30))

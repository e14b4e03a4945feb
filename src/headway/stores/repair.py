"""Counts that do not agree with the tickets, and what they should be.

A store keeps counts per key beside its tickets, so that a request reads few rows. They change in
one transaction with the tickets; what takes rows away behind the store's back (a server that
evicts keys, someone with a database tool) can leave counts that no ticket stands for.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.stores.base import Census
    from headway.tickets import Ticket

# The counts of a key that follow from its tickets and loans.
COUNTS = ("used", "reserved", "waiting", "promised", "loans")


class Correction:
    """One count of a key that was not what its tickets say."""

    __slots__ = ("count", "expected", "found", "key")

    def __init__(self, key: str, count: str, *, found: int, expected: int) -> None:
        self.key, self.count, self.found, self.expected = key, count, found, expected

    def __repr__(self) -> str:
        return f"{self.key}: {self.count} was {self.found}, should be {self.expected}"


def miscounts(census: Census) -> list[Correction]:
    """The counts in a census that do not agree with its tickets and loans."""
    expected: dict[str, list[int]] = {}
    found = {
        key: [state.used, state.reserved, state.waiting, state.promised, 0]
        for key, state in census.states.items()
    }
    for _, key, _ in census.loans:
        found.setdefault(key, [0] * len(COUNTS))[4] += 1
    for key, counts in _contributions(census):
        sums = expected.setdefault(key, [0] * len(COUNTS))
        for position, value in enumerate(counts):
            sums[position] += value
    nothing = [0] * len(COUNTS)
    return [
        Correction(key, name, found=was, expected=wanted)
        for key in sorted(found.keys() | expected.keys())
        for name, was, wanted in zip(
            COUNTS, found.get(key, nothing), expected.get(key, nothing), strict=True
        )
        if was != wanted
    ]


def _contributions(census: Census) -> Iterator[tuple[str, tuple[int, int, int, int, int]]]:
    """What each ticket and each loan adds to the counts of a key, in the order of ``COUNTS``."""
    leases = {lease.id: lease for lease in census.leases}
    tickets = leases | {ticket.id: ticket for ticket in census.waiting}
    borrowed = {
        (borrower, key)
        for lender, key, borrower in census.loans
        if is_sound_loan(leases.get(lender), key, tickets.get(borrower))
    }
    for lease in census.leases:
        for key in lease.path:
            if (lease.id, key) not in borrowed:
                yield key, (lease.weight, 0, 0, 0, 0)
    for ticket in census.waiting:
        if ticket.at is not None:
            yield ticket.at, (0, 0, 1, 0, 0)
        for key in ticket.reserved:
            yield key, (0, ticket.weight, 0, 1, 0)
    for borrower, key in borrowed:
        at = tickets[borrower].at
        has_passed = borrower not in leases and at != key
        yield key, (0, 0, 0, int(has_passed), 1)


def is_sound_loan(lender: Ticket | None, key: str, borrower: Ticket | None) -> bool:
    """Whether both sides of a loan exist and need the key."""
    return (
        lender is not None and borrower is not None and key in lender.path and key in borrower.path
    )

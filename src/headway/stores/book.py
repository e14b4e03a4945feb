"""What the rules of the queue read and write, whoever keeps it and wherever."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Protocol

    from headway.tickets import Decision, Ticket

    class Book(Protocol):
        """A store's tickets, leases, loans and counts, as the rules see them.

        A ticket is on the book from ``park`` or ``grant`` until ``strike``. Objects
        handed out are the same ones for the length of an operation.
        """

        def key(self, key: str) -> KeyState: ...
        def head(self, key: str) -> Ticket | None:
            """The best-ranked ticket parked at the key."""

        def park(self, ticket: Ticket) -> None:
            """Put the ticket into the line of ``ticket.at``."""

        def grant(self, ticket: Ticket) -> None:
            """Make the ticket a lease and give it its token."""

        def strike(self, ticket: Ticket) -> None:
            """Take the ticket off the book."""

        def lease(self, ticket_id: str) -> Ticket | None: ...
        def ticket(self, ticket_id: str) -> Ticket | None:
            """The ticket, parked or granted."""

        def borrower(self, lender: str, key: str) -> str | None:
            """Who has the lender's slot on the key on loan."""

        def lend(self, lender: str, key: str, borrower: str) -> None: ...
        def end_loan(self, lender: str, key: str) -> None: ...
        def note_child(self, parent: str) -> None:
            """Note that someone counts on a lease, so that its end is no simple one."""

        def parked_children(self) -> Iterable[Ticket]:
            """Every parked ticket that has a parent, best rank first."""

        def parked(self) -> Iterable[Ticket]:
            """Every parked ticket, best rank first."""

        def tell(self, ticket: Ticket, decision: Decision) -> None:
            """Note what has to be told to the ticket's owner once this is committed."""

        def awaits_someone(self) -> bool:
            """Whether a live holder has still to say what it holds: nothing is granted before."""

        def stir(self, key: str) -> None:
            """Note that the head of a key's line, or a holder it should watch, is new."""


class KeyState:
    """One key: its limit, and the weight of the leases and reservations on it."""

    __slots__ = ("cap", "hold_seconds", "key", "paused", "reserved", "used", "waiting")

    def __init__(self, key: str, cap: int, *, paused: bool = False) -> None:
        self.key, self.cap, self.paused = key, cap, paused
        self.used = self.reserved = self.waiting = 0
        self.hold_seconds: float | None = None

    def admits(self, weight: int) -> bool:
        """Whether there is room, whoever else may be waiting for it."""
        return not self.paused and self.used + self.reserved + weight <= self.cap

    def learn(self, held_seconds: float) -> None:
        """Move the usual hold time towards one that was just seen."""
        usual = self.hold_seconds
        self.hold_seconds = held_seconds if usual is None else usual + (held_seconds - usual) / 5

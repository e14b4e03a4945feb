"""What a holder says of itself while it is stopped.

Whoever is stopped while it waits leaves its line, so that it cannot be granted what it would
not use, and keeps its rank for when it goes on. All others learn of it here.
"""

from __future__ import annotations

from headway.tickets import Ticket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.stores.base import Holder

# Its command is stopped: it holds its slot as before.
COMMAND = "command"


def waiter(ticket: Ticket, key: str) -> str:
    """It has left the line of a key with this ticket."""
    import json  # noqa: PLC0415 - loaded when somebody is stopped

    row = ticket.id, ticket.keys, ticket.path, ticket.task, ticket.weight, ticket.priority
    return json.dumps([*row, ticket.rank, ticket.since, key])


def waiters(holders: Iterable[Holder]) -> list[Ticket]:
    """The tickets whose places are kept for stopped waiters, each at the key where it stood."""
    return [ticket for ticket in map(_ticket_of, holders) if ticket is not None]


def _ticket_of(holder: Holder) -> Ticket | None:
    if not holder.stopped.startswith("["):
        return None
    import json  # noqa: PLC0415

    try:
        ticket_id, keys, path, task, weight, priority, rank, since, key = json.loads(holder.stopped)
    except ValueError:  # cut off
        return None
    ticket = Ticket(ticket_id, tuple(keys), tuple(path), task, weight, priority)
    ticket.rank, ticket.since, ticket.at = rank, since, key
    return ticket

"""Who tries a key first after its cool-down, and who goes on as a part of that."""

from __future__ import annotations

from headway.stores.given_back import GivenBack
from headway.tickets import job_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.stores.book import Book, Cooldown, KeyState
    from headway.stores.lending import Lending
    from headway.tickets import Ticket


class Probing:
    """The probes of a book's keys."""

    def __init__(self, book: Book, lending: Lending) -> None:
        self._book, self._lending = book, lending

    def proved_by(self, lease: Ticket) -> list[str]:
        """The keys that this lease tried after a cool-down, and that are open by that."""
        tried = [
            state
            for state in map(self._book.key, lease.path)
            if state.cooldown is not None and state.cooldown.probe == lease.id
        ]
        for state in tried:
            state.cooldown = None
        return [state.key for state in tried]

    def stop_trying(self, ticket: Ticket, key: str, *, heir: Ticket | None = None) -> GivenBack:
        """If this one was to try the key first, its part that has passed it does, or anyone."""
        cooldown = self._book.key(key).cooldown
        if cooldown is None or cooldown.probe != ticket.id:
            return GivenBack()
        if heir is not None and heir.at is not None and key in passed(heir):
            cooldown.probe = heir.id
            return GivenBack()
        cooldown.probe = None
        return GivenBack([key])

    def may_ask(self, ticket: Ticket, state: KeyState) -> bool:
        """Whether someone on loan may go on: also as part of what its ancestor has begun."""
        if state.admits_request() or takes_over(ticket, state.key):
            return True
        cooldown = state.cooldown
        return state.within_budget and cooldown is not None and self.tries(ticket, cooldown)

    def tries(self, ticket: Ticket, cooldown: Cooldown) -> bool:
        """Whether the probe of a key is a lease that the ticket stands inside of."""
        return any(ancestor.id == cooldown.probe for ancestor in self._lending.ancestors(ticket))


def passed(ticket: Ticket) -> tuple[str, ...]:
    """The part of a parked ticket's path that comes before the key it waits at."""
    assert ticket.at is not None
    return ticket.path[: ticket.path.index(ticket.at)]


def takes_over(ticket: Ticket, key: str) -> bool:
    """Whether a ticket goes on with its lender's work on a key, as a job's supervisor does."""
    job = job_of(ticket.id)
    return job is not None and job == job_of(ticket.borrowed.get(key, ""))

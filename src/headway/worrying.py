"""Looks once at each wait that lasts a second: may it never end?

That is for the attendant to do: it reads the whole store, for all of them at once.
"""

from __future__ import annotations

import time

from headway.errors import HeadwayError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.stores.base import Store
    from headway.telling import Teller
    from headway.tickets import Ticket

_AFTER_SECONDS = 1.0


class Worries:
    """The waits of one governor that were not looked at yet."""

    def __init__(self, store: Store, teller: Teller) -> None:
        self._store, self._teller = store, teller
        self.forget_after_fork()

    def forget_after_fork(self) -> None:
        """The waiters belong to the parent."""
        self._fresh: dict[str, tuple[Ticket, float]] = {}
        # Where somebody has waited who was started by nobody inside a lease: all such tickets of
        # a process are alike, so one look for each key is enough.
        self._seen: set[str | None] = set()

    def note(self, ticket: Ticket) -> bool:
        """Have a ticket looked at that comes to wait; false if it cannot be one of these."""
        if not (ticket.within or ticket.around or ticket.parents):
            if not self._store.shared or ticket.at in self._seen:
                return False
            self._seen.add(ticket.at)
        self._fresh[ticket.id] = ticket, time.monotonic()
        return True

    def drop(self, ticket_id: str) -> None:
        """It waits no more."""
        self._fresh.pop(ticket_id, None)

    def look(self) -> bool:
        """Warn of those that may never end; false when there is nothing more to look at."""
        if self._fresh:
            late = time.monotonic() - _AFTER_SECONDS
            due = [ticket for ticket, since in list(self._fresh.values()) if since <= late]
            for ticket in due:
                self._fresh.pop(ticket.id, None)
            if due:
                from headway import deadlocks  # noqa: PLC0415 - loaded when somebody waits

                try:
                    deadlocks.warn(self._store, self._teller, due)
                except HeadwayError:
                    pass  # the store cannot be looked at; whoever needs it says so
        return bool(self._fresh)

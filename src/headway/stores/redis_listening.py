"""What a process learns from the server without asking for it.

Messages tell what others have decided; time alone lets someone in; and what a lost message would
have told is looked for.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headway.stores.redis_inbox import Inbox
from headway.stores.redis_rows import decision_from
from headway.tickets import Revoked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from headway.stores.own_tickets import OwnTickets
    from headway.stores.redis_link import Link
    from headway.stores.redis_session import Session

_MANY_TICKETS = 1000


class Listening:
    """One process, as it hears of its own tickets."""

    def __init__(self, link: Link, session: Session, own: OwnTickets) -> None:
        self._session, self._own = session, own
        self.inbox = Inbox(link, session.id, session.pause_seconds)
        # When time alone will let someone in, if that is so and known.
        self.due: float | None = None
        self._due_is_known = False
        # How often we were called to look at that again.
        self.calls = 0

    def listen(self, timeout_seconds: float) -> None:
        """Take note of what was decided, and wait for that if nothing was."""
        if not self._due_is_known:
            self.tend()
        if self.due is not None:
            timeout_seconds = min(timeout_seconds, max(0.0, self.due - time.monotonic()))
        try:
            self._act_on(self.inbox.receive(timeout_seconds))
        except BaseException:  # Ctrl-C: what the messages said is lost with them
            self.inbox.has_gap = True
            raise
        if self.due is not None and self.due <= time.monotonic():
            self.tend()
        if self.inbox.has_broken:
            self.inbox.has_broken = False
            self._session.doubt()
        if self.inbox.has_gap or self._session.has_gap:
            self.inbox.has_gap = self._session.has_gap = False
            try:
                self._catch_up()
            except BaseException:
                self.inbox.has_gap = True
                raise

    def _act_on(self, messages: Sequence[Sequence[Any]]) -> None:
        for ticket_id, row in messages:
            if row[0] == "look":
                self.calls += 1
                self._due_is_known = False
            else:
                self._session.take_note(ticket_id, row)

    def tend(self) -> None:
        """Let in whom time alone has kept out."""
        self._due_is_known = True  # before the look: what is told meanwhile is newer
        try:
            (left,) = self._session.ask(b"tend")
        except BaseException:
            self._due_is_known = False
            raise
        self._set_due(left)

    def expect(self, left: str | bool, calls: int) -> None:  # noqa: FBT001 - as the server tells it
        """Somebody waits, and was told for how long time alone keeps it out; so many calls ago."""
        self._set_due(left)
        self._due_is_known = self.calls == calls  # what was told meanwhile is newer

    def _set_due(self, left: str | bool) -> None:  # noqa: FBT001
        self.due = None if left is False else time.monotonic() + float(left)

    def _catch_up(self) -> None:
        """Find what messages should have told that may be lost."""
        own = [ticket.id for ticket in self._own.alive()]
        for first in range(0, len(own), _MANY_TICKETS):
            self.look_after(own[first : first + _MANY_TICKETS])

    def look_after(self, ticket_ids: Sequence[str]) -> None:
        """Learn what became of some of our tickets; what is still ours stays so for a while."""
        if self._session.is_unheard:
            self._session.beat()
        unknown = []
        for ticket_id, row in self._session.ask(b"look", ticket_ids):
            decision = decision_from(ticket_id, row)
            is_lost = isinstance(decision, Revoked) and decision.token > 0
            if row[0] == "unknown" or (is_lost and self._own.waits(ticket_id)):
                unknown.append(self._own.get(ticket_id))
            else:
                self._own.decided(decision)
        if any(ticket is not None and self._own.is_alive(ticket) for ticket in unknown):
            self._session.announce()  # and hear what became of those

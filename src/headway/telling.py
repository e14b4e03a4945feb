"""Telling people: events to hooks and to the log, at next to no cost when nobody listens.

The records in ``headway.events`` are loaded with the first event that somebody
wants to hear.
"""

from __future__ import annotations

import sys
import time

from headway import journal, plain_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from logging import Logger
    from typing import Any

    from headway.events import Event
    from headway.stores.base import Store
    from headway.tickets import Ticket
    from headway.views import LeaseView

    Hook = Callable[[Event], None]

_DEBUG, _INFO = 10, 20

# So often those who wait for a server ask it for their places.
_DISTANT_LOOK_SECONDS = 5.0


class Teller:
    """The events of one governor."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hooks: list[Hook] = []
        self._logger: Logger | None = None
        self._followed: dict[str, tuple[Ticket, Hook | None, int]] = {}
        self._seen_version = -1
        self._next_look_at = 0.0

    def subscribe(self, hook: Hook) -> Callable[[], None]:
        """Call the hook with every event from now on; the answer ends that."""
        self._hooks.append(hook)
        return lambda: self._hooks.remove(hook) if hook in self._hooks else None

    def forget_after_fork(self) -> None:
        """The waiters belong to the parent."""
        self._followed.clear()

    # -- what happened ------------------------------------------------------------

    def hears_all(self) -> bool:
        """Whether anyone wants to hear of every grant and release; asked each time."""
        logger = self._logger or self._find_logger()
        return bool(self._hooks) or (logger is not None and logger.isEnabledFor(_DEBUG))

    def granted(self, ticket: Ticket, waited_seconds: float) -> None:
        from headway.events import Granted  # noqa: PLC0415

        self._tell(Granted(**_what(ticket), waited_seconds=waited_seconds))

    def released(self, ticket: Ticket, held_seconds: float) -> None:
        from headway.events import Released  # noqa: PLC0415

        self._tell(Released(**_what(ticket), held_seconds=held_seconds))

    def cancelled(self, ticket: Ticket) -> None:
        if self._heard(_INFO):
            from headway.events import Cancelled  # noqa: PLC0415

            self._tell(Cancelled(**_what(ticket)))

    def abandoned(self, ticket: Ticket) -> None:
        """The caller went away before the ticket was settled."""
        self.unfollow(ticket.id)
        self.cancelled(ticket)

    def timed_out(self, ticket: Ticket, timeout_seconds: float) -> None:
        if self._heard(_INFO):
            from headway.events import TimedOut  # noqa: PLC0415

            self._tell(TimedOut(**_what(ticket), timeout_seconds=timeout_seconds))

    def refused(self, ticket: Ticket, reason: str) -> None:
        if self._heard(_INFO):
            from headway.events import Refused  # noqa: PLC0415

            self._tell(Refused(**_what(ticket), reason=reason))

    def lost(self, ticket: Ticket, reason: str) -> None:
        from headway.events import Lost  # noqa: PLC0415

        self._tell(Lost(**_what(ticket), reason=reason))

    def unheard(self, ticket: Ticket, seconds: float) -> None:
        from headway.events import Unheard  # noqa: PLC0415

        self._tell(Unheard(**_what(ticket), seconds=seconds))

    def rate_limited(self, ticket: Ticket, key: str, retry_after_seconds: float | None) -> None:
        """The provider of this model is asked for too much."""
        from headway.events import RateLimited  # noqa: PLC0415

        what = {**_what(ticket), "keys": (key,)}
        self._tell(RateLimited(**what, retry_after_seconds=retry_after_seconds))

    def truncated(self, ticket: Ticket, reason: str) -> None:
        """An answer ended before it was complete."""
        from headway.events import Truncated  # noqa: PLC0415

        self._tell(Truncated(**_what(ticket), reason=reason))

    def reclaimed(self, ticket: Ticket, holder: str) -> None:
        from headway.events import Reclaimed  # noqa: PLC0415

        self._tell(Reclaimed(**_what(ticket), holder=holder))

    def release_failed(self, ticket: Ticket, error: Exception) -> None:
        """Not an event: nothing happened to the lease yet. But nothing is silent."""
        from headway.events import logger  # noqa: PLC0415

        logger.warning("release of %s failed and will be repeated: %s", ticket.id, error)

    def close_failed(self, error: Exception) -> None:
        """At the end of the process: others will find it gone and give back for it."""
        from headway.events import logger  # noqa: PLC0415

        logger.warning("could not say goodbye to the store: %s", error)

    # -- waiting is visible ---------------------------------------------------------

    def hears_of_waiting(self, on_wait: Hook | None) -> bool:
        """Whether anyone wants to hear of a wait."""
        return on_wait is not None or self._heard(_INFO)

    def queued(self, ticket: Ticket, on_wait: Hook | None) -> bool:
        """Announce a wait and follow it from now on; false if nobody wants to know."""
        if not self.hears_of_waiting(on_wait):
            return False
        outlook = self._store.outlook(ticket)
        if outlook is None:
            return False
        from headway import views  # noqa: PLC0415
        from headway.events import Queued, call  # noqa: PLC0415

        row = views.waiting(outlook, ticket)
        event = Queued(
            **_what(ticket),
            position=row.position,
            blocked_by=row.blocked_by,
            holders=views.holders(outlook),
            estimated_wait_seconds=row.estimated_wait_seconds,
        )
        self._followed[ticket.id] = (ticket, on_wait, row.position)
        self._tell(event)
        if on_wait is not None:
            call(on_wait, event)
        return True

    def doubted(self, ticket: Ticket, key: str, holders: tuple[LeaseView, ...], fix: str) -> None:
        """A wait may never end."""
        from headway.events import PossibleDeadlock  # noqa: PLC0415
        from headway.views import BlockedBy  # noqa: PLC0415

        blocked_by = BlockedBy(key, "possible_deadlock")
        what = _what(ticket)
        self._tell(PossibleDeadlock(**what, blocked_by=blocked_by, holders=holders, fix=fix))

    def unfollow(self, ticket_id: str) -> None:
        """This ticket waits no more."""
        self._followed.pop(ticket_id, None)

    def follow(self) -> bool:
        """Tell those whose place in line changed; false when there is nobody to follow."""
        followed = dict(self._followed)
        now = time.monotonic()
        if not followed or now < self._next_look_at:
            return bool(followed)
        if self._store.distant:
            self._next_look_at = now + _DISTANT_LOOK_SECONDS
        version = self._store.version()
        if version == self._seen_version:
            return True
        self._seen_version = version
        places = self._store.positions([ticket for ticket, _, _ in followed.values()])
        # Counting places is the one look that grows with the queue: it may take at most
        # a twentieth of the time.
        self._next_look_at = max(self._next_look_at, now + 20 * (time.monotonic() - now))
        from headway.events import MovedUp, call  # noqa: PLC0415

        for ticket_id, (ticket, on_wait, before) in followed.items():
            position = places.get(ticket_id, before)
            if position == before or ticket_id not in self._followed:
                continue
            self._followed[ticket_id] = (ticket, on_wait, position)
            event = MovedUp(**_what(ticket), position=position, estimated_wait_seconds=None)
            self._tell(event)
            if on_wait is not None:
                call(on_wait, event)
        return True

    # -- inside ---------------------------------------------------------------------

    def _heard(self, level: int) -> bool:
        if self._hooks:
            return True
        logger = self._logger or self._find_logger()
        return logger is not None and logger.isEnabledFor(level)

    def _find_logger(self) -> Logger | None:
        """The log, if anyone in this process uses logging at all."""
        # Another thread may be in the middle of loading it.
        get_logger = getattr(sys.modules.get("logging"), "getLogger", None)
        if get_logger is not None:
            self._logger = get_logger("headway")
        return self._logger

    def _tell(self, event: Event) -> None:
        from headway.events import call, log  # noqa: PLC0415

        log(event)
        for hook in tuple(self._hooks):
            call(hook, event)


def _what(ticket: Ticket) -> dict[str, Any]:
    return {"ticket_id": ticket.id, "task": ticket.task, "keys": ticket.keys, "at": time.time()}


def warn(text: str) -> None:
    """Say something that no event is about."""
    journal.log().warning("%s", plain_text.one_line(text))

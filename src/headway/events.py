"""What happened, as frozen records for hooks, and as lines in the ``headway`` log."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headway import journal, plain_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.views import BlockedBy, LeaseView

    Hook = Callable[["Event"], None]

logger = journal.log()
# So many holders are named in a log line; the event has them all.
_NAMED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to one ticket or lease."""

    kind: ClassVar[str] = "event"
    level: ClassVar[int] = logging.DEBUG

    ticket_id: str
    task: str | None
    keys: tuple[str, ...]
    at: float

    def __str__(self) -> str:
        task = f" ({self.task})" if self.task else ""
        keys = " + ".join(self.keys)
        # Labels and commands are those of other processes, and go into logs.
        return plain_text.one_line(f"{self.kind} {self.ticket_id}{task} on {keys}{self._details()}")

    def _details(self) -> str:
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(Event):
    """The ticket has waited long enough (100 ms) for people to want to know why."""

    kind = "queued"
    level = logging.INFO

    position: int
    blocked_by: BlockedBy
    holders: tuple[LeaseView, ...]
    estimated_wait_seconds: float | None

    def _details(self) -> str:
        held = _named(self.holders)
        return (
            f": position {self.position}, {self.blocked_by.sentence}"
            f"{_about(self.estimated_wait_seconds)}" + (f", held by {held}" if held else "")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleDeadlock(Event):
    """The ticket has waited for a second for those who may be waiting for it: told once."""

    kind = "possible deadlock"
    level = logging.WARNING

    blocked_by: BlockedBy
    holders: tuple[LeaseView, ...]
    fix: str

    def _details(self) -> str:
        return (
            f": {self.blocked_by.key} is held by {_named(self.holders)}, and this wait may keep"
            f" that from ending. {self.fix}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedUp(Event):
    """The ticket's place in line changed."""

    kind = "moved up"
    level = logging.INFO

    position: int
    estimated_wait_seconds: float | None

    def _details(self) -> str:
        return f": position {self.position}{_about(self.estimated_wait_seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted(Event):
    """The ticket is a lease now."""

    kind = "granted"

    waited_seconds: float

    def _details(self) -> str:
        return f" after {self.waited_seconds:.3f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Released(Event):
    """The lease ended and its slots went on."""

    kind = "released"

    held_seconds: float

    def _details(self) -> str:
        return f" after {self.held_seconds:.3f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Event):
    """The ticket left the line before its turn, by its caller's wish or another's."""

    kind = "cancelled"
    level = logging.INFO


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(Event):
    """The ticket's time in the queue ran out."""

    kind = "timed out"
    level = logging.INFO

    timeout_seconds: float

    def _details(self) -> str:
        return f" after {self.timeout_seconds:g} s in the queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused(Event):
    """The ticket could not be granted and does not wait."""

    kind = "refused"
    level = logging.INFO

    reason: str

    def _details(self) -> str:
        return f": {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost(Event):
    """The lease was taken from its holder, who may still be working."""

    kind = "lost"
    level = logging.ERROR

    reason: str

    def _details(self) -> str:
        return f": {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheard(Event):
    """The store could not be reached for so long that the lease may be another's by now.

    If the store still has it for this holder when it can be reached again, nothing was lost.
    """

    kind = "unheard"
    level = logging.WARNING

    seconds: float

    def _details(self) -> str:
        return (
            f": the store was not reached for {self.seconds:g} s, so its slot may be"
            " another's by now; what it guards goes on"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed(Event):
    """The lease or ticket of a dead process was given back."""

    kind = "reclaimed"
    level = logging.WARNING

    holder: str

    def _details(self) -> str:
        return f" from {self.holder}, which is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimited(Event):
    """The provider answered "too many requests" to what runs under the lease.

    ``keys`` are those of the model that is meant, not those of the lease.
    """

    kind = "rate limited"
    level = logging.INFO

    retry_after_seconds: float | None

    def _details(self) -> str:
        wait = self.retry_after_seconds
        return "" if wait is None else f": to be tried again in {wait:g} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated(Event):
    """The answer to the request under the lease ended before it was complete."""

    kind = "truncated"
    level = logging.WARNING

    reason: str

    def _details(self) -> str:
        return f": {self.reason}"


def log(event: Event) -> None:
    """Write the event to the ``headway`` logger at its own level."""
    if logger.isEnabledFor(event.level):
        logger.log(event.level, "%s", event)


def call(hook: Hook, event: Event) -> None:
    """Tell one hook; what it raises is its own trouble and goes to the log."""
    try:
        hook(event)
    except Exception:
        logger.exception("a hook failed on: %s", event)


def _named(leases: tuple[LeaseView, ...]) -> str:
    named = [f"{lease.task or lease.id} (pid {lease.holder.pid})" for lease in leases]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more


def _about(seconds: float | None) -> str:
    return "" if seconds is None else f", about {seconds:.0f} s"

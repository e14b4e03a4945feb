"""What happens in a home, told from two looks at it.

A governor's own events are those of its process only. Who wants to see everyone's
compares one snapshot with the next.
"""

from __future__ import annotations

import os
import queue
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from headway import background
from headway.cli import output, pacing, picture
from headway.errors import HeadwayError, StoreUnavailable
from headway.stores.liveness import RECLAIMED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headway.governor import Governor
    from headway.views import LeaseView, LimitView, Snapshot, WaitingView

Kind = Literal["granted", "released", "died", "queued", "left", "cancelled", "limit"]
# Holders whose end can be told from their release: each costs a descriptor.
_MAX_CARDS = 256
_MAX_EVENTS = 200
# Ages and the dead are looked after this often though nothing was written.
_REFRESH_SECONDS = 1.0
_CLOCK_DRIFT_SECONDS = 0.5
# A look at a huge home takes its time; it may take this share of ours.
_SHARE = 4


@dataclass(frozen=True, slots=True)
class Happening:
    """One thing that happened to a ticket, a lease or a limit."""

    at: float
    kind: Kind
    who: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a home, and what happened up to then; or why it could not be seen."""

    snapshot: Snapshot
    events: tuple[Happening, ...] = ()
    trouble: str = ""


class Cards:
    """The cards of those who run, kept open to see how they end.

    Whoever gives back for a dead holder notes it on its card before it removes it.
    """

    def __init__(self, live_directory: str) -> None:
        self._directory = live_directory
        self._open: dict[str, int] = {}

    def keep(self, leases: Iterable[LeaseView]) -> None:
        """Open the cards of these, and close all others."""
        holders = {_holder(lease) for lease in leases}
        for gone in self._open.keys() - holders:
            os.close(self._open.pop(gone))
        for holder in holders - self._open.keys():
            if len(self._open) >= _MAX_CARDS:
                return
            path = os.path.join(self._directory, f"{holder}.lock")
            try:
                self._open[holder] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # gone already
                continue

    def says_died(self, lease: LeaseView) -> bool:
        """Whether others had to give this lease back."""
        card = self._open.get(_holder(lease))
        return card is not None and os.pread(card, 1, 0) == RECLAIMED.encode()

    def close(self) -> None:
        """Close them all."""
        self.keep(())


class Diary:
    """Writes down what happened, look by look."""

    def __init__(self, cards: Cards) -> None:
        self._cards = cards
        self._before: Snapshot | None = None
        self._cancelled: set[str] = set()
        self.events: deque[Happening] = deque(maxlen=_MAX_EVENTS)

    def cancelled(self, ticket_id: str) -> None:
        """This ticket is about to leave because we wanted it to."""
        self._cancelled.add(ticket_id)

    def read(self, snapshot: Snapshot) -> tuple[Happening, ...]:
        """Note what differs from the last look; everything so far, oldest first."""
        if self._before is not None:
            news = [*self._ends(self._before, snapshot), *_beginnings(self._before, snapshot)]
            self.events.extend(sorted(news, key=lambda event: event.at))
        self._before = snapshot
        self._cards.keep(snapshot.leases)
        return tuple(self.events)

    def _ends(self, before: Snapshot, after: Snapshot) -> Iterator[Happening]:
        leases, now = {lease.id for lease in after.leases}, time.time()
        for lease in before.leases:
            if lease.id not in leases:
                died = self._cards.says_died(lease)
                held = output.brief_length(now - lease.since)
                detail = f"without giving back, after {held}" if died else f"after {held}"
                yield Happening(now, "died" if died else "released", label(lease), detail)
        present = leases | {ticket.id for ticket in after.waiting}
        for ticket in before.waiting:
            if ticket.id not in present:
                by_us = ticket.id in self._cancelled
                waited = output.brief_length(now - ticket.since)
                yield Happening(
                    now,
                    "cancelled" if by_us else "left",
                    label(ticket),
                    f"after waiting {waited}" if by_us else f"the line after {waited}",
                )


def _beginnings(before: Snapshot, after: Snapshot) -> Iterator[Happening]:
    running = {lease.id for lease in before.leases}
    waited = {ticket.id: ticket for ticket in before.waiting}
    for lease in after.leases:
        if lease.id not in running:
            ticket = waited.get(lease.id)
            after_wait = (
                f", waited {output.brief_length(lease.since - ticket.since)}" if ticket else ""
            )
            yield Happening(
                lease.since, "granted", label(lease), output.joined(lease.keys) + after_wait
            )
    for ticket in after.waiting:
        if ticket.id not in waited and ticket.id not in running:
            blocked = ticket.blocked_by
            detail = f"number {ticket.position}, {blocked.key} is {blocked.in_words}"
            yield Happening(ticket.since, "queued", label(ticket), detail)
    limits = {line.key: line for line in before.limits}
    for line in after.limits:
        known = limits.get(line.key)
        if known is not None:
            yield from _changes(known, line)
        if _cools_anew(known, line):
            yield Happening(time.time(), "limit", line.key, f"is {pacing.cooling(line)}")


def _changes(before: LimitView, after: LimitView) -> Iterator[Happening]:
    if before.limit != after.limit:
        detail = f"{before.limit} → {after.limit} slots"
        yield Happening(time.time(), "limit", after.key, detail)
    if before.paused != after.paused:
        yield Happening(time.time(), "limit", after.key, "is paused" if after.paused else "goes on")
    budgets = before.requests_per_minute, after.requests_per_minute
    if budgets[0] != budgets[1]:
        detail = f"{budgets[0]} → {budgets[1]} requests a minute"
        yield Happening(time.time(), "limit", after.key, detail)
    if pacing.is_cooling(before) and not pacing.is_cooling(after):
        yield Happening(time.time(), "limit", after.key, "cools no more")


def _cools_anew(before: LimitView | None, after: LimitView) -> bool:
    """Whether a cool-down began, got longer, or came to its probe."""
    if not pacing.is_cooling(after):
        return False
    if before is None or not pacing.is_cooling(before) or before.probing != after.probing:
        return True
    # What is left is measured anew with each look, and the two clocks may drift a little.
    return (after.cooling_until or 0.0) > (before.cooling_until or 0.0) + _CLOCK_DRIFT_SECONDS


def label(ticket: LeaseView | WaitingView) -> str:
    """What people call it: its task, or else its id."""
    return output.clean(ticket.task or ticket.id)


def _holder(lease: LeaseView) -> str:
    return lease.id.partition("-")[0]


class Lookout:
    """Looks at a home in a thread of its own, so that a stuck store holds no key press up."""

    def __init__(
        self, governor: Governor, diary: Diary, *, interval_seconds: float, tell: Callable[[], None]
    ) -> None:
        self._governor, self._diary = governor, diary
        self._interval_seconds, self._tell = interval_seconds, tell
        self._wishes: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._version, self._looked_at = -1, 0.0
        self.look = self._fresh_look()

    def start(self) -> None:
        """Look from now on."""
        background.start(self._watch)

    def cancel(self, ticket_id: str) -> None:
        """End this wait soon."""
        self._wishes.put(ticket_id)

    def stop(self) -> None:
        """Look no more."""
        self._wishes.put(None)

    def _watch(self) -> None:
        while True:
            began = time.monotonic()
            self._try(self._refresh)
            pause = max(self._interval_seconds, _SHARE * (time.monotonic() - began))
            try:
                wish = self._wishes.get(timeout=pause)
            except queue.Empty:
                continue
            if wish is None:
                return
            self._try(lambda: self._fulfil(wish))  # noqa: B023 - called at once

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (HeadwayError, OSError) as error:
            reason = error.reason if isinstance(error, StoreUnavailable) else str(error)
            trouble = f"the store is unavailable: {output.clean(reason)}"
            self._show(replace(self.look, trouble=trouble))

    def _refresh(self) -> None:
        version = self._governor.version()
        recent = time.monotonic() - self._looked_at < _REFRESH_SECONDS
        if version == self._version and recent and not self.look.trouble:
            return
        self._version = version
        self._show(self._fresh_look())

    def _fresh_look(self) -> Look:
        snapshot = picture.snapshot(self._governor)
        self._looked_at = time.monotonic()
        return Look(snapshot, self._diary.read(snapshot))

    def _fulfil(self, ticket_id: str) -> None:
        self._diary.cancelled(ticket_id)
        self._governor.cancel(ticket_id)

    def _show(self, look: Look) -> None:
        self.look = look
        self._tell()

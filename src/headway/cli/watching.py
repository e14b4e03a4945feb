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
from headway.cli import Failure, ending_runs, output, pacing, picture
from headway.errors import HeadwayError, StoreUnavailable
from headway.tickets import job_name, job_of
from headway.views import WaitingView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headway.cli.endings import Cards, Verdicts
    from headway.cli.finding import Found
    from headway.governor import Governor
    from headway.views import LeaseView, LimitView, Snapshot

Kind = Literal[
    "granted", "released", "died", "lost", "ended", "queued", "left", "cancelled", "limit"
]
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


class Diary:
    """Writes down what happened, look by look."""

    def __init__(self, endings: Cards | Verdicts) -> None:
        self._endings = endings
        self._before: Snapshot | None = None
        self._looked_at = time.time()
        # Of a server that has lost what it knew: those who have not come back to it yet.
        self._missing: set[str] = set()
        self._cancelled: set[str] = set()
        self.events: deque[Happening] = deque(maxlen=_MAX_EVENTS)

    def cancelled(self, ticket_id: str) -> None:
        """This ticket is about to leave because we wanted it to."""
        self._cancelled.add(ticket_id)

    def read(self, snapshot: Snapshot) -> tuple[Happening, ...]:
        """Note what differs from the last look; everything so far, oldest first."""
        if self._before is not None:
            is_settling = self._endings.is_settling
            if is_settling:
                snapshot = self._believed(self._before, snapshot)
            self.events.extend(self._news(self._before, snapshot))
            if not is_settling:
                self._missing.clear()
        self._before, self._looked_at = snapshot, time.time()
        self._endings.keep(snapshot.leases)
        return tuple(self.events)

    def _news(self, before: Snapshot, after: Snapshot) -> list[Happening]:
        """First what ended, for it may have made room for what began."""
        begun = sorted(_beginnings(before, after), key=lambda event: event.at)
        # All of it was after the last look, whatever another machine's clock says.
        ended_at = max(self._looked_at, min([time.time(), *(event.at for event in begun)]))
        begun = [replace(event, at=max(event.at, ended_at)) for event in begun]
        return [*self._ends(before, after, ended_at), *begun]

    def _believed(self, before: Snapshot, after: Snapshot) -> Snapshot:
        """With those who were there before: they may only not have said so again yet."""
        there = _works(after.leases) | _works(after.waiting)
        leases = [lease for lease in before.leases if _work(lease) not in there]
        waiting = [ticket for ticket in before.waiting if _work(ticket) not in there]
        self._missing = {lease.id for lease in leases}
        return replace(after, leases=(*after.leases, *leases), waiting=(*after.waiting, *waiting))

    def _ends(self, before: Snapshot, after: Snapshot, at: float) -> Iterator[Happening]:
        ended = _ended(before, after)
        found = self._endings.find(ended)
        for lease in ended:
            kind, how = found.get(lease.id) or self._unmarked(lease)
            held = f"after {output.brief_length(time.time() - lease.since)}"
            yield Happening(at, kind, _name(lease), f"{how}, {held}" if how else held)
        present = _works(after.leases) | _works(after.waiting)
        for ticket in before.waiting:
            if _work(ticket) not in present:
                by_us = ticket.id in self._cancelled
                waited = output.brief_length(time.time() - ticket.since)
                yield Happening(
                    at,
                    "cancelled" if by_us else "left",
                    _name(ticket),
                    f"after waiting {waited}" if by_us else f"the line after {waited}",
                )

    def _unmarked(self, lease: LeaseView) -> tuple[Kind, str]:
        """The end of a lease that has left no trace."""
        return ("ended", "not seen again") if lease.id in self._missing else ("released", "")


# -- jobs, which have two tickets ---------------------------------------------------------


def _work(one: LeaseView | WaitingView) -> object:
    """What it is for. A job's worker asks, and its supervisor takes over with another ticket.

    Two homes of one machine may have jobs of one number on a server: if those have the same
    keys and no task, they are taken for one.
    """
    job = job_of(one.id)
    host = one.holder.host or os.uname().nodename
    return one.id if job is None else (job, host, one.task, one.keys)


def _works(ones: Iterable[LeaseView | WaitingView]) -> set[object]:
    return {_work(one) for one in ones}


def _hands_over(lease: LeaseView) -> bool:
    """Whether it is the worker's, which it gives back as soon as the supervisor has its own."""
    job = job_of(lease.id)
    return job is not None and not lease.holder.command.startswith(f"headway job {job}:")


def _granted(before: Snapshot, after: Snapshot) -> list[LeaseView]:
    known = {lease.id for lease in before.leases}
    taken_over = _works([lease for lease in before.leases if _hands_over(lease)])
    new = [lease for lease in after.leases if lease.id not in known]
    return _one_each(lease for lease in new if _work(lease) not in taken_over)


def _ended(before: Snapshot, after: Snapshot) -> list[LeaseView]:
    known, go_on = {lease.id for lease in after.leases}, _works(after.leases)
    over = [lease for lease in before.leases if lease.id not in known]
    return _one_each(lease for lease in over if not (_hands_over(lease) and _work(lease) in go_on))


def _one_each(leases: Iterable[LeaseView]) -> list[LeaseView]:
    """One of each job's leases: the last, which is the supervisor's."""
    return list({_work(lease): lease for lease in leases}.values())


def _name(one: LeaseView | WaitingView) -> str:
    """The same for all tickets of a job."""
    job = job_of(one.id)
    return label(one) if one.task or job is None else job_name(job)


def _beginnings(before: Snapshot, after: Snapshot) -> Iterator[Happening]:
    waited = {_work(ticket): ticket for ticket in before.waiting}
    for lease in _granted(before, after):
        ticket = waited.get(_work(lease))
        after_wait = f", waited {output.brief_length(lease.since - ticket.since)}" if ticket else ""
        yield Happening(
            lease.since, "granted", _name(lease), output.joined(lease.keys) + after_wait
        )
    for ticket in after.waiting:
        if _work(ticket) not in waited:
            blocked = ticket.blocked_by
            detail = f"number {ticket.position}, {blocked.sentence}"
            yield Happening(ticket.since, "queued", _name(ticket), detail)
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


class Lookout:
    """Looks at a home in a thread of its own, so that a stuck store holds no key press up."""

    def __init__(
        self, governor: Governor, diary: Diary, *, interval_seconds: float, tell: Callable[[], None]
    ) -> None:
        self._governor, self._diary = governor, diary
        self._interval_seconds, self._tell = interval_seconds, tell
        self._wishes: queue.SimpleQueue[Found | None] = queue.SimpleQueue()
        self._version, self._looked_at = -1, 0.0
        self.look = self._fresh_look()

    def start(self) -> None:
        """Look from now on."""
        background.start(self._watch)

    def cancel(self, one: Found) -> None:
        """End this wait or command soon."""
        self._wishes.put(one)

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

    def _fulfil(self, one: Found) -> None:
        if one.stopped or not isinstance(one, WaitingView):
            try:
                ending_runs.end(one)
            except Failure as failure:
                self._show(replace(self.look, trouble=failure.message))
            return
        self._diary.cancelled(one.id)
        self._governor.cancel(one.id)

    def _show(self, look: Look) -> None:
        self.look = look
        self._tell()

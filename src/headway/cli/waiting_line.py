"""What ``headway run`` shows while it waits: one live line, or a line for each change."""

from __future__ import annotations

import _thread
import os
import sys
import time
from typing import TYPE_CHECKING

from headway import background
from headway.cli import opening, output, pacing, rows
from headway.errors import HeadwayError
from headway.events import Queued

if TYPE_CHECKING:
    from headway.events import Event
    from headway.governor import Governor
    from headway.views import LeaseView, Snapshot, WaitingView

_TICK_SECONDS = 1.0
_NAMED = 3


class WaitingLine:
    """Shows one ticket's wait on stderr."""

    def __init__(self, governor: Governor) -> None:
        self._governor = governor
        self._is_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._began_at = time.monotonic()
        self._ticket_id = ""
        self._seconds_a_place: float | None = None
        # Re-entrant: a signal handler may have something to say. Nothing is looked for while it is
        # kept: that may find a dead holder, and whoever says so has to draw.
        self._drawing = _thread.RLock()
        self._over = _thread.allocate_lock()
        self._over.acquire()
        opening.say_warnings(self._say)

    def show(self, event: Event) -> None:
        """The wait began to matter, or the place in line changed."""
        if self._is_live:
            if not self._ticket_id:
                self._ticket_id = event.ticket_id
                background.start(self._keep_drawing)
        elif isinstance(event, Queued):
            self._say_first(event)
        else:
            self._say_next(event)

    def end(self, waited_seconds: float | None) -> None:
        """It is over; said so if it ended well."""
        self._over.release()
        with self._drawing:
            self._ticket_id = ""
            self._erase()
        if waited_seconds is not None:
            output.talk(f"running after {output.length(waited_seconds)} in the queue")

    def _say(self, text: str) -> None:
        """Say something else meanwhile; a live line is drawn again below it."""
        with self._drawing:
            if self._ticket_id:
                self._erase()
            output.talk(text)

    def _erase(self) -> None:
        if self._is_live:
            output.draw("\r\x1b[K")

    # -- a terminal ------------------------------------------------------------------------

    def _keep_drawing(self) -> None:
        while True:
            try:
                self._draw(self._governor.snapshot())
            except (HeadwayError, OSError):
                pass  # the store or the terminal may be back the next time
            if self._over.acquire(True, _TICK_SECONDS):
                return

    def _draw(self, snapshot: Snapshot) -> None:
        with self._drawing:
            row = next((row for row in snapshot.waiting if row.id == self._ticket_id), None)
            if row is None:
                return
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            text = f"headway: {_sentence(snapshot, row)}"[: columns - 1]
            output.draw(f"\r\x1b[K{text}")

    # -- no terminal -----------------------------------------------------------------------

    def _say_first(self, event: Queued) -> None:
        if event.estimated_wait_seconds is not None:
            self._seconds_a_place = event.estimated_wait_seconds / event.position
        blocked = event.blocked_by
        is_timed = blocked.reason in ("cooling", "budget")
        limits = self._governor.snapshot().limits if is_timed else ()
        held = event.holders if not is_timed else ()
        holders = f", held by {_names(held)}" if held else ""
        output.talk(
            f"waiting for {blocked.key},"
            f" which is {pacing.trouble(pacing.find(limits, blocked.key), blocked)}:"
            f" place {event.position}{self._about(event.position)}{holders}"
        )

    def _say_next(self, event: Event) -> None:
        place: int = getattr(event, "position", 0)
        output.talk(f"place {place}{self._about(place)}")

    def _about(self, place: int) -> str:
        return "" if self._seconds_a_place is None else _about(self._seconds_a_place * place)


def holding(snapshot: Snapshot, key: str) -> list[str]:
    """Who holds a key and since when, in words."""
    return [
        f"{_name(lease)} for {output.age(lease.since)} ({rows.process(lease.holder)}):"
        f" {output.clean(lease.holder.command)}"
        for lease in snapshot.leases_on(key)
    ]


def _sentence(snapshot: Snapshot, row: WaitingView) -> str:
    key = row.blocked_by.key
    total = sum(other.blocked_by.key == key for other in snapshot.waiting)
    so_far = f"{output.age(row.since)} so far"
    limit = pacing.find(snapshot.limits, key)
    if limit is not None and row.blocked_by.reason == "cooling" and pacing.is_cooling(limit):
        trouble, rest = pacing.how_long(limit), [pacing.why_cooling(limit), so_far]
    elif row.blocked_by.reason == "budget":
        trouble, rest = pacing.trouble(limit, row.blocked_by), [so_far]
    else:
        held = snapshot.leases_on(key)
        trouble = row.blocked_by.in_words
        rest = [f"held by {_names(held)}" if held else "", so_far]
    place = f"place {row.position} of {total}{_about(row.estimated_wait_seconds)}"
    return " · ".join(filter(None, (f"waiting for {key} ({trouble})", place, *rest)))


def _names(leases: list[LeaseView] | tuple[LeaseView, ...]) -> str:
    more = f" and {len(leases) - _NAMED} more" if len(leases) > _NAMED else ""
    return ", ".join(_name(lease) for lease in leases[:_NAMED]) + more


def _name(lease: LeaseView) -> str:
    return output.clean(lease.task or rows.process(lease.holder))


def _about(seconds: float | None) -> str:
    return "" if seconds is None else f", about {output.length(seconds)}"

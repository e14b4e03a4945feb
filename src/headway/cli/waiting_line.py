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
    from collections.abc import Callable

    from headway.events import Event
    from headway.governor import Governor
    from headway.views import LeaseView, Snapshot, WaitingView

_TICK_SECONDS = 1.0
_NAMED = 3
# So much is left of a key in a narrow window.
_LEAST_COLUMNS = 12


class WaitingLine:
    """Shows one ticket's wait on stderr."""

    def __init__(self, governor: Governor, is_in_foreground: Callable[[], bool]) -> None:
        self._governor, self._is_in_foreground = governor, is_in_foreground
        self._can_be_live = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._is_drawn = False
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
        if self._can_be_live and not self._ticket_id:
            self._ticket_id = event.ticket_id
            background.start(self._keep_drawing)
        if self._is_live:
            return
        if isinstance(event, Queued):
            self._say_first(event)
        else:
            self._say_next(event)

    @property
    def _is_live(self) -> bool:
        """Whether one line is drawn again and again: not over what the user of a shell types."""
        return self._can_be_live and self._is_in_foreground()

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
        if self._is_drawn:
            self._is_drawn = False
            output.draw("\r\x1b[K")

    # -- a terminal ------------------------------------------------------------------------

    def _keep_drawing(self) -> None:
        while True:
            try:
                if self._is_live:
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
            # With room for the sign that a terminal shows for Ctrl-C: then it can be erased.
            self._is_drawn = True
            output.draw(f"\r\x1b[K{_sentence(snapshot, row, columns - 3)}")

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


def _sentence(snapshot: Snapshot, row: WaitingView, columns: int) -> str:
    """The live line: what matters most comes first, and the end gives way in a narrow window."""
    key = row.blocked_by.key
    total = sum(other.blocked_by.key == key and not other.stopped for other in snapshot.waiting)
    limit = pacing.find(snapshot.limits, key)
    held: list[LeaseView] = []
    trouble, reason = row.blocked_by.in_words, ""
    if limit is not None and row.blocked_by.reason == "cooling" and pacing.is_cooling(limit):
        trouble, reason = pacing.how_long(limit), pacing.why_cooling(limit)
    elif row.blocked_by.reason == "budget":
        trouble = pacing.trouble(limit, row.blocked_by)
    else:
        held = snapshot.leases_on(key)
    so_far = output.brief_age(row.since)
    left = "" if row.estimated_wait_seconds is None else f", {rows.estimate(row)} left"
    first = f"headway: place {row.position} of {total}{left} · waiting {so_far} for "
    room = columns - _width(f"{first} ({trouble})")
    first += f"{output.shorten_keys(key, max(_LEAST_COLUMNS, room))} ({trouble})"
    for count in range(min(_NAMED, len(held)), 0, -1):
        whole = output.clean(f"{first} · held by {_names(held, count)}")
        if _width(whole) <= columns:
            return whole
    if held:
        reason = f"held by {_names(held, 1)}"
    if _width(first) + _LEAST_COLUMNS > columns:
        reason = ""  # nothing of it could be read
    return _cut(output.clean(" · ".join(filter(None, (first, reason)))), columns)


def _cut(text: str, columns: int) -> str:
    """The text, with a sign where its end was left away."""
    if _width(text) <= columns:
        return text
    while _width(text) > columns - 1:
        text = text[:-1]
    return f"{text.rstrip(' ·')}…"


def _width(text: str) -> int:
    """How many columns of a terminal it takes."""
    from unicodedata import combining, east_asian_width  # noqa: PLC0415 - often not needed

    if text.isascii():
        return len(text)
    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )


def _names(leases: list[LeaseView] | tuple[LeaseView, ...], count: int = _NAMED) -> str:
    more = f" and {len(leases) - count} more" if len(leases) > count else ""
    return ", ".join(_name(lease) for lease in leases[:count]) + more


def _name(lease: LeaseView) -> str:
    return output.clean(lease.task or rows.process(lease.holder))


def _about(seconds: float | None) -> str:
    return "" if seconds is None else f", about {output.length(seconds)}"

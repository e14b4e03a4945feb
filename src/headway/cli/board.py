"""Draws a home for people: bars per key, who runs, who waits, what happened last."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len, set_cell_size
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headway.cli import output, pacing
from headway.cli.rows import command_cell, elsewhere, estimate
from headway.cli.watching import label
from headway.limits import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from headway.cli.watching import Happening, Look
    from headway.views import LeaseView, LimitView, Snapshot, WaitingView

BAR_COLUMNS = 24
# In a narrower window, columns that are not needed most are left out.
_NARROW_COLUMNS = 60
_USED, _RESERVED, _FREE = ("━", "green"), ("╍", "yellow"), ("─", "bright_black")
# Each slot is a piece of its own as long as a piece can be told from a gap.
_SMALLEST_PIECE = 2
_QUIET = "bright_black"
_STYLES = {
    "granted": "green",
    "released": "",
    "died": "red",
    "lost": "red",
    "ended": "",
    "queued": "yellow",
    "left": "",
    "cancelled": "red",
    "limit": "cyan",
}


# -- bars ---------------------------------------------------------------------------


def bar(line: LimitView, columns: int = BAR_COLUMNS) -> Text:
    """One key's slots: used, reserved, free."""
    if not isinstance(line.limit, int):
        return Text("no limit", _QUIET)
    used = min(line.used, line.limit)
    reserved = min(line.reserved, line.limit - used)
    pieces = [_USED] * used + [_RESERVED] * reserved + [_FREE] * (line.limit - used - reserved)
    size = (columns + 1) // line.limit - 1
    if size >= _SMALLEST_PIECE:
        return Text(" ").join(Text(glyph * size, style) for glyph, style in pieces)
    return _scaled(used, reserved, line.limit, columns)


def _scaled(used: int, reserved: int, limit: int, columns: int) -> Text:
    """Many slots: what is in use is never shown as nothing, nor as all unless it is."""
    filled = _share(used, limit, columns)
    taken = _share(used + reserved, limit, columns)
    parts = ((_USED, filled), (_RESERVED, taken - filled), (_FREE, columns - taken))
    return Text.assemble(*((glyph * count, style) for (glyph, style), count in parts))


def _share(part: int, whole: int, columns: int) -> int:
    if part in {0, whole}:
        return columns if part else 0
    return min(columns - 1, max(1, round(part / whole * columns)))


def key_row(line: LimitView) -> tuple[RenderableType, ...]:
    """A key, its bar, its figures and what else there is to say."""
    remarks = Text("  ").join(
        Text(text, style)
        for text, style, applies in (
            ("paused", "bold yellow", line.paused),
            (_cooling(line), "bold cyan", pacing.is_cooling(line)),
            (f"{line.waiting} waiting", "yellow", line.waiting),
            (pacing.use(line), _budget_style(line), pacing.has_budget(line)),
            (f"{line.reserved} reserved", _QUIET, line.reserved),
        )
        if applies
    )
    limit = "" if line.limit == UNLIMITED else f"/{line.limit}"
    over = isinstance(line.limit, int) and line.used > line.limit
    figures = Text(f"{line.used}{limit}", "red" if over else "")
    return Fitted(line.key, output.shorten_keys), bar(line), figures, remarks


def _cooling(line: LimitView) -> str:
    if line.cooling_until is None:
        return "one tries first"
    return f"cooling {output.brief_length(max(0.0, line.cooling_until - time.time()))}"


def _budget_style(line: LimitView) -> str:
    return _QUIET if line.next_request_at is None else "yellow"


def worth_showing(snapshot: Snapshot) -> list[LimitView]:
    """The keys that have a limit or something to tell: limited ones first."""
    named = {key for lease in snapshot.leases for key in lease.keys}
    shown = [
        line
        for line in snapshot.limits
        if pacing.is_limited(line) or line.key in named or line.waiting or line.paused
    ]
    return sorted(shown, key=lambda line: not pacing.is_limited(line))


def shorten_middle(text: str, columns: int) -> str:
    """A label without its middle: many begin alike, and many end alike."""
    if cell_len(text) <= columns:
        return text
    tail = text[-((columns - 1) // 2) :] if columns > _SMALLEST_PIECE else ""
    return set_cell_size(text, columns - 1 - cell_len(tail)).rstrip() + "…" + tail


# -- sections -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """A heading and how its texts get along with little room."""

    heading: str
    width: int | None = None
    ratio: int | None = None
    justify: Literal["left", "right"] = "left"
    # Left out where the window is narrow.
    is_extra: bool = False


class Fitted:
    """A text that is shortened, when there is too little room, where it matters least."""

    def __init__(self, text: str, shorten: Callable[[str, int], str], style: str = "") -> None:
        self._text, self._shorten, self._style = text, shorten, style

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self._shorten(self._text, options.max_width), self._style, no_wrap=True)


@dataclass(slots=True)
class Section:
    """A table with a title, of which as many rows are shown as there is room for."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[RenderableType]]
    empty: str
    newest_last: bool = False
    chosen: int | None = None
    room: int = field(default=1)

    @property
    def wanted(self) -> int:
        """The rows that would show it all."""
        return max(1, len(self.rows))

    def narrow(self) -> None:
        """Leave out what a narrow window has no room for."""
        kept = [place for place, column in enumerate(self.columns) if not column.is_extra]
        self.columns = [self.columns[place] for place in kept]
        self.rows = [[row[place] for place in kept] for row in self.rows]

    def draw(self) -> RenderableType:
        """The heading and the rows that fit."""
        table = Table(box=None, expand=True, pad_edge=False, padding=(0, 2, 0, 0))
        for column in self.columns:
            table.add_column(
                Text(column.heading, "bold" if column is self.columns[0] else _QUIET),
                width=column.width,
                ratio=column.ratio,
                justify=column.justify,
                no_wrap=True,
                overflow="ellipsis",
            )
        first, shown, left_out = self._window()
        for place, row in enumerate(shown, first):
            table.add_row(*row, style="reverse" if place == self.chosen else "")
        if not self.rows:
            return Group(table, Text(self.empty, _QUIET))
        if left_out:
            return Group(table, Text(f"… and {left_out} more", _QUIET))
        return table

    def _window(self) -> tuple[int, Sequence[Sequence[RenderableType]], int]:
        """The first row shown, the rows, and how many are left out."""
        total = len(self.rows)
        if total <= self.room:
            return 0, self.rows, 0
        if self.newest_last:
            return total - self.room, self.rows[total - self.room :], 0
        count = max(1, self.room - 1)
        first = max(0, min((self.chosen or 0) - count // 2, total - count))
        # In one row there is no room to say so; the title has the number.
        return first, self.rows[first : first + count], total - count if self.room > 1 else 0


def keys_section(look: Look) -> Section:
    """Bars."""
    return Section(
        (
            Column("KEYS", ratio=3),
            Column("SLOTS", width=BAR_COLUMNS, is_extra=True),
            Column("USED", width=7, justify="right"),
            Column("", ratio=3),
        ),
        [key_row(line) for line in worth_showing(look.snapshot)],
        "no limits, nothing in use",
    )


def running_section(look: Look, chosen: str | None = None) -> Section:
    """Who runs, longest first."""
    leases = look.snapshot.leases
    return Section(
        (
            Column(f"RUNNING {len(leases)}", ratio=4),
            Column("ON", ratio=4, is_extra=True),
            Column("FOR", width=6, justify="right"),
            Column("PID", width=7, justify="right", is_extra=True),
            Column("COMMAND", ratio=5),
        ),
        [_lease_row(lease, chosen) for lease in leases],
        "nothing runs",
        chosen=next((at for at, lease in enumerate(leases) if lease.id == chosen), None),
    )


def _lease_row(lease: LeaseView, chosen: str | None) -> tuple[RenderableType, ...]:
    keys = output.joined(lease.keys) + (f" x{lease.weight}" if lease.weight > 1 else "")
    return (
        Fitted(f"{'▸' if lease.id == chosen else ''}{label(lease)}", shorten_middle),
        Fitted(keys, output.shorten_keys),
        Text(output.brief_age(lease.since)),
        Text(str(lease.holder.pid or "?"), _QUIET),
        Text(elsewhere(lease.holder, "{}: ") + _command(command_cell(lease)), _QUIET),
    )


def _command(command: str) -> str:
    """The command, its program without the directory."""
    program, space, arguments = command.partition(" ")
    return program.rpartition("/")[2] + space + arguments


def waiting_section(look: Look, chosen: str | None = None) -> Section:
    """Who waits, the next in line first."""
    waiting = look.snapshot.waiting
    digits = len(str(max((ticket.position for ticket in waiting), default=1)))
    return Section(
        (
            Column(f"WAITING {len(waiting)}", ratio=4),
            Column("BLOCKED BY", ratio=4),
            Column("FOR", width=6, justify="right", is_extra=True),
            Column("ABOUT", width=9, justify="right"),
        ),
        [_waiting_row(ticket, digits, chosen) for ticket in waiting],
        "nobody waits",
        chosen=next((at for at, ticket in enumerate(waiting) if ticket.id == chosen), None),
    )


def _waiting_row(
    ticket: WaitingView, digits: int, chosen: str | None
) -> tuple[RenderableType, ...]:
    about = "" if ticket.estimated_wait_seconds is None else estimate(ticket)
    mark = "▸" if ticket.id == chosen else " "
    return (
        Fitted(f"{mark}{ticket.position:>{digits}}  {label(ticket)}", shorten_middle),
        Fitted(ticket.blocked_by.sentence, output.shorten_keys, "yellow"),
        Text(output.brief_age(ticket.since)),
        Text(about),
    )


def events_section(events: Sequence[Happening]) -> Section:
    """What happened, the newest last."""
    return Section(
        (
            Column("EVENTS", width=8),
            Column("", width=9),
            Column("", ratio=2),
            Column("", ratio=4, is_extra=True),
        ),
        [_event_row(event) for event in events],
        "nothing happened since you look",
        newest_last=True,
    )


def _event_row(event: Happening) -> tuple[RenderableType, ...]:
    return (
        Text(time.strftime("%H:%M:%S", time.localtime(event.at)), _QUIET),
        Text(event.kind, _STYLES[event.kind]),
        Fitted(event.who, shorten_middle),
        Text(event.detail, _QUIET),
    )


# -- the whole ----------------------------------------------------------------------


def share_out(room: int, wanted: Sequence[int]) -> list[int]:
    """Give each as many rows as it wants, or in turn one row more while there are some."""
    given = [0] * len(wanted)
    while room > 0 and given != list(wanted):
        for place, most in enumerate(wanted):
            if given[place] < most and room > 0:
                given[place] += 1
                room -= 1
    return given


def headline(title: str, look: Look, columns: int) -> Text:
    """One line above everything."""
    snapshot = look.snapshot
    figures = f"{len(snapshot.leases)} running · {len(snapshot.waiting)} waiting"
    room = max(1, columns - len(figures) - 2)
    shown = output.shorten_end(title, room)
    return Text.assemble((shown, "bold"), " " * (room - len(shown) + 2), (figures, _QUIET))


def page(
    look: Look,
    *,
    title: str,
    columns: int,
    rows: int | None,
    chosen: str | None = None,
    footer: Sequence[Text] = (),
) -> RenderableType:
    """The whole picture; with ``rows`` it is made to fit just these."""
    sections = [
        keys_section(look),
        running_section(look, chosen),
        waiting_section(look, chosen),
        events_section(look.events),
    ]
    if columns < _NARROW_COLUMNS:
        for section in sections:
            section.narrow()
    lines: list[RenderableType] = [headline(title, look, columns)]
    if look.trouble:
        lines.append(Text(look.trouble, "bold red", no_wrap=True, overflow="ellipsis"))
    used = len(lines)
    # Each section stands under an empty line and its heading, and the footer under one.
    wanted = [section.wanted for section in sections]
    if rows is not None:
        wanted = share_out(rows - used - len(footer) - 2 * len(sections) - 1, wanted)
    for section, room in zip(sections, wanted, strict=True):
        section.room = room
        if room:
            lines += [Text(""), section.draw()]
            used += 2 + room
    if rows is not None:
        lines += [Text("")] * (rows - used - len(footer))
    return Group(*lines, *footer)

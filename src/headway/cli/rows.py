"""What the tables of leases and of tickets have in common."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from headway.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headway.cli.output import Cell
    from headway.views import HolderView, LeaseView, WaitingView

STYLES = {
    "full": "yellow",
    "paused": "magenta",
    "cooling": "cyan",
    "budget": "cyan",
    "settling": "cyan",
    "possible_deadlock": "red",
    "stopped": "magenta",
}


def show_columns(columns: Mapping[str, Sequence[Cell] | None]) -> None:
    """A table from its columns; those that are missing are left out."""
    given = {name: cells for name, cells in columns.items() if cells is not None}
    output.table(
        list(given),
        list(zip(*given.values(), strict=True)),
        right=("#", "SLOTS", "FOR", "EST.", "PRIO", "PID", "WAITING"),
        shortened={
            "COMMAND": output.shorten_end,
            "TASK": output.shorten_end,
            "ON": output.shorten_keys,
            "BLOCKED BY": output.shorten_blocked,
            "KEY": output.shorten_keys,
            "IN USE": output.shorten_end,
        },
    )


def host_cells(ones: Sequence[LeaseView | WaitingView]) -> list[str] | None:
    """The machines that they are on, if that is not this one for all of them."""
    hosts = [output.clean(one.holder.host) for one in ones]
    return hosts if set(hosts) - {os.uname().nodename} else None


def process(holder: HolderView) -> str:
    """A holder's pid, and its machine if that is not this one."""
    return f"pid {holder.pid}{elsewhere(holder, ' on {}')}"


def elsewhere(holder: HolderView, text: str) -> str:
    """The text with a holder's machine in it, if that is not this one."""
    return "" if holder.host == os.uname().nodename else text.format(output.clean(holder.host))


def task_cell(one: LeaseView | WaitingView) -> str:
    """The task, or a sign that it has none."""
    return output.clean(one.task) if one.task else "-"


def command_cell(one: LeaseView | WaitingView) -> str:
    """What the holder runs; that it does so under headway is plain from the table."""
    command = output.clean(one.holder.command).removeprefix("headway run ")
    if command.startswith("headway job "):
        command = command.removeprefix("headway ")
    return f"(stopped) {command}" if one.stopped else command


def blocked_cell(ticket: WaitingView) -> Cell:
    """Which key has no room, and why."""
    blocked = ticket.blocked_by
    if ticket.stopped:
        return "stopped", STYLES["stopped"]
    words = blocked.reason.replace("_", " ")
    text = f"{blocked.key} {words}" if blocked.is_at_key else blocked.in_words
    return text, STYLES.get(blocked.reason, "")


def estimate(ticket: WaitingView) -> str:
    """How long the wait may still take, for a column."""
    seconds = ticket.estimated_wait_seconds
    if ticket.stopped:
        return "-"
    if ticket.estimated_wait_range is not None and seconds is not None:
        low, high = ticket.estimated_wait_range
        return f"{output.brief_length(low)}-{output.brief_length(max(1, high))}"
    return "?" if seconds is None else f"~{output.brief_length(max(1, seconds))}"

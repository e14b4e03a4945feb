"""``headway queue``: everyone who waits, under what they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headway.cli import missing_worker, opening, output, pacing, picture, rows
from headway.cli.arguments import json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.views import BlockedBy, Snapshot, WaitingView


# So many of one line are shown.
_SHOWN = 100


@click.command("queue")
@click.option("--all", "is_all", is_flag=True, help="All of them, however many there are.")
@json_option
def command(*, is_all: bool, as_json: bool) -> None:
    """Show everyone who waits, and what for.

    # is the place in the line of the key that blocks; a ticket waits at one key at a
    time. FOR is how long it waits already, EST. how long it may still take, judging by
    how long slots were held lately and how long the present ones are (a range if little is
    known yet, ? if nothing is).

    \b
    Example:
      headway queue
      headway why issue-16
    """
    with opening.governor() as governor:
        snapshot = picture.snapshot(governor)
        missing_worker.mention(governor)
    if as_json:
        output.as_json(snapshot.as_dict()["waiting"])
        return
    if not snapshot.waiting:
        output.data("Nobody waits.")
        return
    lines: dict[BlockedBy, list[WaitingView]] = {}
    for ticket in snapshot.waiting:
        lines.setdefault(ticket.blocked_by, []).append(ticket)
    for number, (blocked, tickets) in enumerate(lines.items()):
        if number:
            output.data("")
        output.heading(_title(blocked, snapshot, len(tickets)))
        shown = tickets if is_all else tickets[:_SHOWN]
        _show(blocked, shown)
        if len(tickets) > len(shown):
            output.data(f"… and {len(tickets) - len(shown)} more (--all)")


def _title(blocked: BlockedBy, snapshot: Snapshot, waiting: int) -> str:
    if blocked.reason == "stopped":
        return f"stopped in the line of {blocked.key} and passed over: {waiting}"
    limit = pacing.find(snapshot.limits, blocked.key)
    use = "" if limit is None else f" {limit.used}/{limit.limit} in use,"
    if not blocked.is_at_key:
        return f"{blocked.key}: {blocked.in_words}, {waiting} waiting"
    return f"{blocked.key}: {pacing.trouble(limit, blocked)},{use} {waiting} waiting"


def _show(blocked: BlockedBy, tickets: Sequence[WaitingView]) -> None:
    with_task = any(ticket.task for ticket in tickets)
    elsewhere = any(ticket.keys != (blocked.key,) for ticket in tickets)
    with_priority = any(ticket.priority for ticket in tickets)
    with_weight = any(ticket.weight > 1 for ticket in tickets)
    rows.show_columns(
        {
            "#": [str(ticket.position) for ticket in tickets],
            "ID": [ticket.id for ticket in tickets],
            "TASK": [rows.task_cell(ticket) for ticket in tickets] if with_task else None,
            "ON": [output.joined(ticket.keys) for ticket in tickets] if elsewhere else None,
            "SLOTS": [str(ticket.weight) for ticket in tickets] if with_weight else None,
            "PRIO": [str(ticket.priority) for ticket in tickets] if with_priority else None,
            "FOR": [output.brief_age(ticket.since) for ticket in tickets],
            "EST.": [rows.estimate(ticket) for ticket in tickets],
            "HOST": rows.host_cells(tickets),
            "PID": [str(ticket.holder.pid) for ticket in tickets],
            "COMMAND": [rows.command_cell(ticket) for ticket in tickets],
        }
    )

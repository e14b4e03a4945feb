"""``headway status``: the limits and their use, who runs and who waits."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from headway import keys
from headway.cli import arguments, completing, opening, output, picture, rows
from headway.limits import UNLIMITED, Terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headway.cli.output import Cell
    from headway.views import LeaseView, LimitView, Snapshot, WaitingView

# So many waiters are shown here; `headway queue` shows all.
_WAITING_SHOWN = 10


@click.command("status")
@click.argument("key", required=False, callback=arguments.key, shell_complete=completing.keys)
@arguments.json_option
def command(key: str | None, *, as_json: bool) -> None:
    """Show limits and use, who runs and who waits.

    With KEY, only that key, those above it and those below it. SOURCE says where a
    limit was written: in the home's file, in the environment, in code, or nowhere
    (default). In the list of those who wait, # is the place in the line of the key that
    blocks, and EST. how long it may still take (? if nothing is known yet).

    \b
    Example:
      headway status
      headway status llm/anthropic
      headway status --json | jq '.leases[].task'
    """
    with opening.governor() as governor:
        snapshot, lines = picture.snapshot(governor), governor.lines()
    shown = snapshot if key is None else _around(key, snapshot)
    if as_json:
        output.as_json(shown.as_dict())
        return
    limits = [limit for limit in shown.limits if key or _is_of_interest(limit)]
    _show_limits(limits, Terms(lines), paused={x.key for x in snapshot.limits if x.paused})
    if shown.leases:
        output.data("")
        _show_running(shown.leases)
    if shown.waiting:
        output.data("")
        _show_waiting(shown.waiting)
    if not shown.leases and not shown.waiting:
        _say_that_nothing_runs(key)
    if key:
        _mention_neighbours(key, snapshot, shown)


def _around(key: str, snapshot: Snapshot) -> Snapshot:
    """What concerns one key: rows on it, above it and below it."""

    def concerns(others: Iterable[str]) -> bool:
        return any(key in keys.lineage(other) or other in keys.lineage(key) for other in others)

    return replace(
        snapshot,
        limits=tuple(limit for limit in snapshot.limits if concerns([limit.key])),
        leases=tuple(lease for lease in snapshot.leases if concerns(lease.keys)),
        waiting=tuple(ticket for ticket in snapshot.waiting if concerns(ticket.keys)),
    )


def _is_of_interest(limit: LimitView) -> bool:
    """Every key that was ever asked for is known; those without a limit matter while in use."""
    return limit.limit != UNLIMITED or bool(limit.used or limit.waiting or limit.paused)


# -- limits ---------------------------------------------------------------------------


def _show_limits(limits: Sequence[LimitView], terms: Terms, *, paused: set[str]) -> None:
    output.table(
        ("KEY", "SLOTS", "WAITING", "SOURCE", "STATE"),
        [
            (
                limit.key,
                f"{limit.used}/{limit.limit}",
                str(limit.waiting) if limit.waiting else "-",
                _source(limit.key, terms),
                _state(limit, paused),
            )
            for limit in limits
        ],
        right=("WAITING",),
        shortened={"KEY": output.shorten_keys, "SOURCE": output.shorten_end},
    )


def _source(key: str, terms: Terms) -> str:
    """Where the limit was written, and on which line if that is a pattern."""
    line = terms.line_for(key)
    if not line.pattern:
        return "-"
    return line.source if line.pattern == key else f"{line.source}: {line.pattern}"


def _state(limit: LimitView, paused: set[str]) -> Cell:
    """What stops admission on this key, if anything does."""
    above = [key for key in keys.lineage(limit.key)[:-1] if key in paused]
    reserved = f", {limit.reserved} reserved" if limit.reserved else ""
    if limit.paused:
        return "paused", rows.STYLES["paused"]
    if above:
        return f"paused at {above[0]}", rows.STYLES["paused"]
    if limit.cooling_until is not None and limit.cooling_until > time.time():
        left = output.brief_length(limit.cooling_until - time.time())
        return f"cooling for {left}", rows.STYLES["cooling"]
    if isinstance(limit.limit, int) and limit.used > limit.limit:
        return f"over by {limit.used - limit.limit}, draining", rows.STYLES["full"]
    if limit.free == 0:
        return f"full{reserved}", rows.STYLES["full"]
    return reserved.removeprefix(", ")


# -- running and waiting ----------------------------------------------------------------


def _show_running(leases: Sequence[LeaseView]) -> None:
    """A table of leases."""
    with_task, with_weight = any(x.task for x in leases), any(x.weight > 1 for x in leases)
    columns = {
        "ID": [lease.id for lease in leases],
        "TASK": [rows.task_cell(lease) for lease in leases] if with_task else None,
        "ON": [output.joined(lease.keys) for lease in leases],
        "SLOTS": [str(lease.weight) for lease in leases] if with_weight else None,
        "FOR": [output.brief_age(lease.since) for lease in leases],
        "PID": [str(lease.holder.pid) for lease in leases],
        "COMMAND": [rows.command_cell(lease) for lease in leases],
    }
    output.heading(f"{len(leases)} running")
    rows.show_columns(columns)


def _show_waiting(waiting: Sequence[WaitingView]) -> None:
    shown = _by_line(waiting)[:_WAITING_SHOWN]
    with_task = any(ticket.task for ticket in shown)
    columns = {
        "#": [str(ticket.position) for ticket in shown],
        "ID": [ticket.id for ticket in shown],
        "TASK": [rows.task_cell(ticket) for ticket in shown] if with_task else None,
        "ON": [output.joined(ticket.keys) for ticket in shown],
        "FOR": [output.brief_age(ticket.since) for ticket in shown],
        "BLOCKED BY": [rows.blocked_cell(ticket) for ticket in shown],
        "EST.": [rows.estimate(ticket) for ticket in shown],
    }
    output.heading(f"{len(waiting)} waiting")
    rows.show_columns(columns)
    if len(waiting) > len(shown):
        output.data(f"and {len(waiting) - len(shown)} more; all of them: headway queue --all")


def _by_line(waiting: Sequence[WaitingView]) -> list[WaitingView]:
    """Those who wait at one key together, in their order."""
    lines: dict[str, list[WaitingView]] = {}
    for ticket in waiting:
        lines.setdefault(ticket.blocked_by.key, []).append(ticket)
    return [ticket for line in lines.values() for ticket in line]


# -- what to do next ----------------------------------------------------------------------


def _say_that_nothing_runs(key: str | None) -> None:
    here, option = (f" on {key}", f" --on {key}") if key else ("", "")
    output.data("")
    output.data(f"Nothing runs{here}, nobody waits. Start something: headway run{option} -- CMD")


def _mention_neighbours(key: str, snapshot: Snapshot, shown: Snapshot) -> None:
    """Say who else takes slots of the limited keys above this one."""
    above = set(keys.lineage(key)[:-1])
    limited = [x.key for x in shown.limits if x.key in above and x.limit != UNLIMITED]
    for ancestor in limited:
        sharing = [lease for lease in snapshot.leases_on(ancestor) if lease not in shown.leases]
        if sharing:
            output.data("")
            output.data(f"{len(sharing)} more on {ancestor}; see them: headway status {ancestor}")

"""``headway status``: the limits and their use, who runs and who waits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from headway import keys
from headway.cli import (
    arguments,
    completing,
    missing_worker,
    opening,
    output,
    pacing,
    picture,
    rows,
)
from headway.limits import Terms
from headway.stores import server_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headway.cli.output import Cell
    from headway.config import Settings
    from headway.views import LeaseView, LimitView, Snapshot, WaitingView

# So many waiters are shown here; `headway queue` shows all.
_WAITING_SHOWN = 10


@click.command("status")
@click.argument("key", required=False, callback=arguments.key, shell_complete=completing.keys)
@arguments.json_option
def command(key: str | None, *, as_json: bool) -> None:
    """Show limits and use, who runs and who waits.

    The first line names the home, or the server, that counts the slots.
    With KEY, only that key, those above it and those below it. SOURCE says where a
    limit was written: in the home's file, in the environment, in code, or nowhere
    (default). REQ/MIN is there if a key has a budget: how many requests were let in
    during the last minute, of how many. A key that cools down is left alone because its
    provider wished so; STATE counts down to the end of that. In the list of those who
    wait, # is the place in the line of the key that blocks, and EST. how long it may
    still take (? if nothing is known yet).

    \b
    Example:
      headway status
      headway status llm/anthropic
      headway status --json | jq '.leases[].task'
    """
    with opening.governor() as governor:
        snapshot, lines = picture.snapshot(governor), governor.lines()
        worker = missing_worker.facts(governor)
        missing_worker.mention(governor)
        settings = governor.settings
    shown = snapshot if key is None else _around(key, snapshot)
    if as_json:
        place = {"home": settings.home, "server": server_of(settings)}
        output.as_json({**shown.as_dict(), "worker": worker, **place})
        return
    output.data(_place(settings))
    output.data("")
    limits = [limit for limit in shown.limits if key or _is_of_interest(limit)]
    _show_limits(limits, Terms(lines), {limit.key: limit for limit in snapshot.limits})
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


def _place(settings: Settings) -> str:
    """``home ~/.headway``, or the server."""
    kind = "server" if settings.store_url else "home"
    room = output.console().width - len(kind) - 1
    return f"{kind} {output.shorten_start(output.clean(opening.place(settings)), room)}"


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
    return pacing.is_limited(limit) or bool(limit.used or limit.waiting or limit.paused)


# -- limits ---------------------------------------------------------------------------


def _show_limits(
    limits: Sequence[LimitView], terms: Terms, everything: dict[str, LimitView]
) -> None:
    with_budget = any(map(pacing.has_budget, limits))
    columns: dict[str, list[Cell] | None] = {
        "KEY": [limit.key for limit in limits],
        "SLOTS": [f"{limit.used}/{limit.limit}" for limit in limits],
        "REQ/MIN": [_requests(limit) for limit in limits] if with_budget else None,
        "WAITING": [str(limit.waiting) if limit.waiting else "-" for limit in limits],
        "SOURCE": [_source(limit.key, terms) for limit in limits],
        "STATE": [_state(limit, everything) for limit in limits],
    }
    given = {name: cells for name, cells in columns.items() if cells is not None}
    output.table(
        list(given),
        list(zip(*given.values(), strict=True)),
        right=("WAITING",),
        shortened={
            "KEY": output.shorten_keys,
            "SOURCE": output.shorten_end,
            "STATE": output.shorten_end,
        },
    )


def _requests(limit: LimitView) -> str:
    if not pacing.has_budget(limit):
        return "-"
    return f"{limit.requests_lately}/{limit.requests_per_minute}"


def _source(key: str, terms: Terms) -> str:
    """Where slots and budget were written, and on which line if that is a pattern."""
    lines = [line for line in (terms.line_for(key), terms.budget_line_for(key)) if line.pattern]
    sources = [
        line.source if line.pattern == key else f"{line.source}: {line.pattern}" for line in lines
    ]
    return " + ".join(dict.fromkeys(sources)) or "-"


def _state(limit: LimitView, everything: dict[str, LimitView]) -> Cell:
    """What stops admission on this key, if anything does."""
    lineage = keys.lineage(limit.key)
    above = [everything[key] for key in lineage[:-1] if key in everything]
    if limit.paused:
        return "paused", rows.STYLES["paused"]
    for other in above:
        if other.paused:
            return f"paused at {other.key}", rows.STYLES["paused"]
    if pacing.is_cooling(limit):
        return pacing.cooling(limit), rows.STYLES["cooling"]
    for other in above:
        if pacing.is_cooling(other):
            return f"cooling at {other.key}", rows.STYLES["cooling"]
    over = limit.used - limit.limit if isinstance(limit.limit, int) else 0
    slots = f"over by {over}, draining" if over > 0 else "full" if limit.free == 0 else ""
    reserved = f"{limit.reserved} reserved" if limit.reserved and over <= 0 else ""
    spent = pacing.next_request(limit)
    style = rows.STYLES["full"] if slots else rows.STYLES["budget"] if spent else ""
    return ", ".join(filter(None, (slots, reserved, spent))), style


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
        "HOST": rows.host_cells(leases),
        "PID": [str(lease.holder.pid) for lease in leases],
        "COMMAND": [rows.command_cell(lease) for lease in leases],
    }
    stopped = sum(lease.stopped for lease in leases)
    output.heading(f"{len(leases)} running" + (f", {stopped} of them stopped" if stopped else ""))
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
        "HOST": rows.host_cells(shown),
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
    limited = [x.key for x in shown.limits if x.key in above and pacing.is_limited(x)]
    for ancestor in limited:
        sharing = [lease for lease in snapshot.leases_on(ancestor) if lease not in shown.leases]
        if sharing:
            output.data("")
            output.data(f"{len(sharing)} more on {ancestor}; see them: headway status {ancestor}")

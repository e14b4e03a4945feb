"""``headway check``: whether a slot is free now, in one line and an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headway import keys
from headway.cli import NO_SLOT, arguments, completing, opening, output, pacing
from headway.limits import UNCAPPED, UNLIMITED, Terms

if TYPE_CHECKING:
    from headway.governor import Governor
    from headway.views import Capacity


@click.command("check")
@click.argument("key", callback=arguments.key, shell_complete=completing.keys)
@arguments.json_option
def command(key: str, *, as_json: bool) -> int:
    """Say whether a slot on KEY is free now.

    The exit code is 0 if so and 75 if not. For scripts and planners: nothing is taken
    and nothing is queued. The keys above KEY count too, and a slot that somebody waits
    for is not free. Nor is one on a key that is paused, cools down, or is out of
    requests for this minute.

    \b
    Example:
      headway check agent/opencode && echo "go on"
      until headway check llm/anthropic; do sleep 10; done
    """
    with opening.governor(may_be_off=True) as governor:
        capacity = governor.capacity(key)
        line = "" if as_json else _line(governor, capacity)
    if as_json:
        from dataclasses import asdict  # noqa: PLC0415

        output.as_json(asdict(capacity))
    else:
        output.data(line)
    return 0 if capacity.blocked_by is None else NO_SLOT


def _line(governor: Governor, capacity: Capacity) -> str:
    if capacity.blocked_by is None:
        free = capacity.free
        if free == UNLIMITED:
            return f"{capacity.key}: free, no limit here or above, {capacity.used} in use"
        room = f"room for {free}" if _is_metered(governor, capacity.key) else ""
        room = room or f"{output.count(int(free), 'slot')} free"
        return f"{capacity.key}: {room}, {capacity.used} in use"
    blocked = capacity.blocked_by
    at = governor.capacity(blocked.key)
    is_timed = blocked.reason in ("cooling", "budget")
    limits = governor.snapshot().limits if is_timed else ()
    reason = pacing.trouble(pacing.find(limits, blocked.key), blocked)
    where = "" if blocked.key == capacity.key else f"{blocked.key} is "
    wait = capacity.estimated_wait_seconds
    return (
        f"{capacity.key}: no slot now: {where}{reason}, {at.used}/{at.limit} in use,"
        f" {capacity.waiting} waiting"
        + (f", about {output.length(wait)}" if wait is not None else "")
    )


def _is_metered(governor: Governor, key: str) -> bool:
    """Whether a budget may be what leaves so little room, and not slots."""
    terms = Terms(governor.lines())
    return any(terms.budget(one) < UNCAPPED for one in keys.lineage(key))

"""``headway check``: whether a slot is free now, in one line and an exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headway.cli import NO_SLOT, arguments, completing, opening, output
from headway.limits import UNLIMITED

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
    for is not free.

    \b
    Example:
      headway check agent/opencode && echo "go on"
      until headway check llm/anthropic; do sleep 10; done
    """
    with opening.governor() as governor:
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
        return f"{capacity.key}: {output.count(int(free), 'slot')} free, {capacity.used} in use"
    blocked = capacity.blocked_by
    at = governor.capacity(blocked.key)
    reason = blocked.reason.replace("_", " ")
    where = "" if blocked.key == capacity.key else f"{blocked.key} is "
    wait = capacity.estimated_wait_seconds
    return (
        f"{capacity.key}: no slot now: {where}{reason}, {at.used}/{at.limit} in use,"
        f" {capacity.waiting} waiting"
        + (f", about {output.length(wait)}" if wait is not None else "")
    )

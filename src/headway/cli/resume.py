"""``headway resume``: ends a pause, and a cool-down before its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headway.cli import NOT_THERE, arguments, completing, opening, output, pacing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.views import Capacity, LimitView


@click.command("resume")
@click.argument("key", callback=arguments.key, shell_complete=completing.closed)
def command(key: str) -> int:
    """End a pause or a cool-down of KEY: let people in again.

    Those in line go first. A cool-down ends at once, for everyone, and nobody tries the
    key first: do that if you know better than the provider said. If KEY was neither
    paused nor cooling down, the exit code is 1.

    \b
    Example:
      headway resume llm/openai
    """
    with opening.governor() as governor:
        before = governor.snapshot().limits
        governor.resume(key)
        capacity = governor.capacity(key)
    limit = pacing.find(before, key)
    if limit is None or not (limit.paused or pacing.is_cooling(limit)):
        output.talk(f"{key} was not paused{_others(before)}")
        return NOT_THERE
    output.data(_sentence(limit, capacity))
    return 0


def _sentence(limit: LimitView, capacity: Capacity) -> str:
    waiting = f", {capacity.waiting} waiting" if capacity.waiting else ""
    ended, was = "", ""
    if pacing.is_cooling(limit):
        ended, was = ", its cool-down is ended", f"; it was {pacing.cooling(limit)}"
    return f"{limit.key} resumed{ended}: {capacity.used}/{capacity.limit} in use{waiting}{was}"


def _others(limits: Sequence[LimitView]) -> str:
    paused = [limit.key for limit in limits if limit.paused]
    cooling = [limit.key for limit in limits if pacing.is_cooling(limit)]
    named = [
        f"{what} are: {', '.join(keys)}"
        for what, keys in (("paused", paused), ("cooling", cooling))
        if keys
    ]
    return f"; {'; '.join(named)}" if named else "; nothing is"

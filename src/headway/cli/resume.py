"""``headway resume``: ends a pause."""

from __future__ import annotations

import click

from headway.cli import NOT_THERE, arguments, completing, opening, output


@click.command("resume")
@click.argument("key", callback=arguments.key, shell_complete=completing.paused)
def command(key: str) -> int:
    """Let people in on KEY again after a pause.

    Those in line go first. If KEY was not paused, the exit code is 1.

    \b
    Example:
      headway resume llm/openai
    """
    with opening.governor() as governor:
        paused = {limit.key for limit in governor.snapshot().limits if limit.paused}
        governor.resume(key)
        capacity = governor.capacity(key)
    if key not in paused:
        others = f"; paused are: {', '.join(sorted(paused))}" if paused else "; nothing is"
        output.talk(f"{key} was not paused{others}")
        return NOT_THERE
    waiting = f", {capacity.waiting} waiting" if capacity.waiting else ""
    output.data(f"{key} resumed: {capacity.used}/{capacity.limit} in use{waiting}")
    return 0

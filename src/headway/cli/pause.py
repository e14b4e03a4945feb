"""``headway pause``: lets nobody in on a key, until ``headway resume``."""

from __future__ import annotations

import click

from headway.cli import arguments, completing, opening, output


@click.command("pause")
@click.argument("key", callback=arguments.key, shell_complete=completing.keys)
def command(key: str) -> None:
    """Let nobody in on KEY and all below it.

    What runs goes on. Who asks meanwhile waits in line. The pause stands where
    the limits do, and lasts until `headway resume`.

    \b
    Example:
      headway pause llm/openai
      headway resume llm/openai
    """
    with opening.governor() as governor:
        was_paused = any(x.key == key and x.paused for x in governor.snapshot().limits)
        governor.pause(key)
        used = governor.capacity(key).used
    if was_paused:
        output.data(f"{key} was paused already; to end that: headway resume {key}")
        return
    going_on = f", {output.count(used, 'slot')} in use until given back" if used else ""
    output.data(f"{key} paused: nobody is let in here or below{going_on}")

"""``headway prune``: forgets finished jobs."""

from __future__ import annotations

import click

from headway.cli import arguments, opening, output


@click.command("prune")
@click.option(
    "--older-than",
    metavar="TIME",
    callback=arguments.duration,
    help="Only those that ended so long ago.",
)
@click.option("--keep", metavar="N", type=click.IntRange(0), help="All but so many of the newest.")
def command(*, older_than: float | None, keep: int | None) -> None:
    """Forget finished jobs and delete their logs.

    A worker does this by itself for what is older than jobs.keep (30 days), or more
    than jobs.keep_count (1000).

    \b
    Example:
      headway prune --older-than 7d
      headway prune --keep 100
    """
    with opening.governor() as governor:
        pruned = governor.jobs.prune(older_than=older_than, keep=keep)
    output.data(f"{output.count(len(pruned), 'job')} forgotten")

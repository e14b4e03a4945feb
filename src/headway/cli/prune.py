"""``headway prune``: forgets finished jobs."""

from __future__ import annotations

import sys

import click

from headway.cli import arguments, opening, output

# So many are named that would be forgotten.
_NAMED = 20


@click.command("prune")
@click.option(
    "--older-than",
    metavar="TIME",
    callback=arguments.duration,
    help="Only those that ended so long ago.",
)
@click.option("--keep", metavar="N", type=click.IntRange(0), help="All but so many of the newest.")
@click.option("--dry-run", is_flag=True, help="Only say which they are.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def command(*, older_than: float | None, keep: int | None, dry_run: bool, yes: bool) -> int:
    """Forget finished jobs and delete their logs.

    Without options: what is older than jobs.keep (30 days), or more than jobs.keep_count
    (1000), as a worker does by itself. On a terminal it asks first. All finished jobs:
    --keep 0.

    \b
    Example:
      headway prune --older-than 7d
      headway prune --keep 100 --dry-run
    """
    with opening.governor() as governor:
        jobs = governor.jobs
        if older_than is None and keep is None:
            older_than = governor.settings.keep_seconds
            keep = governor.settings.keep_count
        found = jobs.prunable(older_than=older_than, keep=keep)
        if dry_run:
            named = ", ".join(map(str, found[:_NAMED])) + (" …" if len(found) > _NAMED else "")
            listed = f": {named}" if found else ""
            output.data(f"{output.count(len(found), 'job')} would be forgotten{listed}")
            return 0
        if found and not yes and sys.stdin.isatty() and sys.stderr.isatty():
            question = f"Forget {output.count(len(found), 'finished job')} and delete their logs?"
            click.confirm(question, abort=True, err=True)
        pruned = jobs.prune(older_than=older_than, keep=keep)
    output.data(f"{output.count(len(pruned), 'job')} forgotten")
    return 0

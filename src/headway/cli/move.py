"""``headway move``: changes a job's place in line."""

from __future__ import annotations

import click

from headway.cli import NOT_THERE, USAGE, Failure, arguments, completing, opening, output


@click.command("move")
@click.argument("job", metavar="ID", type=arguments.JOB, shell_complete=completing.jobs)
@click.option("--first", is_flag=True, help="In front of everyone who waits.")
def command(job: int, *, first: bool) -> int:
    """Move a queued job to the front of the line.

    In front of everyone who waits for the same slots now, not only of the other jobs.

    \b
    Example:
      headway move 16 --first
    """
    if not first:
        raise Failure(f"where to? headway move {job} --first", USAGE)
    with opening.governor() as governor:
        if governor.jobs.move_first(job):
            output.data(f"job {job} is next")
            return 0
        output.talk(f"job {job} does not wait, it is {governor.jobs.get(job).state}")
    return NOT_THERE

"""``headway approve``: lets held jobs run."""

from __future__ import annotations

import click

from headway.cli import NOT_THERE, arguments, opening, output


@click.command("approve")
@arguments.jobs
def command(jobs: tuple[int, ...]) -> int:
    """Queue jobs that were held.

    Their place is that of someone who comes now. The exit code is 1 if one is not held.

    \b
    Example:
      headway approve 16
    """
    code = 0
    with opening.governor() as governor:
        for job in jobs:
            if governor.jobs.approve(job):
                output.data(f"job {job} queued")
            else:
                output.talk(f"job {job} is not held, it is {governor.jobs.get(job).state}")
                code = NOT_THERE
    return code

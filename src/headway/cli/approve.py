"""``headway approve``: lets held jobs run."""

from __future__ import annotations

import click

from headway.cli import NOT_THERE, arguments, job_names, opening, output
from headway.jobs.states import HELD


@click.command("approve")
@arguments.jobs
def command(names: tuple[str, ...]) -> int:
    """Queue jobs that were held.

    Their place is that of someone who comes now. ID is a job's number, or its task's name:
    of several jobs with that name, the one that is held. The exit code is 1 if one is not
    held.

    \b
    Example:
      headway approve 16
      headway approve issue-16
    """
    code = 0
    with opening.governor() as governor:
        for job in [job_names.find_job(governor, name, among=[HELD]) for name in names]:
            if governor.jobs.approve(job):
                output.data(f"job {job} queued")
            else:
                output.talk(f"job {job} is not held, it is {governor.jobs.get(job).state}")
                code = NOT_THERE
    return code

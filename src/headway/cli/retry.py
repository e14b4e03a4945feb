"""``headway retry``: queues finished jobs again."""

from __future__ import annotations

import click

from headway.cli import NOT_THERE, arguments, job_names, opening, output
from headway.errors import ConfigError


@click.command("retry")
@arguments.jobs
def command(names: tuple[str, ...]) -> int:
    """Queue finished jobs again, at the end of the line.

    ID is a job's number, or its task's name if no other job has that.

    A job keeps its id; its attempts and their logs stay. With jobs.approve = "retries" it
    is held until somebody approves it. One that waits for its own retry is run now. A job
    that was submitted with --after waits again for the jobs it comes after; if one of
    these has failed, retry both. A job can be retried for 7 days after its end
    (jobs.retry_within): then its environment is dropped.
    The exit code is 1 if one has not ended yet or cannot be queued.

    \b
    Example:
      headway retry 16
      headway retry build deploy
    """
    code = 0
    with opening.governor() as governor:
        for job in [job_names.find_job(governor, name, among=()) for name in names]:
            try:
                state = governor.jobs.retry(job)
            except ConfigError as error:
                output.talk(str(error))
                code = NOT_THERE
                continue
            if state is None:
                output.talk(f"job {job} has not ended; to end it: headway cancel {job}")
                code = NOT_THERE
            elif state == "held":
                output.data(f"job {job} held until you approve it: headway approve {job}")
            else:
                others = governor.jobs.details(job).after
                after = f", after {' and '.join(f'job {one}' for one in others)}" if others else ""
                output.data(f"job {job} queued again{after}")
    return code

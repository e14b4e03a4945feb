"""``headway retry``: queues finished jobs again."""

from __future__ import annotations

import click

from headway.cli import NOT_THERE, arguments, opening, output


@click.command("retry")
@arguments.jobs
def command(jobs: tuple[int, ...]) -> int:
    """Queue finished jobs again, at the end of the line.

    A job keeps its id; its attempts and their logs stay. With jobs.approve = "retries" it
    is held until somebody approves it. The exit code is 1 if one has not ended yet.

    \b
    Example:
      headway retry 16
    """
    code = 0
    with opening.governor() as governor:
        for job in jobs:
            state = governor.jobs.retry(job)
            if state is None:
                output.talk(f"job {job} has not ended; to end it: headway cancel {job}")
                code = NOT_THERE
            elif state == "held":
                output.data(f"job {job} held until you approve it: headway approve {job}")
            else:
                output.data(f"job {job} queued again")
    return code

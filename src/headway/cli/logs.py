"""``headway logs``: what a job has written."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from headway.cli import INTERRUPTED, NOT_THERE, Failure, arguments, completing, opening, output
from headway.cli.wait import ending

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.governor import Governor
    from headway.jobs.api import Jobs


@click.command("logs")
@click.argument("job", metavar="ID", type=arguments.JOB, shell_complete=completing.jobs)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--attempt", metavar="N", type=int, help="Of this attempt [the last].")
def command(job: int, *, follow: bool, attempt: int | None) -> int:
    """Print what a job has written, both streams as they came.

    Of a very long output the beginning and the end are kept (jobs.max_log); a mark says
    where something was cut.

    \b
    Example:
      headway logs 16
      headway logs -f 16
    """
    with opening.governor() as governor:
        found = governor.jobs.get(job)
        if follow and attempt is None:
            return _follow(governor, job)
        if not found.attempts:
            raise Failure(f"job {job} is {found.state}; it has not run yet", NOT_THERE)
        if attempt is not None and not 1 <= attempt <= found.attempts:
            raise Failure(f"job {job} had {output.count(found.attempts, 'attempt')}", NOT_THERE)
        _print(governor.jobs.output(job, attempt))
    return 0


def _follow(governor: Governor, job: int) -> int:
    jobs: Jobs = governor.jobs
    found = jobs.get(job)
    if not found.attempts and not found.is_finished:
        output.talk(f"job {job} is {found.state}; waiting for it to start")
    try:
        for part in jobs.follow(job):
            _print([part])
    except KeyboardInterrupt:
        output.talk(f"job {job} goes on without us; to end it: headway cancel {job}")
        return INTERRUPTED
    output.talk(ending(jobs.get(job)))
    return 0


def _print(parts: Iterable[bytes]) -> None:
    for part in parts:
        sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()

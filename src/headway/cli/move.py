"""``headway move``: changes a job's place in line."""

from __future__ import annotations

import click

from headway.cli import NOT_THERE, USAGE, Failure, arguments, job_names, opening, output
from headway.jobs.states import QUEUED
from headway.tickets import MAX_PRIORITY


@click.command("move")
@arguments.job
@click.option("--first", is_flag=True, help="In front of everyone who waits.")
@click.option("--last", is_flag=True, help="Behind all others of its priority.")
@click.option(
    "--priority",
    metavar="N",
    type=click.IntRange(-MAX_PRIORITY, MAX_PRIORITY),
    help="Give it another head start, -100 to 100.",
)
def command(name: str, *, first: bool, last: bool, priority: int | None) -> int:
    """Change the place of a queued job.

    --first puts it in front of everyone who waits for the same slots now, not only of the
    other jobs; --last where it would be if it were submitted now. --priority counts from
    when it was submitted, and works on held jobs too. ID is a job's number, or its task's
    name: of several jobs with that name, the one that is queued.

    \b
    Example:
      headway move 16 --first
      headway move issue-16 --last
      headway move 16 --priority 5
    """
    if first + last + (priority is not None) != 1:
        raise Failure(f"where to? headway move {name} --first, --last or --priority N", USAGE)
    with opening.governor() as governor:
        job = job_names.find_job(governor, name, among=[QUEUED])
        jobs = governor.jobs
        if priority is not None:
            is_done, told = jobs.set_priority(job, priority), f"has priority {priority} now"
        elif first:
            is_done, told = jobs.move_first(job), "is next"
        else:
            is_done, told = jobs.move_last(job), "is last"
        if is_done:
            output.data(f"job {job} {told}")
            return 0
        output.talk(f"job {job} does not wait, it is {jobs.get(job).state}")
    return NOT_THERE

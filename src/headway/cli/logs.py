"""``headway logs``: what a job has written."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import click

from headway.cli import INTERRUPTED, NOT_THERE, Failure, arguments, job_names, opening, output
from headway.cli.wait import ending
from headway.jobs.states import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.governor import Governor
    from headway.jobs.api import Jobs


@click.command("logs")
@arguments.job
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("-n", "--lines", metavar="N", type=click.IntRange(0), help="Only the last N lines.")
@click.option("--attempt", metavar="N", type=int, help="Of this attempt [the last].")
def command(name: str, *, follow: bool, lines: int | None, attempt: int | None) -> int:
    """Print what a job has written, both streams as they came.

    Of a very long output the beginning and the end are kept (jobs.max_log); a mark says
    where something was cut. On a terminal only text and colours are printed; a pipe or a
    file gets every byte. ID is a job's number, or its task's name: of several jobs with
    that name, the one that has not ended.

    \b
    Example:
      headway logs 16
      headway logs -n 20 16
      headway logs -f issue-16
    """
    with opening.governor() as governor:
        job = job_names.find_job(governor, name, among=UNFINISHED)
        found = governor.jobs.get(job)
        if follow and attempt is None:
            return _follow(governor, job, lines)
        if not found.attempts:
            raise Failure(f"job {job} is {found.state}; it has not run yet", NOT_THERE)
        if attempt is not None and not 1 <= attempt <= found.attempts:
            raise Failure(f"job {job} had {output.count(found.attempts, 'attempt')}", NOT_THERE)
        output.foreign(_last(governor.jobs.output(job, attempt), lines))
    return 0


def _last(pieces: Iterable[bytes], lines: int | None) -> Iterable[bytes]:
    """The last lines of an output, of which no more than these are kept in memory."""
    if lines is None:
        return pieces
    kept: deque[bytes] = deque(maxlen=lines)
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        kept.extend(line + b"\n" for line in whole)
    if rest:
        kept.append(rest)
    return kept


def _follow(governor: Governor, job: int, lines: int | None) -> int:
    jobs: Jobs = governor.jobs
    found = jobs.get(job)
    if not found.attempts and not found.is_finished:
        output.talk(f"job {job} is {found.state}; waiting for it to start")
    try:
        written = jobs.follow(job)
        if lines is not None and found.attempts:
            # The first piece is all that there is so far.
            output.foreign(_last([next(written, b"")], lines))
        output.foreign(written)
    except KeyboardInterrupt:
        output.talk(f"job {job} goes on without us; to end it: headway cancel {job}")
        return INTERRUPTED
    output.talk(ending(jobs.get(job)))
    return 0

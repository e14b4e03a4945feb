"""``headway wait``: blocks until jobs have ended, and answers with their exit code."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from headway.cli import (
    CANCELLED,
    INTERRUPTED,
    NO_SLOT,
    TIMED_OUT,
    arguments,
    opening,
    output,
)
from headway.errors import QueueTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.governor import Governor
    from headway.jobs.listing import Job

# For a job that ended without a code of its own.
_CODES = {"cancelled": CANCELLED, "expired": TIMED_OUT, "interrupted": NO_SLOT, "failed": 1}


@click.command("wait")
@arguments.jobs
@click.option(
    "--timeout", metavar="TIME", callback=arguments.duration, help="Wait no longer: exit 124."
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing.")
def command(jobs: tuple[int, ...], *, timeout: float | None, quiet: bool) -> int:
    """Wait until jobs have ended.

    The exit code is the job's own; of several the first that is not 0, in the order
    given. A job that ended without one counts as 125 if it was cancelled, 124 if it
    expired, and 75 if it was interrupted. Ctrl-C stops the waiting, not the job.

    \b
    Example:
      headway wait 16
      headway wait 16 17 18 && ./deploy.sh
    """
    with opening.governor() as governor:
        return wait_for_all(governor, jobs, timeout_seconds=timeout, quiet=quiet)


def wait_for_all(
    governor: Governor,
    jobs: Sequence[int],
    *,
    timeout_seconds: float | None = None,
    quiet: bool = False,
) -> int:
    """Wait for all of them, so long in all; the first code that is not 0."""
    codes, started = [], time.monotonic()
    for job in jobs:
        waited = time.monotonic() - started
        left = None if timeout_seconds is None else max(0.0, timeout_seconds - waited)
        try:
            ended = governor.jobs.wait_for(job, timeout=left)
        except QueueTimeout:
            output.talk(f"job {job} has not ended yet; it goes on")
            return TIMED_OUT
        except KeyboardInterrupt:
            output.talk(f"job {job} goes on without us; to end it: headway cancel {job}")
            return INTERRUPTED
        if not quiet:
            output.talk(ending(ended))
        codes.append(exit_code(ended))
    return next((code for code in codes if code), 0)


def exit_code(job: Job) -> int:
    """The job's code, or what stands for its end."""
    if job.state in ("succeeded", "failed") and job.exit_code is not None:
        return job.exit_code
    return _CODES.get(job.state, 0)


def ending(job: Job) -> str:
    """How a job ended, on one line."""
    ran = "" if job.started_at is None or job.ended_at is None else job.ended_at - job.started_at
    took = f" after {output.length(ran)}" if isinstance(ran, float) else ""
    reason = f": {output.clean(job.end_reason)}" if job.end_reason else ""
    return f"job {job.id} {job.state}{took}{reason}"

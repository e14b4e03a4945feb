"""``headway wait``: blocks until jobs have ended, and answers with their exit code."""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import TYPE_CHECKING

import click

from headway.cli import (
    CANCELLED,
    INTERRUPTED,
    NO_SLOT,
    TIMED_OUT,
    arguments,
    job_names,
    missing_worker,
    opening,
    output,
)
from headway.errors import HeadwayError, QueueTimeout
from headway.jobs.states import UNFINISHED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.governor import Governor
    from headway.jobs.listing import Job

_TICK_SECONDS = 0.5
# For a job that ended without a code of its own.
_CODES = {"cancelled": CANCELLED, "expired": TIMED_OUT, "interrupted": NO_SLOT, "failed": 1}


@click.command("wait")
@arguments.jobs
@click.option(
    "--timeout", metavar="TIME", callback=arguments.duration, help="Wait no longer: exit 124."
)
@click.option("-q", "--quiet", is_flag=True, help="Say nothing.")
def command(names: tuple[str, ...], *, timeout: float | None, quiet: bool) -> int:
    """Wait until jobs have ended.

    ID is a job's number, or its task's name: of several jobs with that name, the one that
    has not ended. The exit code is the job's own; of several the first that is not 0, in the order
    given. A job that ended without one counts as 125 if it was cancelled, 124 if it
    expired, and 75 if it was interrupted. Ctrl-C stops the waiting, not the job. If jobs
    are queued and no worker runs, one is started, as by `headway jobs`. On a terminal a
    line shows what the job does meanwhile.

    \b
    Example:
      headway wait 16
      headway wait build tests && ./deploy.sh
    """
    with opening.governor() as governor:
        jobs = [job_names.find_job(governor, name, among=UNFINISHED) for name in names]
        missing_worker.replace(governor)
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
            with _Progress(governor, job, quiet=quiet):
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


class _Progress:
    """What a job does while somebody waits for it, on one live line of a terminal."""

    def __init__(self, governor: Governor, job: int, *, quiet: bool) -> None:
        self._governor, self._job = governor, job
        is_terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._is_live = is_terminal and not quiet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_drawing, daemon=True)

    def __enter__(self) -> None:
        if self._is_live:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._over.set()
            self._thread.join()
            output.draw("\r\x1b[K")

    def _keep_drawing(self) -> None:
        while not self._over.wait(_TICK_SECONDS):
            try:
                text = _progress(self._governor.jobs.get(self._job))
                columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            except (HeadwayError, OSError):
                continue  # the store or the terminal may be back the next time
            output.draw(f"\r\x1b[K{output.shorten_end(f'headway: {text}', columns - 1)}")


def _progress(job: Job) -> str:
    task = f" ({output.clean(job.task)})" if job.task else ""
    if job.state == "running" and job.started_at is not None:
        return f"job {job.id}{task} is running for {output.age(job.started_at)}"
    since = f", {output.age(job.submitted_at)} so far"
    if job.retry_at is not None:
        left = output.length(max(1.0, job.retry_at - time.time()))
        return f"job {job.id}{task} is to be retried in {left}{since}"
    if job.state == "queued" and job.position is not None:
        wait = job.estimated_wait_seconds
        about = f", about {output.length(max(1, wait))}" if wait else ""
        return f"job {job.id}{task} is queued, place {job.position}{about}{since}"
    return f"job {job.id}{task} is {job.state}{since}"


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

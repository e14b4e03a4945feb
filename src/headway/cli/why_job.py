"""Why a job does not run: what it waits for besides slots, or how it ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headway import sizes
from headway.cli import output
from headway.cli.wait import ending

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headway.jobs.api import Jobs
    from headway.jobs.listing import Details


def story(jobs: Jobs, details: Details) -> Iterator[str]:
    """The reason, and what can be done."""
    job = details.job
    if job.is_finished:
        yield f"{ending(job)[:1].upper()}{ending(job)[1:]}."
        yield f"\n  headway show {job.id}   its attempts"
        yield f"  headway logs {job.id}   what it wrote"
        yield f"  headway retry {job.id}  run it again"
    elif job.state == "held":
        yield f"Job {job.id} is held until somebody approves it."
        yield f"\n  headway approve {job.id}"
        yield f"  headway cancel {job.id}"
    elif job.retry_at is not None:
        yield from _retry(details, job.retry_at)
    elif details.after:
        yield f"Job {job.id} waits until other jobs have succeeded:"
        for other in details.after:
            yield f"  {_briefly(jobs, other)}"
    elif jobs.worker() is None:
        yield f"Job {job.id} is queued, but no worker runs."
        yield "\n  headway worker --detach"
    elif (short := _memory_short(jobs)) is not None:
        yield f"Job {job.id} has its slot, and starts when there is more memory: {short}."
    else:
        yield f"Job {job.id} is {job.state}; it is about to be seen to."


def _retry(details: Details, at: float) -> Iterator[str]:
    job, last = details.job.id, details.attempts[-1]
    reason = f" ({output.clean(last.end_reason)})" if last.end_reason else ""
    left = output.length(max(1.0, at - time.time()))
    yield f"Job {job} {last.state}{reason}, and is retried in {left}:"
    yield f"  retry {details.retried} of {details.retries}; each waits twice as long, up to 10 min"
    yield f"\n  headway retry {job}   run it now"
    yield f"  headway cancel {job}  give it up"
    yield f"  headway logs {job}    what it wrote"


def _memory_short(jobs: Jobs) -> str | None:
    from headway.jobs import memory  # noqa: PLC0415

    least = jobs.board.settings.min_free_memory_bytes
    free = memory.free_bytes()
    if least is None or free >= least:
        return None
    return f"{sizes.shown(free)} are free, and watchdog.min_free_memory is {sizes.shown(least)}"


def _briefly(jobs: Jobs, number: int) -> str:
    job = jobs.get(number)
    task = f" ({output.clean(job.task)})" if job.task else ""
    return f"{job.id}{task}: {job.state}"

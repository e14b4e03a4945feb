"""``headway submit``: keeps a command until it is its turn."""

from __future__ import annotations

import gc

from headway.cli import USAGE, Failure
from headway.cli.submit_options import Submission, parse
from headway.errors import ConfigError
from headway.governor import Governor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.jobs.submitted import Submitted


def submit(words: list[str]) -> int:
    """Keep the job and say where it stands."""
    submission = parse(words)
    with Governor() as governor:
        gc.enable()
        governor.jobs.refuse_other_store()
        if submission.after:
            submission.options["after"] = _jobs(governor, submission.after)
        try:
            job = governor.jobs.submit(
                submission.command,
                when_full="reject" if submission.when_full == "reject" else "queue",
                start=submission.start,
                **submission.options,
            )
        except ConfigError as error:
            raise Failure(f"{error}\n  see: headway submit --help", USAGE) from None
        _tell(governor, submission, job)
        if job.worker_error is not None:
            from headway.cli import output  # noqa: PLC0415

            output.talk(f"job {job.id} is kept, but no worker could be started: {job.worker_error}")
            output.talk("later: headway worker --detach")
        elif not submission.start and governor.jobs.worker() is None:
            from headway.cli import output  # noqa: PLC0415

            output.talk("no worker runs, so it does not start: headway worker --detach")
        if submission.when_full == "wait":
            from headway.cli.wait import wait_for_all  # noqa: PLC0415

            return wait_for_all(governor, [job.id])
    return 0


def _jobs(governor: Governor, names: list[str]) -> list[int]:
    from headway.cli.job_names import find_job  # noqa: PLC0415
    from headway.jobs.states import UNFINISHED  # noqa: PLC0415

    return [find_job(governor, name, among=UNFINISHED) for name in names]


def _tell(governor: Governor, submission: Submission, job: Submitted) -> None:
    from headway.cli import missing_worker, output  # noqa: PLC0415

    if submission.as_json:
        output.as_json(
            {
                "id": job.id,
                "state": job.state,
                "position": job.position,
                "estimated_wait_seconds": job.estimated_wait_seconds,
                "is_new": job.is_new,
                "worker": missing_worker.facts(governor),
            }
        )
    elif submission.quiet:
        output.data(str(job.id))
    else:
        output.data(_sentence(governor, job) + _outlook(governor, job))
    if job.doubt is not None:
        output.talk(f"where it stands is not known: {job.doubt}")


def _outlook(governor: Governor, job: Submitted) -> str:
    """Until when it waits, if only time brings that."""
    standing = job.standing if job.state == "queued" else None
    if standing is None or standing.key is None or standing.reason not in ("cooling", "budget"):
        return ""
    from headway.cli import pacing  # noqa: PLC0415

    limit = pacing.find(governor.snapshot().limits, standing.key)
    outlook = pacing.job_outlook(limit, standing.reason)
    return f"; {outlook}" if outlook else ""


def _sentence(governor: Governor, job: Submitted) -> str:
    from headway.cli import output  # noqa: PLC0415

    already = "" if job.is_new else "already "
    if job.state == "held":
        return f"{already}held as {job.id} until you approve it: headway approve {job.id}"
    if job.state != "queued":
        return f"{already}{job.state} as {job.id}"
    position = job.position
    if position is None:
        return f"{already}{_without_place(governor, job)}"
    wait = job.estimated_wait_seconds
    about = (
        "" if wait is None else f", about {output.length(max(1, wait))}" if wait else ", starts now"
    )
    return f"{already}queued as {job.id}, position {position}{about}"


def _without_place(governor: Governor, job: Submitted) -> str:
    if job.doubt is not None:
        return f"queued as {job.id}"
    before = governor.jobs.details(job.id).after
    if before:
        return f"queued as {job.id}, after {' and '.join(f'job {other}' for other in before)}"
    return f"started as {job.id}"  # a worker was faster than we


def __getattr__(name: str) -> object:
    if name == "command":
        from headway.cli.submit_options import as_click  # noqa: PLC0415

        return as_click()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

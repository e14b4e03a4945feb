"""``headway show``: everything about one job."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headway import sizes
from headway.cli import arguments, completing, opening, output, pacing
from headway.watchdogs import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headway.jobs.listing import Attempt, Details, Job
    from headway.views import LimitView


@click.command("show")
@click.argument("job", metavar="ID", type=arguments.JOB, shell_complete=completing.jobs)
@arguments.json_option
def command(job: int, *, as_json: bool) -> None:
    """Show everything about one job.

    Its command, what it waits for, its attempts, and why it ended. Its environment is
    kept, but never shown.

    \b
    Example:
      headway show 16
    """
    with opening.governor() as governor:
        details = governor.jobs.details(job)
        placed = governor.jobs.get(job)
        # Who does not wait is not kept waiting for the store.
        is_shown = placed.position is not None and not as_json
        limits = governor.snapshot().limits if is_shown else ()
    if as_json:
        facts = asdict(details)
        del facts["job"]
        output.as_json({**facts, **placed.as_dict(), "runs": facts["attempts"]})
        return
    output.data("\n".join(_story(details, list(_wait(placed, limits)))))


def _wait(job: Job, limits: Sequence[LimitView]) -> Iterator[str]:
    """Where a job stands, and until when if that is known."""
    if job.position is not None:
        yield f"  waits      at place {job.position}; see: headway why {job.id}"
    blocked = job.blocked_by
    if blocked is not None and blocked.key is not None:
        outlook = pacing.job_outlook(pacing.find(limits, blocked.key), blocked.reason)
        if outlook:
            yield f"{'':13}{outlook}"


def _story(details: Details, wait: list[str]) -> Iterator[str]:
    job = details.job
    yield f"Job {job.id}: {job.state}{f' ({output.clean(job.task)})' if job.task else ''}"
    yield f"  command    {output.clean(shlex.join(job.command))}"
    yield f"  in         {output.clean(details.directory)}"
    weight = f", {job.weight} slots each" if job.weight > 1 else ""
    priority = f", priority {job.priority}" if job.priority else ""
    yield f"  counts on  {output.joined(job.keys)}{weight}{priority}"
    yield f"  submitted  {_moment(job.submitted_at)}"
    yield from wait
    if details.after:
        yield f"  after      {', '.join(map(str, details.after))}"
    if details.expire_at is not None:
        yield f"  expires    {output.clock(details.expire_at)}, if it has not started by then"
    if details.retries:
        yield f"  retries    {details.retried} of {details.retries} used"
    if details.dedupe:
        yield f"  dedupe     {output.clean(details.dedupe)}"
    yield from _options(details.options)
    if details.cancel_reason and not job.is_finished:
        yield f"  is ending  {output.clean(details.cancel_reason)}"
    if job.ended_at is not None:
        yield f"  ended      {_moment(job.ended_at)}{_reason(job.end_reason)}"
    for attempt in details.attempts:
        yield from _attempt(attempt)


def _options(options: Mapping[str, Any]) -> Iterator[str]:
    """What was said for this job alone."""
    watchdogs = [
        f"{name.replace('_', ' ')} {_measure(field, options[field])}"
        for name, field in FIELDS.items()
        if field in options
    ]
    if watchdogs:
        yield f"  watchdogs  {', '.join(watchdogs)}"
    if "notify_on" in options:
        yield f"  notify on  {', '.join(options['notify_on'])}"


def _measure(field: str, value: float | None) -> str:
    if value is None:
        return "off"
    return sizes.shown(int(value)) if field.endswith("_bytes") else output.length(value)


def _attempt(attempt: Attempt) -> Iterator[str]:
    code = "" if attempt.exit_code is None else f", exit code {attempt.exit_code}"
    yield f"\nAttempt {attempt.number}: {attempt.state}{code}"
    yield f"  started    {_moment(attempt.started_at)}"
    if attempt.ended_at is None:
        yield f"  supervisor pid {attempt.pid}, lease {attempt.lease}"
    else:
        took = output.length(attempt.ended_at - attempt.started_at)
        yield f"  ran        {took}{_reason(attempt.end_reason)}"
    written = attempt.output_bytes
    size = "" if written is None else f", {sizes.shown(written)} written"
    yield f"  output     {attempt.log}{size}"


def _moment(at: float) -> str:
    return f"{output.clock(at)} ({output.age(at)} ago)"


def _reason(reason: str | None) -> str:
    return f": {output.clean(reason)}" if reason else ""

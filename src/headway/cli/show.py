"""``headway show``: everything about one job."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headway import sizes
from headway.cli import arguments, job_names, missing_worker, opening, output, pacing
from headway.jobs.states import UNFINISHED
from headway.watchdogs import FIELDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headway.jobs.listing import Attempt, Details, Job
    from headway.views import LimitView


@click.command("show")
@arguments.job
@arguments.json_option
def command(name: str, *, as_json: bool) -> None:
    """Show everything about one job.

    Its command, what it waits for, its attempts, and why it ended. Its environment is
    kept, but never shown. ID is a job's number, or its task's name: of several jobs with
    that name, the one that has not ended.

    \b
    Example:
      headway show 16
      headway show issue-16
    """
    with opening.governor() as governor:
        job = job_names.find_job(governor, name, among=UNFINISHED)
        details = governor.jobs.details(job)
        placed = governor.jobs.get(job)
        # Who does not wait is not kept waiting for the store.
        is_shown = placed.position is not None and not as_json
        limits = governor.snapshot().limits if is_shown else ()
        worker = missing_worker.facts(governor)
        if placed.state == "queued":
            missing_worker.mention(governor)
    if as_json:
        facts = asdict(details)
        del facts["job"]
        output.as_json({**facts, **placed.as_dict(), "runs": facts["attempts"], "worker": worker})
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
        left = None if job.retry_at is None else max(1.0, job.retry_at - time.time())
        soon = f", the next in {output.length(left)}" if left else ""
        yield f"  retries    {details.retried} of {details.retries} used{soon}"
    if details.dedupe:
        yield f"  dedupe     {output.clean(details.dedupe)}"
    yield from _options(details.options)
    if details.cancel_reason and not job.is_finished:
        yield f"  is ending  {output.clean(details.cancel_reason)}"
    if job.ended_at is not None:
        yield f"  ended      {_moment(job.ended_at)}{_reason(job.end_reason)}"
    for unsent in details.unsent_notifications:
        told = f"{unsent.event}, {output.clock(unsent.at)}: {output.clean(unsent.problem)}"
        yield f"  not told   {told}"
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
    if "retry_on" in options:
        yield f"  retry on   {', '.join(map(str, options['retry_on']))}"
    if "retry_delay_seconds" in options:
        yield f"  delay      {output.length(options['retry_delay_seconds'])} before the first retry"
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

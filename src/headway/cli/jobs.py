"""``headway jobs``: the list of jobs."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING

import click

from headway import keys
from headway.cli import arguments, missing_worker, opening, output, pacing, rows
from headway.jobs.states import FINISHED, STATES
from headway.limits import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headway.governor import Governor
    from headway.jobs.listing import Job
    from headway.views import Capacity, LimitView

# So many are shown of those in the queue, and of all others of one kind.
_QUEUED, _OTHERS = 30, 20
# So many are named that wait for the same thing.
_NAMED = 8
_STYLES = {
    "running": "green",
    "held": "magenta",
    "failed": "red",
    "interrupted": "red",
    "expired": "yellow",
    "cancelled": "yellow",
}


@click.command("jobs")
@click.option(
    "--state", "states", multiple=True, type=click.Choice(STATES), help="Only those; repeatable."
)
@click.option("--all", "is_all", is_flag=True, help="All of them, however many there are.")
@click.option("--summary", is_flag=True, help="Only numbers: jobs by state, and what is free.")
@arguments.json_option
def command(states: tuple[str, ...], *, is_all: bool, summary: bool, as_json: bool) -> None:
    """List the jobs.

    What ended last, what runs, and what waits in its order. # is the place in the line of
    the key that blocks, EST. how long that may take. Below, jobs are named that a cool-down
    or a spent budget pauses, with the end of that. The last line tells a planner whether to
    go on delegating. If jobs are queued and no worker runs, one is started, unless it was
    stopped by hand or a job was submitted with --no-start.

    \b
    Example:
      headway jobs
      headway jobs --state failed
      headway jobs --summary --json
    """
    with opening.governor() as governor:
        jobs = governor.jobs
        missing_worker.replace(governor)
        if summary:
            _summary(governor, as_json=as_json)
            return
        if as_json:
            worker = missing_worker.facts(governor)
            output.as_json([{**job.as_dict(), "worker": worker} for job in jobs.all(states=states)])
            return
        shown, hidden = _choose(governor, states, is_all=is_all)
        _tell_of_dropped(jobs.board.archive.take_dropped())
        if not shown:
            output.data("No jobs.")
            return
        _show(shown)
        for line in hidden:
            output.data(line)
        limits = governor.snapshot().limits
        for line in _paused(limits, shown):
            output.data(line)
        capacities = _capacities(governor, limits, shown)
    for capacity in capacities:
        output.data(_outlook(capacity))


def _choose(
    governor: Governor, states: tuple[str, ...], *, is_all: bool
) -> tuple[list[Job], list[str]]:
    """The jobs to show, and what to say about the others."""
    jobs, counts = governor.jobs, governor.jobs.counts()
    wanted = states or STATES
    shown, hidden = [], []
    for word, group in (("ended", FINISHED), ("run", ["running"]), ("are held", ["held"])):
        chosen = [state for state in group if state in wanted]
        if chosen:
            part = jobs.all(states=chosen, limit=None if is_all else _OTHERS)
            shown += part
            hidden += _more(sum(counts.get(state, 0) for state in chosen), part, word)
    if "queued" in wanted:
        part = jobs.waiting(limit=None if is_all else _QUEUED)
        shown += part
        hidden += _more(counts.get("queued", 0), part, "are queued")
    if hidden:
        hidden[-1] += " (--all)"
    return shown, hidden


def _more(count: int, part: Sequence[Job], word: str) -> list[str]:
    return [f"… and {count - len(part)} more that {word}"] if count > len(part) else []


def _show(jobs: Sequence[Job]) -> None:
    rows.show_columns(
        {
            "JOB": [str(job.id) for job in jobs],
            "STATE": [(job.state, _STYLES.get(job.state, "")) for job in jobs],
            "CODE": [_code(job) for job in jobs] if any(_code(job) for job in jobs) else None,
            "#": [str(job.position or "") for job in jobs],
            "EST.": [_estimate(job) for job in jobs],
            "FOR": [_age(job) for job in jobs],
            "TASK": [output.clean(job.task or "-") for job in jobs]
            if any(job.task for job in jobs)
            else None,
            "ON": [output.joined(job.keys) for job in jobs],
            "COMMAND": [output.clean(shlex.join(job.command)) for job in jobs],
        }
    )


def _code(job: Job) -> str:
    return "" if job.exit_code is None else str(job.exit_code)


def _estimate(job: Job) -> str:
    if job.state != "queued":
        return ""
    if job.retry_at is None and job.blocked_by is not None and job.blocked_by.key is None:
        return job.blocked_by.reason
    seconds = job.estimated_wait_seconds
    if seconds == 0:
        return "now"
    return "?" if seconds is None else f"~{output.brief_length(max(1, seconds))}"


def _age(job: Job) -> str:
    """How long it runs or waits, or how long it took."""
    if job.started_at is None:
        return output.brief_length((job.ended_at or time.time()) - job.submitted_at)
    if job.state in ("queued", "held"):
        return output.brief_age(job.submitted_at)
    return output.brief_length((job.ended_at or time.time()) - job.started_at)


def _paused(limits: Sequence[LimitView], jobs: Sequence[Job]) -> Iterator[str]:
    """Jobs that only time lets go on, and until when they wait."""
    waiting: dict[tuple[str, str], list[int]] = {}
    for job in jobs:
        blocked = job.blocked_by
        if blocked is not None and blocked.key is not None:
            waiting.setdefault((blocked.key, blocked.reason), []).append(job.id)
    for (key, reason), numbers in waiting.items():
        outlook = pacing.job_outlook(pacing.find(limits, key), reason)
        if outlook:
            named = ", ".join(map(str, numbers[:_NAMED]))
            more = f" and {len(numbers) - _NAMED} more" if len(numbers) > _NAMED else ""
            yield f"{'job' if len(numbers) == 1 else 'jobs'} {named}{more}: {outlook}"


def _capacities(
    governor: Governor, limits: Sequence[LimitView], jobs: Sequence[Job]
) -> list[Capacity]:
    """Those of the limited keys that unfinished jobs count on."""
    counted = {key for job in jobs if not job.is_finished for key in keys.path(job.keys)}
    limited = {limit.key for limit in limits if pacing.is_limited(limit)}
    capacities = [governor.capacity(key) for key in sorted(counted)]
    return [one for one in capacities if one.limit != UNLIMITED or one.key in limited]


def _outlook(capacity: Capacity) -> str:
    wait = capacity.estimated_wait_seconds
    about = f", next in ~{output.brief_length(max(1, wait))}" if wait else ""
    advice = {"ok": "go on", "near": "slow down", "full": "stop delegating"}[capacity.pressure]
    figures = (
        f": {capacity.free} free, {capacity.used} in use,"
        f" {capacity.waiting} waiting{about}: {capacity.pressure}, {advice}"
    )
    return output.shorten_keys(capacity.key, output.console().width - len(figures)) + figures


def _summary(governor: Governor, *, as_json: bool) -> None:
    from dataclasses import asdict  # noqa: PLC0415

    counts = {state: governor.jobs.counts().get(state, 0) for state in STATES}
    limits = filter(pacing.is_limited, governor.snapshot().limits)
    capacities = [governor.capacity(one.key) for one in limits]
    if as_json:
        facts = {"jobs": counts, "capacity": [asdict(one) for one in capacities]}
        output.as_json({**facts, "worker": missing_worker.facts(governor)})
        return
    output.data(
        ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "No jobs."
    )
    for capacity in capacities:
        output.data(_outlook(capacity))


def _tell_of_dropped(dropped: list[int]) -> None:
    if dropped:
        listed = ", ".join(map(str, dropped))
        output.talk(f"dropped after jobs.keep, and nobody had looked at them: {listed}")

"""The home as people see it: the store's snapshot, with the jobs in it."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from headway import journal, keys
from headway.errors import NoSuchJob, StoreUnavailable
from headway.tickets import job_name, job_of
from headway.views import BlockedBy, HolderView, WaitingView

if TYPE_CHECKING:
    from headway.governor import Governor
    from headway.jobs.listing import Job
    from headway.views import LeaseView, Reason, Snapshot


def snapshot(governor: Governor) -> Snapshot:
    """Everything in the store, and the queued jobs that have no ticket there yet."""
    seen = governor.snapshot()
    if not os.path.exists(os.path.join(governor.settings.home, "jobs.db")):
        return seen
    try:
        jobs = {job.id: job for job in governor.jobs.all(states=["queued", "running"])}
    except StoreUnavailable as error:  # slots can be seen beside a jobs.db of a newer version
        _warn_once(f"jobs are not shown: {error}")
        return seen
    if not jobs:
        return seen
    worker = governor.jobs.worker()
    everyone: tuple[LeaseView | WaitingView, ...] = (*seen.waiting, *seen.leases)
    own = {one.id for one in everyone if _is_own(governor, worker, one)}
    waiting = tuple(
        _with_command(ticket, jobs) if ticket.id in own else ticket for ticket in seen.waiting
    )
    in_line = {job_of(ticket_id) for ticket_id in own}
    absent = [job for job in jobs.values() if job.state == "queued" and job.id not in in_line]
    return replace(seen, waiting=(*waiting, *(_row(job, worker) for job in absent)))


def _is_own(
    governor: Governor, worker: tuple[int, float] | None, one: LeaseView | WaitingView
) -> bool:
    """Whether the worker of this home asks for it: on a server, others have jobs of any number."""
    if governor.settings.store_url is None:
        return True
    place = one.holder.pid, one.holder.host
    return worker is not None and place == (worker[0], os.uname().nodename)


_warned: set[str] = set()


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        journal.log().warning("%s", text)


def _with_command(ticket: WaitingView, jobs: dict[int, Job]) -> WaitingView:
    """A worker asks for many: what matters is the job."""
    job = jobs.get(job_of(ticket.id) or 0)
    if job is None:
        return ticket
    return replace(ticket, holder=replace(ticket.holder, command=_command(job)))


def _command(job: Job) -> str:
    return f"job {job.id}: {shlex.join(job.command)}"


def _row(job: Job, worker: tuple[int, float] | None) -> WaitingView:
    blocked = job.blocked_by
    key = keys.path(job.keys)[-1] if blocked is None or blocked.key is None else blocked.key
    reason: Reason = "no_worker"
    if blocked is not None and blocked.key is None:
        reason = "after" if blocked.reason == "after" else "retry_delay"
    elif worker is not None:
        reason = "starting"
    return WaitingView(
        id=job_name(job.id),
        task=job.task,
        keys=job.keys,
        weight=job.weight,
        priority=job.priority,
        position=job.position or 1,
        blocked_by=BlockedBy(key, reason),
        since=job.submitted_at,
        estimated_wait_seconds=job.estimated_wait_seconds,
        holder=HolderView(worker[0] if worker else 0, os.uname().nodename, _command(job)),
    )


def job_behind(governor: Governor, one: LeaseView | WaitingView) -> int | None:
    """The job of this home that a ticket or lease is for, if it is for one."""
    job = job_of(one.id)
    if job is None or one.id == job_name(job) or _is_own(governor, governor.jobs.worker(), one):
        return job
    try:
        attempts = governor.jobs.details(job).attempts
    except NoSuchJob:
        return None
    return job if attempts and attempts[-1].lease == one.id else None

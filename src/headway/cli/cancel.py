"""``headway cancel``: ends jobs, waiting tickets, and commands of ``headway run``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headway.cli import (
    NOT_THERE,
    Failure,
    completing,
    ending_runs,
    job_names,
    opening,
    output,
    picture,
)
from headway.cli.finding import called, find, is_there
from headway.jobs.states import UNFINISHED

if TYPE_CHECKING:
    from headway.governor import Governor


@click.command("cancel")
@click.argument(
    "names", metavar="ID...", nargs=-1, required=True, shell_complete=completing.everyone
)
def command(names: tuple[str, ...]) -> int:
    """End jobs, tickets that wait, and commands of `headway run`.

    ID is a job's number, a ticket's id, the beginning of one, or a task's name. Everyone
    behind moves up. A job that runs gets SIGTERM, all its processes do, and those left
    after a grace period (jobs.grace) are killed. Who waited is told, and `headway run`
    ends with code 125. A command that runs under `headway run` on this machine gets SIGTERM
    and decides itself what to do. Programs that ask for slots themselves are left alone: see
    `headway release`. The exit code is 1 if one of them could not be cancelled.

    \b
    Example:
      headway cancel 16
      headway cancel issue-16 k3mx9a-2
    """
    code = 0
    with opening.governor() as governor:
        for name in names:
            try:
                output.data(_cancel(governor, name))
            except Failure as failure:
                output.talk(failure.message)
                code = failure.code
    return code


def _cancel(governor: Governor, name: str) -> str:
    from headway.views import WaitingView  # noqa: PLC0415

    if name.isascii() and name.isdecimal():
        return _cancel_job(governor, int(name))
    snapshot = picture.snapshot(governor)
    if not is_there(snapshot, name):  # a held job has no ticket
        held = job_names.look_up(governor, name, among=UNFINISHED)
        if held is not None:
            return _cancel_job(governor, held)
    found = find(snapshot, name)
    job = picture.job_behind(governor, found)
    if job is not None:
        return _cancel_job(governor, job)
    if ending_runs.is_run(found) and (found.stopped or not isinstance(found, WaitingView)):
        return ending_runs.end(found)
    if not isinstance(found, WaitingView):
        raise Failure(
            f"{called(found)} runs, so there is no wait to cancel;"
            f" to take its slot back: headway release {found.id}",
            NOT_THERE,
        )
    if not governor.cancel(found.id):
        raise Failure(f"{called(found)} has just stopped waiting", NOT_THERE)
    waited = output.age(found.since)
    return f"{called(found)} cancelled; it waited {waited} for {output.joined(found.keys)}"


def _cancel_job(governor: Governor, job: int) -> str:
    before = governor.jobs.cancel(job)
    if before is None:
        state = governor.jobs.get(job).state
        raise Failure(f"job {job} has ended already: {state}", NOT_THERE)
    if before != "running":
        return f"job {job} cancelled; it was {before}"
    grace = output.length(governor.settings.grace_seconds)
    return f"job {job} is being ended; what is left of it after {grace} is killed"

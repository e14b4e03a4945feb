"""Finding a job by what a person types: its number, or its task's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli import NOT_THERE, USAGE, Failure, output
from headway.tickets import job_name, job_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.governor import Governor
    from headway.jobs.listing import Job

# What SQLite can count to.
_GREATEST = 2**62
_NAMED, _BRIEF = 4, 40


def find_job(governor: Governor, name: str, *, among: Sequence[str]) -> int:
    """The number of the job that is meant; a ``Failure`` that helps if that is not one.

    ``among`` are the states that the caller can do something about. They decide which job is
    meant where several have the name.
    """
    job = look_up(governor, name, among=among)
    if job is None:
        raise Failure(f"no job is called {name!r}: {_hint(governor, name)}", NOT_THERE)
    return job


def look_up(governor: Governor, name: str, *, among: Sequence[str]) -> int | None:
    """As ``find_job``, but nothing if no job has this name; numbers are not looked up."""
    if name.isascii() and name.isdecimal():
        number = int(name) if len(name) < len(str(_GREATEST)) else 0
        if not number:
            raise Failure(f"{name} is not the number of a job; see: headway jobs", USAGE)
        return number
    named = governor.jobs.named(name)
    found = [job for job in named if job.state in among] or named
    if len(found) > 1:
        raise Failure(f"{name!r} fits {_listed(found)}; give the number of one", NOT_THERE)
    if found:
        return found[0].id
    return _of_ticket(governor, name)


def _of_ticket(governor: Governor, name: str) -> int | None:
    """The job behind an id as `headway status` shows it."""
    job = job_of(name)
    # On a server, the jobs of other homes have tickets too.
    is_own = job is not None and (governor.settings.store_url is None or name == job_name(job))
    return job if is_own else None


def _listed(found: Sequence[Job]) -> str:
    newest = found[: -_NAMED - 1 : -1]
    more = f" and {len(found) - len(newest)} more" if len(found) > len(newest) else ""
    return ", ".join(f"job {job.id} ({_brief(job)})" for job in newest) + more


def _brief(job: Job) -> str:
    command = output.clean(" ".join(job.command))
    text = f"{job.state}: {command}"
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 1]}…"


def _hint(governor: Governor, name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    tasks = {job.task for job in governor.jobs.all() if job.task}
    near = get_close_matches(name, sorted(tasks), n=3)
    if near:
        return f"did you mean {' or '.join(output.clean(one) for one in near)}?"
    return "see: headway jobs"

"""``headway why``: the whole story of one ticket or lease."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from headway import config, keys, releases
from headway.cli import (
    arguments,
    completing,
    ending_runs,
    job_names,
    opening,
    output,
    pacing,
    picture,
    rows,
    why_finished,
)
from headway.cli.finding import afterwards, called, find, is_agent, is_there, matching
from headway.jobs.states import UNFINISHED
from headway.limits import UNLIMITED
from headway.stores.book import WINDOW_SECONDS
from headway.tickets import job_name, job_of
from headway.views import WaitingView

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from headway.governor import Governor
    from headway.releases import Release, Releaser
    from headway.views import LeaseView, LimitView, Snapshot

    _Facts: TypeAlias = "_Wait | _Hold | Release"

# So many of those in front, and of those who hold, are listed; JSON has them all.
_LISTED = 10


@dataclass(frozen=True, slots=True)
class _Wait:
    """Why a ticket waits: its place, who is before it, and who holds what it needs."""

    ticket: WaitingView
    limit: LimitView
    room_on: tuple[str, ...]
    in_front: tuple[WaitingView, ...]
    held_by: tuple[LeaseView, ...]
    job: int | None


@dataclass(frozen=True, slots=True)
class _Hold:
    """What a lease holds, and how many wait for it."""

    lease: LeaseView
    limits: tuple[LimitView, ...]
    waiting: int
    job: int | None


@click.command("why")
@click.argument("name", metavar="ID", shell_complete=completing.everyone)
@arguments.json_option
def command(name: str, *, as_json: bool) -> None:
    """Tell why a ticket or job waits, or what a lease holds.

    Of a lease that was taken back by hand it tells who did that, and when; of a command that
    ran under `headway run` lately, how it ended.

    ID is a job's number, the id of a ticket or lease, the beginning of one, or a task's
    name. If there is no such thing, or the name fits several, the exit code is 1.

    \b
    Example:
      headway why 16
      headway why issue-16
      headway why k3mx9a-1 --json
    """
    with opening.governor() as governor:
        snapshot = picture.snapshot(governor)
        if name.isascii() and name.isdecimal():
            found = _of_job(governor, snapshot, int(name), as_json=as_json)
        else:
            is_live = is_there(snapshot, name)
            release = None if is_live else _release(name)
            if release is not None:
                _print(release, "released", _story_of_release(release), as_json=as_json)
                return
            job = None if is_live else job_names.look_up(governor, name, among=UNFINISHED)
            over = None if is_live or job is not None else why_finished.look_up(name)
            if over is not None:
                why_finished.show(over, as_json=as_json)
                return
            found = find(snapshot, name) if job is None else None
            if found is not None and found.id == job_name(job_of(found.id) or 0):
                job = job_of(found.id)
            if job is not None:  # one that is held or has ended, or that nobody asks for yet
                found = _of_job(governor, snapshot, job, as_json=as_json)
        if found is None:
            return
        job = picture.job_behind(governor, found)
        if isinstance(found, WaitingView):
            wait = _wait(snapshot, found, job)
            blocking = picture.job_behind(governor, wait.held_by[0]) if wait.held_by else None
            _print(wait, "waiting", _story_of_wait(wait, blocking), as_json=as_json)
        else:
            hold = _hold(snapshot, found, job)
            _print(hold, "running", _story_of_hold(hold), as_json=as_json)


def _of_job(
    governor: Governor, snapshot: Snapshot, job: int, *, as_json: bool
) -> LeaseView | WaitingView | None:
    """The job's ticket or lease; or nothing, if neither explains it and another story did."""
    details = governor.jobs.details(job)
    # A queued job that has its lease already is about to start, and that is another story.
    leases = () if details.job.state == "queued" else snapshot.leases
    everyone: tuple[LeaseView | WaitingView, ...] = (*leases, *snapshot.waiting)
    named = [one for one in everyone if job_of(one.id) == job]
    tickets = [one for one in named if picture.job_behind(governor, one) == job]
    if tickets and tickets[0].id != job_name(job):
        return tickets[0]
    if as_json:
        facts = asdict(details)
        del facts["options"]
        # As `show` has it: "attempts" is how many, everywhere, and "runs" are they.
        output.as_json({**facts, **details.job.as_dict(), "runs": facts["attempts"]})
    else:
        from headway.cli.why_job import story  # noqa: PLC0415

        output.data("\n".join(story(governor.jobs, details)))
    return None


def _print(facts: _Facts, state: str, story: Iterable[str], *, as_json: bool) -> None:
    if as_json:
        output.as_json({"state": state, **asdict(facts)})
    else:
        output.data("\n".join(story))


# -- a ticket ---------------------------------------------------------------------------


def _wait(snapshot: Snapshot, ticket: WaitingView, job: int | None) -> _Wait:
    at = ticket.blocked_by.key
    line = [other for other in snapshot.waiting if other.blocked_by.key == at]
    collected = keys.path(ticket.keys)
    limited = {limit.key for limit in snapshot.limits if pacing.is_limited(limit)}
    return _Wait(
        ticket=ticket,
        limit=next(limit for limit in snapshot.limits if limit.key == at),
        room_on=tuple(key for key in collected[: collected.index(at)] if key in limited),
        in_front=tuple(other for other in line if other.position < ticket.position),
        held_by=tuple(snapshot.leases_on(at)),
        job=job,
    )


def _story_of_wait(wait: _Wait, blocking: int | None) -> Iterable[str]:
    """``blocking`` is the job that holds the key longest, if one does."""
    ticket, limit = wait.ticket, wait.limit
    yield f"{called(ticket)} waits for {_wanted(ticket)}."
    yield f"  since      {output.age(ticket.since)} ({output.clock(ticket.since)})"
    yield f"  asked by   {_process(ticket)}"
    yield f"  stands at  {limit.key}, place {ticket.position}{_urgency(ticket)}"
    yield f"  because    {_cause(wait)}"
    yield from _what_follows(wait)
    yield f"  limit      {_origin(limit)}"
    if pacing.has_budget(limit):
        lately, most = limit.requests_lately, limit.requests_per_minute
        yield f"  budget     {lately} of {most} requests used in the last minute"
    if wait.room_on:
        yield f"  has room   on {output.joined(wait.room_on)}, kept for it while it waits"
    yield f"  may take   {_outlook(ticket)}"
    if wait.in_front:
        yield f"\nIn front of it at {limit.key}:"
        yield from _some(
            f"  {other.position}. {called(other)}, waits {output.age(other.since)}"
            f"{_urgency(other)}, {_process(other)}"
            for other in wait.in_front
        )
    if wait.held_by:
        yield f"\nWho holds {limit.key}:"
        yield from _some(
            f"  {called(lease)}, for {output.age(lease.since)}{_weight(lease)}, {_process(lease)}"
            for lease in wait.held_by
        )
    yield "\nWhat you can do:"
    yield from _steps(_remedies(wait, blocking))


def _cause(wait: _Wait) -> str:
    limit, reason = wait.limit, wait.ticket.blocked_by.reason
    if reason == "stopped":
        return "it is stopped (Ctrl-Z): it keeps its place, and others pass it"
    use = f"{limit.used} of {limit.limit} in use"
    if limit.reserved:
        use += f", {limit.reserved} kept for tickets that wait elsewhere"
    if reason == "possible_deadlock":
        return (
            f"whoever holds {limit.key} ({use}) may be waiting for this very ticket, or for"
            " others that wait: a possible deadlock"
        )
    return f"{limit.key} is {pacing.trouble(limit, wait.ticket.blocked_by)}, {use}"


def _what_follows(wait: _Wait) -> Iterable[str]:
    """What will happen by itself, and when."""
    limit, reason = wait.limit, wait.ticket.blocked_by.reason
    if reason == "possible_deadlock":
        yield "  then       perhaps nothing. In the program: let the inner request run on its"
        yield '             caller\'s slot (parent="current", or lease.environ() for a child'
        yield "             process), or leave the outer block before waiting for the inner one"
    elif reason == "stopped":
        yield "  then       it waits again at its place when it goes on: type fg in its shell"
    elif reason == "cooling":
        at = f"at {output.clock(limit.cooling_until)} " if limit.cooling_until else ""
        yield f"  then       {at}one request goes first; when it was answered, the others follow"
    elif reason == "settling":
        yield "  then       the server, which may have forgotten things, has heard from all who"
        yield "             hold something, and lets the next ones in"
    elif reason == "budget" and limit.next_request_at is not None:
        free_at = limit.next_request_at
        yield (
            f"  then       who was let in at {output.clock(free_at - WINDOW_SECONDS)} counts no"
            f" longer from {output.clock(free_at)} on, and the next one goes"
        )


def _outlook(ticket: WaitingView) -> str:
    if ticket.stopped:
        return "until it goes on, and longer if its turn has not come by then"
    if ticket.blocked_by.reason == "paused":
        return "until somebody resumes it"
    if ticket.blocked_by.reason == "cooling" and ticket.estimated_wait_seconds is None:
        return "until the one request that goes first was answered"
    if ticket.blocked_by.reason == "possible_deadlock":
        return "for ever, if nobody does anything"
    if ticket.estimated_wait_seconds is None:
        return "unknown: nothing was given back here yet"
    if ticket.estimated_wait_range is not None:
        low, high = map(output.length, ticket.estimated_wait_range)
        between = f"about {high}" if low == high else f"{low} to {high}"
        return f"{between}: little is known yet of how long such commands take"
    return f"about {output.length(ticket.estimated_wait_seconds)}"


def _remedies(wait: _Wait, blocking: int | None) -> Iterable[tuple[str, str]]:
    at, limit, reason = wait.limit.key, wait.limit.limit, wait.ticket.blocked_by.reason
    budget = wait.limit.requests_per_minute
    if reason == "stopped":
        yield f"headway cancel {wait.ticket.id}", "end it"
        return
    if wait.limit.paused:
        yield f"headway resume {at}", "let people in again"
    elif reason == "cooling":
        yield f"headway resume {at}", "end the cool-down now, for everyone"
    elif reason == "budget" and isinstance(budget, int):
        more = f"headway limits set {at} --requests-per-minute {budget + 1}"
        yield more, "let one more in each minute"
    elif isinstance(limit, int) and reason != "settling":
        yield f"headway limits set {at} {max(limit, wait.limit.used) + 1}", "let one more in"
    if wait.held_by and reason not in ("cooling", "budget", "settling"):
        if blocking is not None:
            yield f"headway cancel {blocking}", "end the job that holds its slot longest"
        else:
            longest = wait.held_by[0].id
            yield f"headway release {longest}", "take back the slot that is held longest"
    if wait.job is not None:
        if wait.ticket.position > 1:
            yield f"headway move {wait.job} --first", "put it in front of everyone"
        yield f"headway cancel {wait.job}", "give up this job"
    else:
        yield f"headway cancel {wait.ticket.id}", "give up this ticket"


# -- a lease ----------------------------------------------------------------------------


def _hold(snapshot: Snapshot, lease: LeaseView, job: int | None) -> _Hold:
    held = keys.path(lease.keys)
    return _Hold(
        lease=lease,
        limits=tuple(limit for limit in snapshot.limits if limit.key in held),
        waiting=sum(ticket.blocked_by.key in held for ticket in snapshot.waiting),
        job=job,
    )


def _story_of_hold(hold: _Hold) -> Iterable[str]:
    lease = hold.lease
    does = "is stopped (Ctrl-Z), and" if lease.stopped else "runs; it"
    yield f"{called(lease)} {does} holds {output.joined(lease.keys)}{_weight(lease)}."
    yield f"  since      {output.age(lease.since)} ({output.clock(lease.since)})"
    yield f"  held by    {_process(lease)}"
    for number, limit in enumerate(hold.limits):
        yield f"  {'' if number else 'counts on':<9}  {_place(limit)}"
    yield f"  waiting    {hold.waiting or 'nobody'} at these keys"
    yield "\nWhat you can do:"
    if hold.job is not None:
        yield from _steps(
            [
                (f"headway logs -f {hold.job}", "see what it writes"),
                (f"headway cancel {hold.job}", "end this job and all its processes"),
            ]
        )
        return
    steps = [(f"headway release {lease.id}", f"take its slot back; {afterwards(lease)}")]
    if ending_runs.is_run(lease):
        steps.insert(0, (f"headway cancel {lease.id}", "end it with SIGTERM"))
    yield from _steps(steps)


def _place(limit: LimitView) -> str:
    use = "" if limit.limit == UNLIMITED else f" of {limit.limit}"
    budget = f", {pacing.use(limit)}" if pacing.has_budget(limit) else ""
    paused = ", paused" if limit.paused else ""
    cooling = f", {pacing.cooling(limit)}" if pacing.is_cooling(limit) else ""
    return f"{limit.key}: {limit.used}{use} in use{budget}{paused}{cooling}"


# -- a lease that was taken back ------------------------------------------------------------


def _release(name: str) -> Release | None:
    """The last one of that name that is on record."""
    on_record = releases.read(config.home_directory())
    found = matching([release.lease for release in on_record], name)
    return next((release for release in on_record if release.lease in found[:1]), None)


def _story_of_release(release: Release) -> Iterable[str]:
    lease, at = release.lease, release.released_at
    yield f"{called(lease)} was taken back by hand; it held {output.joined(lease.keys)}."
    yield f"  when       {output.age(at)} ago ({output.clock(at)})"
    yield f"  after      {output.length(at - lease.since)}{_weight(lease)}"
    what = "its agent was ended" if is_agent(lease) else "its work went on"
    yield f"  held by    {_process(lease)}, who was told; {what}"
    yield f"  taken by   {_person(release.by)}"
    yield f"  reason     {output.clean(release.reason)}"


def _person(by: Releaser) -> str:
    task = f", task {output.clean(by.task)}" if by.task else ""
    terminal = f" on {by.terminal}" if by.terminal else ""
    return f"{by.user}{terminal}{task}, pid {by.pid} ({output.clean(by.command)})"


# -- words ------------------------------------------------------------------------------


def _wanted(ticket: WaitingView) -> str:
    slots = "" if ticket.weight == 1 else f", {ticket.weight} slots of each"
    return output.joined(ticket.keys) + slots


def _weight(lease: LeaseView) -> str:
    return "" if lease.weight == 1 else f", {lease.weight} slots"


def _urgency(ticket: WaitingView) -> str:
    return f", priority {ticket.priority}" if ticket.priority else ""


def _process(one: LeaseView | WaitingView) -> str:
    return f"{rows.process(one.holder)} ({output.clean(one.holder.command)})"


def _origin(limit: LimitView) -> str:
    sources = {
        "default": "the default; nobody has set one",
        "file": "from the home's config.toml",
        "store": "set for all machines",
        "environment": "from HEADWAY_LIMITS",
        "code": "set by a program",
    }
    return f"{limit.limit}, {sources.get(limit.source, 'nobody has set one')}"


def _some(lines: Iterable[str]) -> Iterable[str]:
    listed = [output.fit(line) for line in lines]
    yield from listed[:_LISTED]
    if len(listed) > _LISTED:
        yield f"  and {len(listed) - _LISTED} more"


def _steps(steps: Iterable[tuple[str, str]]) -> Iterable[str]:
    """Commands, each with what it does, in two columns."""
    listed = list(steps)
    widest = max(len(line) for line, _ in listed)
    return [f"  {line:<{widest}}  {what}" for line, what in listed]

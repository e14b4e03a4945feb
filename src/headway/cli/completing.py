"""What a shell may complete: keys, limits, tasks and ids of the home, and never an error.

A home that is missing is not made, a bad one has nothing to offer, and a busy
one is not waited for.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    import click
    from click.shell_completion import CompletionItem

    from headway.governor import Governor
    from headway.views import LeaseView, WaitingView

    # What can be typed, and a word about each.
    Offers: TypeAlias = dict[str, str]

# A person has pressed a key and looks at the screen.
_PATIENCE = "300ms"
_MANY_JOBS = 100


def keys(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys in use and keys with a limit."""
    return _fitting(incomplete, _look(_keys) or {"agent": "3 slots"})


def limits(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys and patterns with a line of their own."""
    return _fitting(incomplete, _look(_limits))


def patterns(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Everything that a limit may be set on, as far as it is known."""
    known = _look(lambda governor: _keys(governor) | _limits(governor))
    return _fitting(incomplete, known or {"agent": "3 slots"})


def closed(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Keys that are paused or cool down."""
    return _fitting(incomplete, _look(_closed))


def tasks(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Labels of what runs and waits."""
    return _fitting(incomplete, _look(lambda governor: _tasks(_everyone(governor))))


def jobs(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids and tasks of jobs."""
    return _fitting(incomplete, _look(_jobs))


def tickets(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids and tasks of what waits."""
    return _fitting(incomplete, _look(lambda governor: _names(governor.snapshot().waiting)))


def leases(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids and tasks of what runs."""
    return _fitting(incomplete, _look(lambda governor: _names(governor.snapshot().leases)))


def everyone(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids and tasks of all that runs or waits."""
    return _fitting(incomplete, _look(lambda governor: _names(_everyone(governor))))


# -- inside ---------------------------------------------------------------------------


def _keys(governor: Governor) -> Offers:
    """Every key that was ever asked for is known; what was misspelled once is not offered."""
    from headway import limits as terms  # noqa: PLC0415
    from headway.cli import pacing  # noqa: PLC0415

    written = {terms.DEFAULT.pattern, *(line.pattern for line in governor.lines())}
    return {
        limit.key: f"{limit.used}/{limit.limit}"
        for limit in governor.snapshot().limits
        if limit.key in written
        or limit.used
        or limit.waiting
        or limit.paused
        or pacing.is_cooling(limit)
    }


def _limits(governor: Governor) -> Offers:
    from headway.cli.meaning import in_words  # noqa: PLC0415

    return {line.pattern: in_words(line.parts()) for line in governor.lines()}


def _closed(governor: Governor) -> Offers:
    from headway.cli import pacing  # noqa: PLC0415

    return {
        limit.key: "paused" if limit.paused else pacing.cooling(limit)
        for limit in governor.snapshot().limits
        if limit.paused or pacing.is_cooling(limit)
    }


def _everyone(governor: Governor) -> list[LeaseView | WaitingView]:
    snapshot = governor.snapshot()
    return [*snapshot.waiting, *snapshot.leases]


def _tasks(found: Iterable[LeaseView | WaitingView]) -> Offers:
    return {one.task: " + ".join(one.keys) for one in found if one.task}


def _names(found: Iterable[LeaseView | WaitingView]) -> Offers:
    found = list(found)
    return {one.id: one.task or " + ".join(one.keys) for one in found} | _tasks(found)


def _look(offers: Callable[[Governor], Offers]) -> Offers:
    """What the home has to offer; nothing if that is not to be had at once."""
    try:
        from headway import config  # noqa: PLC0415

        if not os.path.isdir(config.home_directory()) and config.load().store_url is None:
            return {}
        import logging  # noqa: PLC0415

        from headway.governor import Governor  # noqa: PLC0415

        logging.disable()
        os.environ["HEADWAY_STORE_TIMEOUT"] = _PATIENCE
        with Governor() as governor:
            return offers(governor)
    except Exception:  # noqa: BLE001 - whatever it is, a person is in the middle of a line
        return {}


def _fitting(incomplete: str, offers: Offers) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem  # noqa: PLC0415

    return [
        CompletionItem(offer, help=word)
        for offer, word in sorted(offers.items())
        # The shells' protocol has one line per offer.
        if offer.startswith(incomplete) and offer.isprintable() and word.isprintable()
    ]


def _jobs(governor: Governor) -> Offers:
    jobs = governor.jobs.all(limit=_MANY_JOBS)
    tasks = {job.task: f"job {job.id} {job.state}" for job in jobs if job.task}
    return {str(job.id): f"{job.state} {job.task or job.command[0]}" for job in jobs} | tasks

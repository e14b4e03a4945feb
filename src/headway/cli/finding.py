"""Finding a ticket or lease by what a person types: its id, the start of one, or its task."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli import NOT_THERE, Failure, output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias, TypeVar

    from headway.views import LeaseView, Snapshot, WaitingView

    Found: TypeAlias = LeaseView | WaitingView
    One = TypeVar("One", LeaseView, WaitingView, Found)

GOES_ON = "its work goes on"
_NAMED, _BRIEF = 4, 30


def find(snapshot: Snapshot, name: str) -> Found:
    """The one ticket or lease of that name; a ``Failure`` that helps if there is not one."""
    everyone: Sequence[Found] = (*snapshot.waiting, *snapshot.leases)
    found = matching(everyone, name)
    if len(found) == 1:
        return found[0]
    if found:
        raise Failure(f"{name!r} fits {_listed(found)}; give a whole id", NOT_THERE)
    raise Failure(f"nothing is called {name!r}: {_hint(everyone, name)}", NOT_THERE)


def matching(among: Sequence[One], name: str) -> list[One]:
    """Those that have this id; or else this task; or else an id that begins so."""
    return (
        [one for one in among if one.id == name]
        or [one for one in among if one.task == name]
        or [one for one in among if one.id.startswith(name)]
    )


def is_there(snapshot: Snapshot, name: str) -> bool:
    """Whether a ticket or lease has that name now."""
    return bool(matching(snapshot.waiting, name) or matching(snapshot.leases, name))


def called(one: Found) -> str:
    """The id, and the task if it has one: ``abcdef-1 (issue-16)``."""
    return f"{one.id} ({output.clean(one.task)})" if one.task else one.id


def is_agent(lease: LeaseView) -> bool:
    """Whether it belongs to `headway agent`, which ends its work when it has lost its slot."""
    return lease.holder.command.startswith("headway agent ")


def afterwards(lease: LeaseView) -> str:
    """What becomes of the work when its slot is taken back."""
    return "its agent is ended" if is_agent(lease) else GOES_ON


def _listed(found: Sequence[Found]) -> str:
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(_briefly(one) for one in found[:_NAMED]) + more


def _briefly(one: Found) -> str:
    text = called(one)
    return text if len(text) <= _BRIEF else f"{text[: _BRIEF - 2]}…)"


def _hint(everyone: Sequence[Found], name: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - only when something is wrong

    if not everyone:
        return "nothing runs and nobody waits"
    names = [*(one.id for one in everyone), *(one.task for one in everyone if one.task)]
    near = get_close_matches(name, names, n=3)
    if near:
        return f"did you mean {' or '.join(output.clean(one) for one in near)}?"
    return f"there are {_listed(everyone)}; all ids: headway status"

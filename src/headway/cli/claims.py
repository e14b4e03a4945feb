"""What ``headway demo`` claims at its end, taken from what its agents reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.cli.story import SLOTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.cli.story import Agent
    from headway.views import Snapshot


def peak(agents: Sequence[Agent]) -> int:
    """How many were at work at once, at most, by what they said themselves."""
    begun = [agent for agent in agents if agent.began_at is not None]
    return max((_at_work(begun, agent.began_at or 0) for agent in begun), default=0)


def _at_work(agents: Sequence[Agent], moment: float) -> int:
    return sum(
        (agent.began_at or 0) <= moment < (agent.over_at or float("inf")) for agent in agents
    )


def served(agents: Sequence[Agent]) -> list[str]:
    """The tasks in the order in which they got their slots."""
    granted = [agent for agent in agents if agent.granted_at is not None]
    return [agent.task for agent in sorted(granted, key=lambda agent: agent.granted_at or 0)]


def broken(agents: Sequence[Agent], left: Snapshot) -> list[str]:
    """Everything that was not as Headway promises."""
    failures = [_failure(agent) for agent in agents if agent.code and agent.killed_at is None]
    if failures:
        return failures  # the others were not waited for
    asked = [agent.task for agent in agents]
    problems = [
        f"{agent.task} did not come to its end"
        for agent in agents
        if agent.killed_at is None and agent.ended_at is None
    ]
    if peak(agents) > SLOTS:
        problems.append(f"{peak(agents)} ran at once, the limit is {SLOTS}")
    if served(agents) != asked:
        problems.append(f"asked in the order {_listed(asked)}, served {_listed(served(agents))}")
    if not any(agent.killed_at is not None for agent in agents):
        problems.append("nobody was killed")
    if left.leases or left.waiting:
        held = [lease.task or lease.id for lease in left.leases]
        held += [ticket.task or ticket.id for ticket in left.waiting]
        problems.append(f"at the end there is still {_listed(held)}")
    return problems


def _failure(agent: Agent) -> str:
    said = " ".join(agent.complaints[-3:])
    return f"{agent.task} ended with code {agent.code}" + (f": {said}" if said else "")


def _listed(tasks: Sequence[str]) -> str:
    return ", ".join(tasks) or "nobody"

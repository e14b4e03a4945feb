"""How many go through when all want to, and whether they get even shares."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from bench import contenders
from bench.children import Child, crew
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value
from headway import Lease

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from bench.contenders import Contender

PROCESSES, SLOTS = 8, 4
KINDS = (contenders.Headway, contenders.Portalocker, contenders.Filelock)


@dataclass(slots=True)
class Seen:
    """What each contender did in each round."""

    rates: dict[str, list[float]] = field(default_factory=dict)
    # The least over the most served process.
    evenness: dict[str, list[float]] = field(default_factory=dict)
    # Of Headway's grants, in percent.
    most_out_of_order: float = 0.0


def measure(effort: Effort, directory: str) -> Findings:
    seen = race([kind(directory, SLOTS) for kind in KINDS], effort)
    rate, even = medians(seen.rates), medians(seen.evenness)
    return Findings(
        [
            Row("pairs", "/s", rate.pop("headway"), rate, Aim(9000, at_least=True)),
            Row("least over most served process", "", even.pop("headway"), even),
            Row("grants out of arrival order", "%", seen.most_out_of_order, aim=Aim(0)),
        ],
        [f"{PROCESSES} processes, {SLOTS} slots, nothing held; filelock has one lock"],
    )


def race(every: Sequence[Contender], effort: Effort) -> Seen:
    """Let the processes of one contender run at once, then those of the next, in turns."""
    seen = Seen()
    with crew() as start:
        teams = {
            contender.name: [start(hammer, contender) for _ in range(PROCESSES)]
            for contender in every
        }
        for child in chain.from_iterable(teams.values()):
            child.answer()
        for _ in range(effort.pick(5, 2)):
            for name, team in teams.items():
                counts, grants, seconds = _run(team, effort.pick(1.5, 1.0))
                seen.rates.setdefault(name, []).append(sum(counts) / seconds)
                seen.evenness.setdefault(name, []).append(min(counts) / max(1, *counts))
                seen.most_out_of_order = max(seen.most_out_of_order, _out_of_order(grants))
    return seen


def medians(seen: dict[str, list[float]]) -> dict[str, Value]:
    """Of all rounds."""
    return {name: statistics.median(values) for name, values in seen.items()}


def _run(team: list[Child], seconds: float) -> tuple[list[int], list[tuple[int, int]], float]:
    """Let everyone run at once; how often each came through, and in which order."""
    starts_at = time.monotonic() + 0.05
    for child in team:
        child.tell((starts_at, seconds))
    answers = [child.answer() for child in team]
    counts = [count for count, _, _ in answers]
    grants = [grant for _, granted, _ in answers for grant in granted]
    return counts, grants, max(ended_at for _, _, ended_at in answers) - starts_at


def hammer(pipe: Connection, contender: Contender) -> None:
    gate = contender.gate()
    pipe.send("ready")
    while True:
        starts_at, seconds = pipe.recv()
        ends_at, count, leases = starts_at + seconds, 0, []
        time.sleep(max(0.0, starts_at - time.monotonic()))
        while time.monotonic() < ends_at:
            with gate() as lease:
                leases.append(lease)
            count += 1
        ended_at = time.monotonic()
        pipe.send((count, _waits(leases), ended_at))


def _waits(leases: list[Any]) -> list[tuple[int, int]]:
    """When those of Headway's leases that had to wait came, and which grant theirs was."""
    tickets = [lease.ticket for lease in leases if isinstance(lease, Lease)]
    return [(ticket.arrival, ticket.token) for ticket in tickets if ticket.arrival]


def _out_of_order(grants: list[tuple[int, int]]) -> float:
    """Of neighbours in order of arrival, how many percent were granted the other way round."""
    tokens = [token for _, token in sorted(grants)]
    return 100 * sum(one > next_ for one, next_ in pairwise(tokens)) / max(1, len(tokens) - 1)


FIGURE = Figure("throughput", "all at once, nothing held", measure)

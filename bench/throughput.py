"""How many go through when all want to, and whether they get even shares."""

from __future__ import annotations

import statistics
import time
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from bench import contenders
from bench.children import Child, crew
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value
from headway import Lease

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from bench.contenders import Contender

PROCESSES, SLOTS = 8, 4
KINDS = (contenders.Headway, contenders.Portalocker, contenders.Filelock)


def measure(effort: Effort, directory: str) -> Findings:
    rates: dict[str, list[float]] = {kind.name: [] for kind in KINDS}
    evenness: dict[str, list[float]] = {kind.name: [] for kind in KINDS}
    out_of_order: list[float] = []
    with crew() as start:
        teams = {
            kind.name: [start(hammer, kind(directory, SLOTS)) for _ in range(PROCESSES)]
            for kind in KINDS
        }
        for child in chain.from_iterable(teams.values()):
            child.answer()
        for _ in range(effort.pick(5, 2)):
            for name, team in teams.items():
                counts, grants, seconds = _run(team, effort.pick(1.5, 1.0))
                rates[name].append(sum(counts) / seconds)
                evenness[name].append(min(counts) / max(1, *counts))
                if grants:
                    out_of_order.append(_out_of_order(grants))
    rate: dict[str, Value] = {name: statistics.median(seen) for name, seen in rates.items()}
    even: dict[str, Value] = {name: statistics.median(seen) for name, seen in evenness.items()}
    return Findings(
        [
            Row("pairs", "/s", rate.pop("headway"), rate, Aim(9000, at_least=True)),
            Row("least over most served process", "", even.pop("headway"), even),
            Row("grants out of arrival order", "%", max(out_of_order, default=0.0), aim=Aim(0)),
        ],
        [f"{PROCESSES} processes, {SLOTS} slots, nothing held; filelock has one lock"],
    )


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

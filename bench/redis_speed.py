"""What it costs to go in and out through a Redis server, alone and with others in the way."""

from __future__ import annotations

import os
import statistics
from functools import partial
from typing import TYPE_CHECKING

from bench import handoff, throughput, timing, uncontended
from bench.children import crew
from bench.figure import Effort, Figure, Findings
from bench.redis_contenders import PEERS, Headway, OnServer, Steindamm, TwoScripts
from bench.redis_server import server, version
from bench.report import Aim, Row, Value

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from bench.contenders import Contender

LIMIT = 4
PAIRS = 200


def _all(directory: str, url: str, limit: int) -> list[OnServer]:
    return [kind(directory, url, limit) for kind in (Headway, *PEERS)]


# -- alone -------------------------------------------------------------------------------


def measure_uncontended(effort: Effort, directory: str) -> Findings:
    everywhere = os.sched_getaffinity(0)
    rows: list[Row] = []
    notes: list[str] = []
    for name, processors in (
        ("acquire + release, three levels", everywhere),
        ("the same, on one processor", {min(everywhere)}),
    ):
        os.sched_setaffinity(0, processors)
        try:
            cost, note = _cost_alone(effort, os.path.join(directory, str(len(rows))))
        finally:
            os.sched_setaffinity(0, everywhere)
        own = cost.pop(Headway.name)
        rows.append(Row(name, "µs", own, cost, Aim(2, TwoScripts.name)))
        notes = [note]
    notes.append(
        "on one processor nobody waits until another one was woken, which takes a virtual machine"
        " longer than most of this"
    )
    return Findings(rows, notes)


def _cost_alone(effort: Effort, directory: str) -> tuple[dict[str, Value], str]:
    os.mkdir(directory)
    with server(directory) as url, crew() as start:
        every = [*_all(directory, url, LIMIT), TwoScripts(directory, url, LIMIT)]
        children = {contender.name: start(_go_in_and_out, contender) for contender in every}
        seen = timing.rounds(
            {name: partial(child.ask, "go") for name, child in children.items()},
            seconds=effort.pick(8.0, 2.0),
        )
        note = f"Redis {version(url)} on this machine, append-only file, one process each in turn"
    return dict(timing.medians(seen)), note


def _go_in_and_out(pipe: Connection, contender: Contender) -> None:
    measure = uncontended.pairs(contender.gate(), PAIRS)
    while True:
        pipe.recv()
        pipe.send(measure())


# -- from one to the next ----------------------------------------------------------------


def measure_handoff(effort: Effort, directory: str) -> Findings:
    with server(directory) as url:
        seen = handoff.delays_ms(_all(directory, url, 1), effort)
    medians: dict[str, Value] = {name: statistics.median(ms) for name, ms in seen.items()}
    worst: dict[str, Value] = {name: timing.percentile(ms, 99) for name, ms in seen.items()}
    fastest = min(PEERS, key=lambda kind: statistics.median(seen[kind.name])).name
    count = len(seen[Headway.name])
    return Findings(
        [
            Row("median", "ms", medians.pop(Headway.name), medians, Aim(1, fastest)),
            Row("p99", "ms", worst.pop(Headway.name), worst),
        ],
        [f"{count} hand-offs; those who poll have fewer"],
    )


# -- all at once -------------------------------------------------------------------------


def measure_throughput(effort: Effort, directory: str) -> Findings:
    with server(directory) as url:
        seen = throughput.race(_all(directory, url, throughput.SLOTS), effort)
    rate, even = throughput.medians(seen.rates), throughput.medians(seen.evenness)
    aim = Aim(1, Steindamm.name, at_least=True)
    return Findings(
        [
            Row("pairs", "/s", rate.pop(Headway.name), rate, aim),
            Row("least over most served process", "", even.pop(Headway.name), even),
            Row("grants out of arrival order", "%", seen.most_out_of_order, aim=Aim(0)),
        ],
        [
            f"{throughput.PROCESSES} processes, {throughput.SLOTS} slots; redis-py's is one lock",
            "no peer is both fair and safe from crashes: steindamm and self-limiters are fair",
        ],
    )


UNCONTENDED = Figure("redis", "the Redis store, nobody in the way", measure_uncontended)
HANDOFF = Figure("redis-handoff", "release in one process to running in another", measure_handoff)
THROUGHPUT = Figure("redis-throughput", "all at once, nothing held", measure_throughput)

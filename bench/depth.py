"""What one operation costs when the queue is long."""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

from bench.children import Child, crew
from bench.contenders import KEY, LIMITED_KEY
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row
from headway.keys import path
from headway.limits import CODE, Line
from headway.stores import open_store
from headway.stores.memory import MemoryStore
from headway.tickets import MAX_PRIORITY, Granted, Ticket, Waiting

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from headway.stores.base import Store

FEW = 10
MOST_WAITING = 1_000_000
OPERATIONS = ("request that waits", "withdraw", "release with grant")
FILL_SECONDS = 100


def measure(effort: Effort, directory: str) -> Findings:
    many = effort.pick(100_000, 5_000)
    found = []
    with crew() as start:
        for store in ("sqlite", "memory"):
            work = _measure_sqlite if store == "sqlite" else _measure_memory
            benches = {
                waiting: start(work, os.path.join(directory, f"{store}-{waiting}"), waiting)
                for waiting in (FEW, many)
            }
            found += rows(store, benches, many, effort)
            for bench in benches.values():
                bench.kill()
    return Findings(found, [f"headway: with {many:,} waiting"])


def rows(store: str, benches: dict[int, Child], many: int, effort: Effort) -> list[Row]:
    """Each operation with many and with few waiting, on the benches of one store."""
    for bench in benches.values():
        bench.answer(FILL_SECONDS)
    costs = _rounds(benches, effort.pick(12, 4))
    return [
        Row(
            f"{store}, {operation}",
            "µs",
            costs[many][operation],
            {f"{FEW} waiting": costs[FEW][operation]},
            Aim(2, f"{FEW} waiting"),
        )
        for operation in OPERATIONS
    ]


def _rounds(benches: dict[int, Child], rounds: int) -> dict[int, dict[str, float]]:
    """The median cost of each operation for each depth, measured in turns."""
    seen: dict[int, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for waiting, bench in benches.items():
            for operation, microseconds in bench.ask("measure").items():
                seen.setdefault(waiting, {}).setdefault(operation, []).append(microseconds)
    return {
        waiting: {operation: statistics.median(each) for operation, each in found.items()}
        for waiting, found in seen.items()
    }


def _measure_sqlite(pipe: Connection, home: str, waiting: int) -> None:
    os.makedirs(home, mode=0o700)
    with open(os.path.join(home, "config.toml"), "w", encoding="utf-8") as file:
        file.write(f'[limits]\n"{LIMITED_KEY}" = 1\n[queue]\nmax_waiting = {MOST_WAITING}\n')
    one, other, crowd = (open_store(f"sqlite:///{home}")[0] for _ in range(3))
    answer(pipe, Bench(one, other, crowd, waiting))


def _measure_memory(pipe: Connection, home: str, waiting: int) -> None:
    del home
    store = MemoryStore(max_waiting=MOST_WAITING)
    terms = store.terms()
    store.set_terms(terms.with_lines([Line(LIMITED_KEY, 1, CODE)]), expected=terms)
    answer(pipe, Bench(store, store, store, waiting))


def answer(pipe: Connection, bench: Bench) -> None:
    """Measure whenever asked to."""
    pipe.send("filled")
    while True:
        pipe.recv()
        pipe.send(bench.measure())


class Bench:
    """A full key, a long line of a third party at it, and two holders that pass it on."""

    def __init__(self, one: Store, other: Store, crowd: Store, waiting: int) -> None:
        self._holder, self._next = one, other
        self._lease = self._ticket(one)
        assert isinstance(one.request(self._lease, wait=True), Granted)
        for _ in range(waiting):
            assert isinstance(crowd.request(self._ticket(crowd), wait=True), Waiting)

    def measure(self, times: int = 40) -> dict[str, float]:
        """The median of each operation, in microseconds. The line is as long as before."""
        seen: dict[str, list[float]] = {operation: [] for operation in OPERATIONS}
        for _ in range(times):
            last = self._ticket(self._next)
            seen[OPERATIONS[0]].append(_cost(lambda: self._next.request(last, wait=True)))  # noqa: B023
            seen[OPERATIONS[1]].append(_cost(lambda: self._next.withdraw(last)))  # noqa: B023
            first = self._ticket(self._next, priority=MAX_PRIORITY)
            assert isinstance(self._next.request(first, wait=True), Waiting)
            seen[OPERATIONS[2]].append(_cost(lambda: self._holder.release(self._lease, 0.01)))
            while first.at is not None:
                self._next.listen(1.0)
            self._next.news.clear()
            self._lease, self._holder, self._next = first, self._next, self._holder
        return {operation: statistics.median(costs) for operation, costs in seen.items()}

    def _ticket(self, store: Store, priority: int = 0) -> Ticket:
        return Ticket(store.new_id(), (KEY,), path((KEY,)), priority=priority)


def _cost(operation: Callable[[], object]) -> float:
    started = time.perf_counter_ns()
    operation()
    return (time.perf_counter_ns() - started) / 1000


FIGURE = Figure("depth", "one operation with a long line, and with a short one", measure)

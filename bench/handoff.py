"""From the release in one process to running in another."""

from __future__ import annotations

import random
import statistics
import time
from typing import TYPE_CHECKING

from bench import contenders, roles, sem, timing
from bench.children import Child, Crew, crew
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.contenders import Contender

# Long enough for a waiter to be fast asleep before the release that wakes it.
SETTLE_SECONDS = 0.004

PEERS = (contenders.Multiprocessing, *contenders.FILE_LOCKS)


def measure(effort: Effort, directory: str) -> Findings:
    seen = delays_ms([kind(directory, 1) for kind in (contenders.Headway, *PEERS)], effort)
    medians: dict[str, Value] = {name: statistics.median(ms) for name, ms in seen.items()}
    worst: dict[str, Value] = {name: timing.percentile(ms, 99) for name, ms in seen.items()}
    medians["sem"] = _sem(directory, times=effort.pick(8, 3))
    return Findings(
        [
            Row("median", "ms", medians.pop("headway"), medians, Aim(6, "multiprocessing")),
            Row("p99", "ms", worst.pop("headway"), worst, Aim(2.0)),
        ],
        [f"{len(seen['headway'])} hand-offs; those who poll have fewer"],
    )


def delays_ms(every: Sequence[Contender], effort: Effort) -> dict[str, list[float]]:
    """How long each of them took to hand over, measured in turns."""
    with crew() as start:
        pairs = [Pair(start, contender, effort) for contender in every]
        for _ in range(effort.pick(5, 2)):
            for pair in pairs:
                pair.alternate()
    return {pair.contender.name: pair.delays_ms for pair in pairs}


class Pair:
    """Two processes that pass a limit of one to each other."""

    def __init__(self, start: Crew, contender: Contender, effort: Effort) -> None:
        self.contender = contender
        self.delays_ms: list[float] = []
        if contender.poll_seconds:
            self._times = max(2, int(effort.pick(1.0, 0.4) / contender.poll_seconds))
        else:
            self._times = effort.pick(100, 50)
        self._holder, self._waiter = (start(roles.take_turns, contender) for _ in range(2))
        self._holder.ask("acquire")

    def alternate(self) -> None:
        """Hand over and back, so many times."""
        for _ in range(self._times):
            self._hand_over(self._holder, self._waiter)
            self._holder, self._waiter = self._waiter, self._holder

    def _hand_over(self, holder: Child, waiter: Child) -> None:
        waiter.tell("acquire")
        # Any moment between two looks of a peer that polls is as likely as any other.
        time.sleep(SETTLE_SECONDS + random.uniform(0, self.contender.poll_seconds))
        released_at = holder.ask("release")
        self.delays_ms.append((waiter.answer() - released_at) / 1e6)


def _sem(directory: str, *, times: int) -> Value:
    if not sem.installed():
        return "not installed"
    delays_ms = []
    with sem.Sem(directory) as peer:
        for _ in range(times):
            peer.hold()
            peer.queue("running")
            # It takes that long to start, and then looks about every tenth of a second.
            time.sleep(0.5 + random.uniform(0, 0.1))
            released_at = time.monotonic_ns()
            peer.release()
            peer.next_line()
            delays_ms.append((time.monotonic_ns() - released_at) / 1e6)
    return statistics.median(delays_ms)


FIGURE = Figure("handoff", "release in one process to running in another", measure)

"""Whether those who wait are served in the order in which they came."""

from __future__ import annotations

import random
import statistics
import time
from contextlib import ExitStack
from itertools import combinations
from typing import TYPE_CHECKING

from bench import contenders, roles, sem
from bench.children import Crew, crew
from bench.contenders import LIMITED_KEY, Contender, Headway
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

WAITERS = 10
# Nobody can see the queue of a peer: time has to do. A command of sem takes long to start.
ARRIVAL_SECONDS, SEM_ARRIVAL_SECONDS = 0.02, 0.4
PEERS = (contenders.Multiprocessing, *contenders.FILE_LOCKS)


def measure(effort: Effort, directory: str) -> Findings:
    seen: dict[str, list[float]] = {}
    with ExitStack() as stack:
        start = stack.enter_context(crew())
        lines = [Line(stack, start, kind(directory, 1)) for kind in (Headway, *PEERS)]
        for _ in range(effort.pick(4, 1)):
            for line in lines:
                seen.setdefault(line.name, []).append(_out_of_order(line.serve()))
    shares: dict[str, Value] = {name: statistics.mean(share) for name, share in seen.items()}
    shares["sem"] = _sem(directory, effort.pick(WAITERS, 5)) if sem.installed() else "not installed"
    row = Row("pairs out of order", "%", shares.pop("headway"), shares, Aim(0))
    return Findings([row], [f"{WAITERS} processes that came one after another"])


class Line:
    """Processes that queue up one by one behind a holder."""

    def __init__(self, stack: ExitStack, start: Crew, contender: Contender) -> None:
        self.name = contender.name
        self._contender = contender
        self._governor = None
        if isinstance(contender, Headway):
            self._governor = stack.enter_context(contender.governor())
        self._holder = start(roles.take_turns, contender)
        self._waiters = [start(roles.pass_through, contender, 0.001) for _ in range(WAITERS)]

    def serve(self) -> list[int]:
        """When each of them was served, in the order in which they came."""
        random.shuffle(self._waiters)
        self._holder.ask("come")
        for count, waiter in enumerate(self._waiters, 1):
            waiter.tell("come")
            self._await_arrival(count)
        # Those who poll must not find it free in the order in which they began to.
        time.sleep(random.uniform(0, 2 * self._contender.poll_seconds))
        self._holder.ask("leave")
        return [waiter.answer() for waiter in self._waiters]

    def _await_arrival(self, count: int) -> None:
        if self._governor is None:
            time.sleep(ARRIVAL_SECONDS)
            return
        while self._governor.capacity(LIMITED_KEY).waiting < count:
            time.sleep(0.001)


def _out_of_order(served: Sequence[int]) -> float:
    """Of all pairs, how many percent were served the other way round."""
    pairs = list(combinations(served, 2))
    return 100 * sum(earlier > later for earlier, later in pairs) / len(pairs)


def _sem(directory: str, waiters: int) -> float:
    with sem.Sem(directory) as peer:
        peer.hold()
        for number in range(waiters):
            peer.queue(str(number))
            time.sleep(SEM_ARRIVAL_SECONDS)
        peer.release()
        lines = [int(peer.next_line()) for _ in range(waiters)]
    return _out_of_order([lines.index(number) for number in range(waiters)])


FIGURE = Figure("order", "served in the order of arrival", measure)

"""What becomes of the slot of a holder that is killed, on a Redis server."""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from bench import crash, roles
from bench.children import Crew, crew
from bench.figure import Effort, Figure, Findings
from bench.redis_contenders import PEERS, Dramatiq, Headway, OnServer, SelfLimiters, Steindamm
from bench.redis_server import LEASE_SECONDS, server
from bench.report import Aim, Row, Value

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE_SECONDS = 4.0 * LEASE_SECONDS
NEVER = f"not in {PATIENCE_SECONDS:.0f} s"
HOLD_SECONDS = 0.02
# Those with a count: what is left of it can go on being used.
COUNTING = (Headway, Steindamm, SelfLimiters, Dramatiq)


def measure(effort: Effort, directory: str) -> Findings:
    times = effort.pick(3, 1)
    with server(directory) as url, crew() as start:
        alone = {
            kind.name: _seconds_alone(start, kind(directory, url, 1, LEASE_SECONDS), times)
            for kind in (Headway, *PEERS)
        }
        busy = {
            kind.name: _seconds_busy(start, kind(directory, url, 2, LEASE_SECONDS))
            for kind in COUNTING
        }
    aim = Aim(1.05 * LEASE_SECONDS)
    return Findings(
        [
            Row("one slot, someone waits", "s", alone.pop(Headway.name), alone, aim),
            Row("two slots, others come and go", "s", busy.pop(Headway.name), busy, aim),
        ],
        [
            f"store.lease_seconds = {LEASE_SECONDS}, and the peers' expiry, timeout and ttl too",
            "with redis-py's Lock and dramatiq a living holder loses it after that time as well",
        ],
    )


def _seconds_alone(start: Crew, contender: OnServer, times: int) -> Value:
    """From the kill of the only holder to its waiter running."""
    trial, seen = crash.Trial(start, contender, PATIENCE_SECONDS), []
    for _ in range(times):
        try:
            seen.append(trial.run() / 1000)
        except TimeoutError:
            return NEVER
    return statistics.median(seen)


def _seconds_busy(start: Crew, contender: OnServer) -> Value:
    """From the kill of one of two holders until two are in at once again."""
    victim = start(roles.take_turns, contender)
    victim.ask("acquire")
    others = [start(roles.come_and_go, contender, HOLD_SECONDS) for _ in range(2)]
    for other in others:
        other.answer()
    for other in others:
        other.tell(time.monotonic() + PATIENCE_SECONDS)
    time.sleep(10 * HOLD_SECONDS)
    killed_at = time.monotonic_ns()
    victim.kill()
    stays = [stay for other in others for stay in other.answer()]
    for other in others:
        other.kill()
    return _first_together(sorted(stay for stay in stays if stay[0] > killed_at), killed_at)


def _first_together(stays: Sequence[tuple[int, int]], killed_at: int) -> Value:
    for (_, left_at), (entered_at, _) in pairwise(stays):
        if entered_at < left_at:
            return (entered_at - killed_at) / 1e9
    return NEVER


FIGURE = Figure("redis-crash", "kill -9 of a holder to its slot being used again", measure)

"""What it costs to go in and out when nobody is in the way."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import anyio

from bench import contenders, timing
from bench.contenders import KEY, LIMITED_KEY
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row
from headway import Governor

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LIMIT = 4
SHARED_PAIRS, MEMORY_PAIRS = 200, 2000


def measure_shared(effort: Effort, directory: str) -> Findings:
    with ExitStack() as stack:
        headway = contenders.Headway(directory, LIMIT)
        governor = stack.enter_context(headway.governor())
        peers = [
            kind(directory, LIMIT)
            for kind in (contenders.Portalocker, contenders.Filelock, contenders.Fasteners)
        ]
        gates = {peer.name: peer.gate() for peer in peers}
        gates[headway.name] = lambda: governor.slot(KEY)
        seen = timing.rounds(
            {name: pairs(gate, SHARED_PAIRS) for name, gate in gates.items()},
            seconds=effort.pick(8.0, 2.0),
        )
    cost = timing.medians(seen)
    own = cost.pop(headway.name)
    row = Row("acquire + release, three levels", "µs", own, cost, Aim(1, "portalocker"))
    return Findings([row], ["filelock and fasteners are one lock each, without a count"])


def measure_memory(effort: Effort, directory: str) -> Findings:
    del directory
    governor = Governor("memory://", limits={LIMITED_KEY: LIMIT})
    seconds = effort.pick(4.0, 1.0)
    semaphore = threading.BoundedSemaphore(LIMIT)
    plain = timing.medians(
        timing.rounds(
            {
                "headway": pairs(lambda: governor.slot(KEY), MEMORY_PAIRS),
                "threading.BoundedSemaphore": pairs(lambda: semaphore, MEMORY_PAIRS),
            },
            seconds=seconds,
        )
    )
    coroutines = asyncio.run(_measure_coroutines(governor, seconds))
    governor.close()
    own = coroutines.pop("headway")
    return Findings(
        [
            Row("async with", "µs", own, coroutines, Aim(1, "anyio.CapacityLimiter")),
            Row("with", "µs", plain.pop("headway"), plain),
        ]
    )


async def _measure_coroutines(governor: Governor, seconds: float) -> dict[str, float]:
    semaphore, limiter = asyncio.Semaphore(LIMIT), anyio.CapacityLimiter(LIMIT)
    costs = {
        "headway": _async_pairs(lambda: governor.slot(KEY)),
        "asyncio.Semaphore": _async_pairs(lambda: semaphore),
        "anyio.CapacityLimiter": _async_pairs(lambda: limiter),
    }
    seen: dict[str, list[float]] = {name: [] for name in costs}
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        for name, cost in costs.items():
            seen[name].append(await cost())
    return timing.medians(seen)


def pairs(gate: Callable[[], AbstractContextManager[Any]], times: int) -> Callable[[], float]:
    """Measure ``with gate():``, so many at once."""

    def measure() -> float:
        started = time.perf_counter()
        for _ in range(times):
            with gate():
                pass
        return (time.perf_counter() - started) / times * 1e6

    return measure


def _async_pairs(
    gate: Callable[[], AbstractAsyncContextManager[Any]],
) -> Callable[[], Awaitable[float]]:
    async def measure() -> float:
        started = time.perf_counter()
        for _ in range(MEMORY_PAIRS):
            async with gate():
                pass
        return (time.perf_counter() - started) / MEMORY_PAIRS * 1e6

    return measure


SHARED = Figure("uncontended", "the SQLite store, nobody in the way", measure_shared)
MEMORY = Figure("memory", "the memory store, nobody in the way", measure_memory)

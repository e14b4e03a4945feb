"""Many tasks of one event loop, another process against them, and the loop's own pulse."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

from bench import throughput, timing
from bench.children import crew
from bench.contenders import KEY, Headway
from bench.figure import Effort, Figure, Findings
from bench.report import Row

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TASKS, SLOTS = 64, 4
PULSE_SECONDS = 0.002


def measure(effort: Effort, directory: str) -> Findings:
    rates, other_rates, lags = [], [], []
    headway = Headway(directory, SLOTS)
    with crew() as start:
        tasks, other = start(_hammer_with_tasks, headway), start(throughput.hammer, headway)
        tasks.answer()
        other.answer()
        for _ in range(effort.pick(4, 2)):
            when = (time.monotonic() + 0.05, effort.pick(2.0, 1.0))
            tasks.tell(when)
            other.tell(when)
            count, lag = tasks.answer()
            rates.append(count / when[1])
            lags.append(timing.percentile(lag, 99))
            other_rates.append(other.answer()[0] / when[1])
    return Findings(
        [
            Row("pairs of the tasks", "/s", statistics.median(rates)),
            Row("pairs of the other process", "/s", statistics.median(other_rates)),
            Row("loop lag, p99", "ms", statistics.median(lags)),
        ],
        [f"{TASKS} tasks and another process, {SLOTS} slots, held for one turn of the loop"],
    )


def _hammer_with_tasks(pipe: Connection, headway: Headway) -> None:
    governor = headway.governor()

    async def hammer(ends_at: float) -> int:
        count = 0
        while time.monotonic() < ends_at:
            async with governor.slot(KEY):
                await asyncio.sleep(0)  # or one task would go on for as long as there is room
            count += 1
        return count

    async def feel_pulse(ends_at: float) -> list[float]:
        """By how many milliseconds each beat came late."""
        lags = []
        while (now := time.monotonic()) < ends_at:
            await asyncio.sleep(PULSE_SECONDS)
            lags.append((time.monotonic() - now - PULSE_SECONDS) * 1000)
        return lags

    async def run(starts_at: float, seconds: float) -> tuple[int, list[float]]:
        await asyncio.sleep(max(0.0, starts_at - time.monotonic()))
        ends_at = starts_at + seconds
        pulse = asyncio.create_task(feel_pulse(ends_at))
        counts = await asyncio.gather(*[hammer(ends_at) for _ in range(TASKS)])
        return sum(counts), await pulse

    pipe.send("ready")
    while True:
        pipe.send(asyncio.run(run(*pipe.recv())))


FIGURE = Figure("loop", "tasks of one event loop, and another process", measure)

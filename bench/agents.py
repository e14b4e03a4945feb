"""Agents: what the harness adds to a program, and how fast a caller is let go."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time
from typing import TYPE_CHECKING

from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value
from headway.harness import Command

if TYPE_CHECKING:
    from headway.harness import Harness

_ANSWER = "#!/bin/sh\necho done\n"
_PATIENT = '#!/bin/sh\necho up > "$UP"\nexec sleep 600\n'


def measure_agents(effort: Effort, directory: str) -> Findings:
    count = effort.pick(200, 20)
    quick = Command(_script(directory, "quick", _ANSWER), max_concurrent=8)
    alone = _median(
        lambda: subprocess.run([quick.executable], check=True, capture_output=True), count
    )
    guarded = _median(lambda: quick.execute("x"), count)
    together = asyncio.run(_together(quick, count))
    freed = asyncio.run(_freed(directory, effort.pick(50, 5)))
    rows = [
        Row("one run of a script that ends at once", "ms", guarded, {"subprocess.run": alone}),
        Row("the same, eight at a time", "ms each", together),
        Row("cancelled while it waits: until it returns", "ms", freed, aim=Aim(50)),
    ]
    notes = ["a run has a process of its own that guards it; that is what it takes longer"]
    return Findings(rows, notes)


def _script(directory: str, name: str, text: str) -> str:
    path = os.path.join(directory, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o700)
    return path


def _median(work: object, count: int) -> Value:
    taken = []
    for _ in range(count):
        started = time.perf_counter()
        work()  # type: ignore[operator]
        taken.append(1000 * (time.perf_counter() - started))
    return statistics.median(taken)


async def _together(agent: Harness, count: int) -> float:
    started = time.perf_counter()
    await asyncio.gather(*(agent.aexecute("x") for _ in range(count)))
    return 1000 * (time.perf_counter() - started) / count


async def _freed(directory: str, count: int) -> float:
    """The longest of several waits after a cancellation, while one holds the only slot."""
    up = os.path.join(directory, "up")
    agent = Command(_script(directory, "patient", _PATIENT), max_concurrent=1, env={"UP": up})
    holder = asyncio.create_task(agent.aexecute("x"))
    while not os.path.exists(up):  # noqa: ASYNC110, ASYNC240 - the script tells by a file
        await asyncio.sleep(0.01)
    taken = []
    for _ in range(count):
        waiter = asyncio.create_task(agent.aexecute("x"))
        while agent.guard.capacity(agent.key(None)).waiting == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        started = time.perf_counter()
        waiter.cancel()
        await asyncio.wait({waiter})
        taken.append(1000 * (time.perf_counter() - started))
    holder.cancel()
    await asyncio.wait({holder})
    return max(taken)


FIGURE = Figure("agents", "agents behind the harness", measure_agents)

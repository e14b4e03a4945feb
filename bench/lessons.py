"""From a refusal in one process to the others being held back."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import httpx

from bench.children import crew
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row
from headway import AtCapacity, Governor
from headway.llm import HeadwayTransport

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

KEY = "llm/openai/gpt"
URL = "https://api.openai.com/v1/chat/completions"
COOLING_SECONDS = 0.2


def measure(effort: Effort, directory: str) -> Findings:
    delays: list[float] = []
    refused_at = 0

    def refuse(request: httpx.Request) -> httpx.Response:
        nonlocal refused_at
        del request
        refused_at = time.monotonic_ns()
        return httpx.Response(429, headers={"retry-after": str(COOLING_SECONDS)})

    url = f"sqlite:///{directory}"
    with crew() as start, Governor(url) as governor:
        transport = HeadwayTransport(None, governor, httpx.MockTransport(refuse))
        other = start(_ask_without_end, url)
        with httpx.Client(transport=transport) as client:
            for _ in range(effort.pick(40, 10)):
                other.ask("begin")
                client.post(URL, json={"model": "gpt"})
                delays.append((other.answer() - refused_at) / 1e6)
    return Findings(
        [
            Row("median", "ms", statistics.median(delays), aim=Aim(50)),
            Row("slowest", "ms", max(delays), aim=Aim(50)),
        ],
        ["from the provider's 429 to the last time that a busy other process was let in"],
    )


def _ask_without_end(pipe: Connection, url: str) -> None:
    """Ask again and again until refused; say when it was let in for the last time."""
    governor = Governor(url)
    while True:
        pipe.recv()
        last = _let_in(governor, patience_seconds=10 * COOLING_SECONDS)
        pipe.send("asking")
        while True:
            try:
                with governor.slot(KEY, wait=False):
                    last = time.monotonic_ns()
            except AtCapacity:
                break
        pipe.send(last)


def _let_in(governor: Governor, *, patience_seconds: float) -> int:
    """Wait for the end of the last lesson."""
    with governor.slot(KEY, timeout=patience_seconds):
        return time.monotonic_ns()


FIGURE = Figure("lessons", "one process is refused, the others wait", measure)

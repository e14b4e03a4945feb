"""From the ``kill -9`` of a holder to its successor running."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench import contenders, roles
from bench.children import ANSWER_SECONDS, LIFE_SECONDS, Child, Crew, crew
from bench.contenders import KEY, Contender
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value

if TYPE_CHECKING:
    from collections.abc import Callable

SETTLE_SECONDS = 0.03

# Runs in another pid namespace, where no process of ours can be named.
STRANGER = f"""
import signal, sys, time, headway
signal.alarm({LIFE_SECONDS})
governor = headway.Governor(sys.argv[1])
with governor.slot("elsewhere"):
    print("here", flush=True)
for line in sys.stdin:
    with governor.slot({KEY!r}):
        print(time.monotonic_ns(), flush=True)
"""


def measure(effort: Effort, directory: str) -> Findings:
    seen: dict[str, list[float]] = {}
    kinds = (contenders.Headway, *contenders.FILE_LOCKS)
    with crew() as start:
        trials = [Trial(start, kind(directory, 1)) for kind in kinds]
        for _ in range(effort.pick(12, 4)):
            for trial in trials:
                seen.setdefault(trial.name, []).append(trial.run())
        elsewhere = _in_another_namespace(start, directory, times=effort.pick(12, 4))
    medians: dict[str, Value] = {name: statistics.median(ms) for name, ms in seen.items()}
    worst: dict[str, Value] = {name: max(ms) for name, ms in seen.items()}
    own, own_worst = medians.pop("headway"), worst.pop("headway")
    never: dict[str, Value] = {contenders.Multiprocessing.name: "never"}
    return Findings(
        [
            Row("median", "ms", own, medians | never, Aim(10)),
            Row("slowest", "ms", own_worst, worst | never),
            Row("where only locks tell, median", "ms", elsewhere, aim=Aim(1000)),
        ],
        ["only locks tell: the waiter lives in another pid namespace"],
    )


class Trial:
    """One waiter, and a new holder for each kill."""

    def __init__(
        self, start: Crew, contender: Contender, patience_seconds: float = ANSWER_SECONDS
    ) -> None:
        self._start, self._contender = start, contender
        self._patience_seconds = patience_seconds
        self.name = contender.name
        self._waiter = start(roles.pass_through, contender)

    def run(self) -> float:
        holder = self._start(roles.take_turns, self._contender)
        holder.ask("acquire")
        self._waiter.tell("acquire")
        return _kill(
            holder,
            self._contender.poll_seconds,
            lambda: int(self._waiter.answer(self._patience_seconds)),
        )


def _kill(holder: Child, poll_seconds: float, running_at: Callable[[], int]) -> float:
    """How many milliseconds after the holder's end its waiter runs."""
    time.sleep(SETTLE_SECONDS + random.uniform(0, poll_seconds))
    killed_at = time.monotonic_ns()
    holder.kill()
    return (running_at() - killed_at) / 1e6


def _in_another_namespace(start: Crew, directory: str, *, times: int) -> Value:
    unshare = _unshare()
    if unshare is None:
        return "not allowed"
    contender = contenders.Headway(os.path.join(directory, "namespaces"), 1)
    contender.governor().close()
    delays_ms = []
    with subprocess.Popen(
        [*unshare, sys.executable, "-c", STRANGER, f"sqlite:///{contender.directory}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
    ) as stranger:
        assert stranger.stdin is not None
        assert stranger.stdout is not None
        line = stranger.stdout.readline
        try:
            line()
            for _ in range(times):
                holder = start(roles.take_turns, contender)
                holder.ask("acquire")
                stranger.stdin.write("acquire\n")
                delays_ms.append(_kill(holder, 0, lambda: int(line())))
        finally:
            stranger.kill()
    return statistics.median(delays_ms)


def _unshare() -> list[str] | None:
    """The command that starts another one in its own pid namespace, if we may."""
    base = ["unshare", "--pid", "--fork", "--kill-child"]
    for command in (base, [*base, "--user", "--map-root-user"]):
        try:
            subprocess.run([*command, "true"], check=True, capture_output=True, timeout=10)
        except (OSError, subprocess.SubprocessError):
            continue
        return command
    return None


FIGURE = Figure("crash", "kill -9 of a holder to the waiter running", measure)

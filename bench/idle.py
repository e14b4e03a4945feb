"""What a long queue costs while nothing happens."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING

from bench.children import Child, crew
from bench.contenders import KEY, LIMITED_KEY, Contender, Headway, Portalocker
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row, Value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

PROCESSES, WAITERS_EACH = 10, 100


def measure(effort: Effort, directory: str) -> Findings:
    seconds = effort.pick(5.0, 2.0)
    headway, portalocker = Headway(directory, 1), Portalocker(directory, 1)
    with crew() as start, headway.governor() as governor, governor.slot(KEY):
        team = [start(_wait_as_tasks, headway) for _ in range(PROCESSES)]
        while governor.capacity(LIMITED_KEY).waiting < PROCESSES * WAITERS_EACH:
            time.sleep(0.05)
        time.sleep(1.0)  # the last ones have settled
        files = _state_of_files(headway.directory)
        busy, written = _usage(team, seconds)
        changed = files != _state_of_files(headway.directory)
        for child in team:
            child.kill()
    with crew() as start, portalocker.gate()():
        team = [start(_wait_as_threads, portalocker) for _ in range(PROCESSES)]
        for child in team:
            child.answer()
        time.sleep(0.5)
        peer_busy, _ = _usage(team, seconds)
    peers: dict[str, Value] = {"portalocker": peer_busy}
    return Findings(
        [
            Row("share of one processor", "%", busy, peers, Aim(2)),
            Row("written", "bytes", written, aim=Aim(0)),
            Row("slots.db and its log changed", "", "yes" if changed else "no"),
        ],
        [f"{PROCESSES * WAITERS_EACH:,} waiters in {PROCESSES} processes, for {seconds:g} s"],
    )


def _wait_as_tasks(pipe: Connection, headway: Headway) -> None:
    del pipe
    governor = headway.governor()

    async def wait() -> None:
        async with governor.slot(KEY):
            pass

    async def wait_all() -> None:
        await asyncio.gather(*[wait() for _ in range(WAITERS_EACH)])

    asyncio.run(wait_all())


def _wait_as_threads(pipe: Connection, contender: Contender) -> None:
    def wait() -> None:
        with contender.gate()():
            pass

    for _ in range(WAITERS_EACH):
        threading.Thread(target=wait, daemon=True).start()
    pipe.send("waiting")
    pipe.recv()


def _usage(team: Sequence[Child], seconds: float) -> tuple[Value, Value]:
    """Percent of one processor, and bytes written, while we sleep."""
    if not os.path.exists("/proc/self/schedstat"):
        return "not told here", "not told here"
    before = [(_busy_ns(child.pid), _written_bytes(child.pid)) for child in team]
    started = time.monotonic_ns()
    time.sleep(seconds)
    elapsed = time.monotonic_ns() - started
    after = [(_busy_ns(child.pid), _written_bytes(child.pid)) for child in team]
    busy = sum(now - then for (now, _), (then, _) in zip(after, before, strict=True))
    written = sum(now - then for (_, now), (_, then) in zip(after, before, strict=True))
    return 100 * busy / elapsed, written


def _busy_ns(pid: int) -> int:
    threads = f"/proc/{pid}/task"
    return sum(
        int(_read(f"{threads}/{thread}/schedstat").split()[0]) for thread in os.listdir(threads)
    )


def _written_bytes(pid: int) -> int:
    lines = dict(line.split(": ") for line in _read(f"/proc/{pid}/io").splitlines())
    return int(lines["wchar"])


def _read(file: str) -> str:
    with open(file, encoding="ascii") as opened:
        return opened.read()


def _state_of_files(home: str) -> list[tuple[int, int]]:
    found = [os.stat(os.path.join(home, name)) for name in ("slots.db", "slots.db-wal")]
    return [(file.st_size, file.st_mtime_ns) for file in found]


FIGURE = Figure("idle", "a long queue while nothing is released", measure)

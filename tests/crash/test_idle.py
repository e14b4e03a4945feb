"""Idle means idle: whoever waits costs next to nothing until something is released."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.crash.kit import Crew

_MANY = """
threading.stack_size(256 * 1024)
governor = headway.Governor()
in_line = threading.Semaphore(0)
leave = threading.Event()
served = 0

def thread():
    global served
    with governor.slot("k", on_wait=lambda event: in_line.release()):
        served += 1

async def task():
    global served
    async with governor.slot("k", on_wait=lambda event: in_line.release()):
        served += 1

async def tasks():
    await asyncio.gather(*(task() for _ in range({tasks})))

workers = [threading.Thread(target=thread) for _ in range({threads})]
workers.append(threading.Thread(target=lambda: asyncio.run(tasks())))
for worker in workers:
    worker.start()
for _ in range({threads} + {tasks}):
    in_line.acquire()
say("all wait")
for worker in workers:
    worker.join()
say("served", served)
hear()
"""
_WINDOW_SECONDS = 3.0


def _state_of_files(crew: Crew) -> list[tuple[str, int, int]]:
    names = ("slots.db", "slots.db-wal")
    found = [os.stat(crew.home / name) for name in names]
    return [(name, seen.st_mtime_ns, seen.st_size) for name, seen in zip(names, found, strict=True)]


def test_a_thousand_waiters_do_nothing_until_something_happens(crew: Crew) -> None:
    """1,000 threads and tasks in ten processes write nothing and take no time while they wait."""
    crew.limits(k=1)
    holder = crew.holding("k")
    crowd = [crew.start(_MANY.format(threads=50, tasks=50)) for _ in range(10)]
    for child in crowd:
        child.expect("all wait")

    files, started = _state_of_files(crew), time.monotonic()
    used = sum(child.cpu_seconds() for child in crowd)
    time.sleep(_WINDOW_SECONDS)
    used = sum(child.cpu_seconds() for child in crowd) - used
    window = time.monotonic() - started

    assert _state_of_files(crew) == files
    assert used / window < 0.10, f"{used:.2f} s of processor time in {window:.2f} s"
    holder.ask("leave", "left")
    for child in crowd:
        assert child.expect("served") == "100"

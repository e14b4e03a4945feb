"""Functions under one key that call each other never hang, and nobody is refused for nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from tests.slots.support import Crowd, Held, Worker, assert_clean, auntil, until, waiting_tasks

from headway import DeadlockRefused, Governor
from headway.stores.circles import Circles

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slots.conftest import Govern

LIMIT, CALLERS = 5, 20


def outcomes(answers: list[object]) -> tuple[int, int]:
    """How many were done, and how many refused; anything else is wrong."""
    done = sum(answer == "done" for answer in answers)
    refused = sum(isinstance(answer, DeadlockRefused) for answer in answers)
    assert done + refused == len(answers), answers
    return done, refused


def test_tasks_that_nest_under_one_key_never_hang(govern: Govern) -> None:
    """Twenty callers of a function that calls another under the same limit of five all end."""
    governor = govern({"api": LIMIT})

    @governor.limited("api")
    async def inner() -> str:
        return "done"

    @governor.limited("api")
    async def outer() -> str:
        await asyncio.sleep(0.01)
        return await inner()

    async def main() -> list[object]:
        calls = asyncio.gather(*(outer() for _ in range(CALLERS)), return_exceptions=True)
        return list(await asyncio.wait_for(calls, 20))

    done, refused = outcomes(asyncio.run(main()))
    assert refused
    assert done
    assert_clean(governor)


def test_threads_that_nest_under_one_key_never_hang(govern: Govern) -> None:
    """The same with threads."""
    governor = govern({"api": LIMIT})
    crowd = Crowd()

    def outer() -> str:
        with governor.slot("api"):
            crowd.enter()
            until(lambda: crowd.peak >= LIMIT)
            with governor.slot("api"):
                return "done"

    workers = [Worker(outer) for _ in range(CALLERS)]
    for worker in workers:
        worker.end()
    answers = [worker.error or "done" for worker in workers]
    assert outcomes(list(answers))[1] >= 1
    assert_clean(governor)


NESTED = """
import sys, headway
governor = headway.Governor()
with governor.slot("api", task="outer"):
    print("in", flush=True)
    sys.stdin.readline()
    try:
        with governor.slot("api", task="inner"):
            print("done", flush=True)
    except headway.DeadlockRefused as error:
        print("refused", error, flush=True)
"""


def test_processes_that_nest_under_one_key_never_hang(home: Path) -> None:
    """The second of two that fill the limit is refused, and names the other; that one goes on."""
    governor = Governor(f"sqlite:///{home}", limits={"api": 2})
    children = [
        subprocess.Popen(
            [sys.executable, "-c", NESTED],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "in\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        words = [child.communicate(timeout=20)[0] for child in children]
    finally:
        for child in children:
            child.kill()
    assert sorted(word.split()[0] for word in words) == ["done", "refused"]
    refused = next(word for word in words if word.startswith("refused"))
    assert "task 'outer', pid" in refused
    assert_clean(governor)


def test_a_task_created_inside_a_slot_and_awaited_after_it_is_no_deadlock(govern: Govern) -> None:
    """It inherited the context of its starter, who leaves the block."""
    governor = govern({"api": 1})

    @governor.limited("api")
    async def work() -> str:
        return "done"

    async def main() -> str:
        async with governor.slot("api"):
            task = asyncio.create_task(work())
            await auntil(lambda: len(waiting_tasks(governor)) == 1)
        return await asyncio.wait_for(task, 10)

    assert asyncio.run(main()) == "done"
    assert_clean(governor)


def test_a_timeout_keeps_a_circle_from_being_certain(govern: Govern) -> None:
    """Who gives up by itself lets the others go on, so nobody is refused."""
    governor = govern({"api": 2})
    both = threading.Barrier(2)

    def outer(timeout: float | None) -> str:
        with governor.slot("api"):
            both.wait(10)
            if timeout is None:
                until(lambda: len(waiting_tasks(governor)) == 1)
            with governor.slot("api", timeout=timeout):
                return "done"

    impatient, patient = Worker(lambda: outer(0.5)), Worker(lambda: outer(None))
    assert patient.result() == "done"
    impatient.end()
    assert type(impatient.error).__name__ == "QueueTimeout"
    assert_clean(governor)


def test_nested_work_with_the_callers_slot_needs_no_other(govern: Govern) -> None:
    """The way out that the error names works: everyone is done, and the limit holds."""
    governor = govern({"api": 2})
    crowd = Crowd()

    @governor.limited("api", parent="current")
    async def inner() -> str:
        await asyncio.sleep(0)
        return "done"

    @governor.limited("api")
    async def outer() -> str:
        crowd.enter()
        try:
            return await inner()
        finally:
            crowd.leave()

    async def main() -> list[str]:
        return list(await asyncio.wait_for(asyncio.gather(*(outer() for _ in range(10))), 20))

    assert asyncio.run(main()) == ["done"] * 10
    assert crowd.peak <= 2
    assert_clean(governor)


def test_a_blocking_slot_is_refused_if_tasks_of_its_loop_hold_all_slots(govern: Govern) -> None:
    """It would stop the loop, and with it those it waits for, and every timeout."""
    governor = govern({"api": 1})

    @governor.limited("api")
    def blocking() -> str:
        return "done"

    async def main() -> None:
        gate = asyncio.Event()

        async def hold() -> None:
            async with governor.slot("api"):
                gate.set()
                await asyncio.sleep(30)

        task = asyncio.create_task(hold())
        await gate.wait()
        with pytest.raises(DeadlockRefused, match="async with"):
            blocking()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert blocking() == "done"

    asyncio.run(main())
    assert_clean(governor)


def test_a_blocking_slot_that_somebody_else_holds_waits_with_a_warning(
    govern: Govern, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread will give it back; the loop stands still until then, and that is said once."""
    monkeypatch.setattr("headway.deadlocks._has_warned", False)
    governor = govern({"api": 1})
    holds, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with governor.slot("api"):
            holds.set()
            until(lambda: len(waiting_tasks(governor)) == 1 or leave.is_set())

    async def main() -> None:
        for _ in range(2):
            holds.clear()
            holder = Worker(hold)
            assert holds.wait(10)
            with governor.slot("api"):
                pass
            await asyncio.to_thread(holder.end)

    asyncio.run(main())
    assert caplog.text.count("inside an event loop") == 1
    assert_clean(governor)


def test_a_blocking_slot_behind_tasks_of_its_loop_is_refused(govern: Govern) -> None:
    """They would get the slot first, and keep it: their loop stands still."""
    governor = govern({"api": 1})

    async def main() -> None:
        async def ask() -> str:
            async with governor.slot("api"):
                return "done"

        with Held(governor, "api"):
            task = asyncio.create_task(ask())
            await auntil(lambda: len(waiting_tasks(governor)) == 1)
            with pytest.raises(DeadlockRefused, match="async with"), governor.slot("api"):
                pass
        assert await asyncio.wait_for(task, 10) == "done"

    asyncio.run(main())
    assert_clean(governor)


@pytest.mark.parametrize("is_shared", [False, True])
def test_waiting_for_a_key_that_nobody_has_who_waits_looks_at_none_of_them(
    home: Path, monkeypatch: pytest.MonkeyPatch, *, is_shared: bool
) -> None:
    """Agents that wait for a model cost the same with one and with a hundred of them."""
    looks: list[object] = []

    def look(_: Circles, asking: object) -> list[object]:
        looks.append(asking)
        return []

    async def nest(*keys: str) -> None:
        async with AsyncExitStack() as stack:
            for key in keys:
                await stack.enter_async_context(governor.slot(key))
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*[nest("agent/x", "machine", "llm/y") for _ in range(20)])
        assert looks == []
        with pytest.raises(DeadlockRefused):
            await nest("llm/y", "llm/z")
        assert len(looks) == 1

    monkeypatch.setattr(Circles, "_others", look)
    store = f"sqlite:///{home}" if is_shared else "memory://"
    with Governor(store, limits={"agent": 100, "llm": 1}) as governor:
        asyncio.run(main())


def test_a_loop_that_runs_inside_a_slot_is_refused_that_slot(govern: Govern) -> None:
    """``asyncio.run`` blocks the thread that holds it, so no task on that loop can get it."""
    governor = govern({"k": 1})

    async def ask() -> None:
        async with governor.slot("k"):
            pass

    async def main() -> None:
        with pytest.raises(DeadlockRefused):
            await ask()
        with pytest.raises(DeadlockRefused):
            await asyncio.gather(ask())

    with governor.slot("k"):
        asyncio.run(asyncio.wait_for(main(), 20))
    assert_clean(governor)

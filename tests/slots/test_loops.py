"""Event loops: several at once, closed ones, and ones that end while somebody waits."""

from __future__ import annotations

import asyncio
import gc
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.slots.support import (
    Crowd,
    Held,
    Worker,
    assert_clean,
    auntil,
    is_waiting,
    until,
    waiting_tasks,
)

from headway import Governor, StoreUnavailable, waiting

if TYPE_CHECKING:
    import pytest
    from tests.slots.conftest import Govern


def test_several_loops_in_several_threads_share_one_governor(govern: Govern) -> None:
    """Four loops with ten tasks each, and two plain threads, on a limit of three: peak three."""
    governor = govern({"k": 3})
    crowd = Crowd()

    async def work() -> None:
        for _ in range(3):
            async with governor.slot("k"):
                crowd.enter()
                await asyncio.sleep(0.002)  # longer than a grant takes, so that some overlap
                crowd.leave()

    async def main() -> int:
        await asyncio.gather(*(work() for _ in range(10)))
        return 10

    def plain() -> int:
        for _ in range(10):
            with governor.slot("k"):
                crowd.enter()
                crowd.leave()
        return 10

    workers = [Worker(lambda: asyncio.run(main())) for _ in range(4)]
    workers += [Worker(plain) for _ in range(2)]

    assert [worker.result() for worker in workers] == [10] * 6
    assert crowd.running == 0
    assert 1 < crowd.peak <= 3
    assert_clean(governor)


def _loop_with_one_that_waits(
    governor: Governor,
) -> tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]:
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        async with governor.slot("k", task="lost"):
            raise AssertionError("the loop is closed")

    task = loop.create_task(wait())
    while waiting_tasks(governor) != ["lost"]:
        loop.run_until_complete(asyncio.sleep(0.001))
    return loop, task


def test_a_loop_closed_while_its_task_waits_does_not_keep_the_slot(govern: Govern) -> None:
    """The grant that nobody can take any more goes to the next in line."""
    governor = govern({"k": 1})
    held = Held(governor, "k")
    loop, task = _loop_with_one_that_waits(governor)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()
    follower = Worker(lambda: governor.slot("k", task="next").__enter__().id)
    until(lambda: "next" in waiting_tasks(governor))

    held.let_go()

    assert follower.result()
    del task
    gc.collect()
    assert_clean(governor)


def test_a_loop_closed_after_the_grant_does_not_keep_the_slot(govern: Govern) -> None:
    """Also when the loop was told, and closed before its task could run."""
    governor = govern({"k": 1})
    held = Held(governor, "k")
    loop, task = _loop_with_one_that_waits(governor)
    held.let_go()
    until(lambda: waiting_tasks(governor) == [])
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()

    del task, loop
    gc.collect()

    assert_clean(governor)


def test_a_loop_closed_inside_the_block_does_not_keep_the_slot(govern: Govern) -> None:
    """A task that is thrown away while it holds a slot gives it back."""
    governor = govern({"k": 1})
    loop = asyncio.new_event_loop()

    async def hold() -> None:
        async with governor.slot("k"):
            await asyncio.Event().wait()

    task = loop.create_task(hold())
    while not governor.capacity("k").used:
        loop.run_until_complete(asyncio.sleep(0.001))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    loop.close()

    del task, loop
    gc.collect()

    assert_clean(governor)


def test_asyncio_run_ends_with_waiters_pending(govern: Govern) -> None:
    """``asyncio.run`` cancels what still waits, and nobody is left in line."""
    governor = govern({"k": 1})
    started = []

    async def wait() -> None:
        async with governor.slot("k"):
            started.append(1)

    async def main() -> None:
        for _ in range(5):
            asyncio.ensure_future(wait())  # noqa: RUF006 - forgotten on purpose
        await auntil(lambda: len(waiting_tasks(governor)) == 5)

    with Held(governor, "k"):
        asyncio.run(main())
        assert waiting_tasks(governor) == []

    assert started == []
    assert_clean(governor)


def test_a_blocked_loop_does_not_lose_its_grant(govern: Govern) -> None:
    """A grant that comes while the loop is busy with something else is there afterwards."""
    governor = govern({"k": 1})
    held = Held(governor, "k")

    async def wait() -> str:
        async with governor.slot("k", task="it") as lease:
            return f"{lease.task}"

    async def main() -> None:
        task = asyncio.create_task(wait())
        await auntil(lambda: waiting_tasks(governor) == ["it"])
        held.let_go()
        until(lambda: waiting_tasks(governor) == [])
        assert await asyncio.wait_for(task, 10) == "it"

    asyncio.run(main())
    assert_clean(governor)


def test_a_thread_of_the_default_pool_is_not_needed(govern: Govern) -> None:
    """With asyncio's own pool full of waiting threads, tasks still get and give back slots."""
    governor = govern({"k": 1})
    blocked = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        stuck = [loop.run_in_executor(None, blocked.wait) for _ in range(40)]
        with Held(governor, "k"):
            task = asyncio.create_task(enter())
            await auntil(lambda: waiting_tasks(governor))
        assert await asyncio.wait_for(task, 10) == "k"
        blocked.set()
        await asyncio.gather(*stuck)

    async def enter() -> str:
        async with governor.slot("k") as lease:
            return lease.keys[0]

    try:
        asyncio.run(main())
    finally:
        blocked.set()
    assert_clean(governor)


def test_a_store_that_fails_to_listen_once_is_listened_to_again(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that serves all loops survives a moment of trouble, and wakes who waits."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.01)
    with (
        Governor(f"sqlite:///{home}", limits={"k": 1}) as ours,
        Governor(f"sqlite:///{home}") as theirs,
    ):
        store: Any = ours._turnstile.store
        listen, troubles = store.listen, iter(range(3))

        def trouble(seconds: float) -> None:
            if next(troubles, None) is not None:
                raise StoreUnavailable("test", "out for lunch")
            listen(seconds)

        monkeypatch.setattr(store, "listen", trouble)

        async def enter() -> str:
            async with ours.slot("k", task="it") as lease:
                return lease.keys[0]

        async def main() -> None:
            held = Held(theirs, "k")
            task = asyncio.create_task(enter())
            await auntil(lambda: waiting_tasks(theirs) == ["it"] and next(troubles, None) is None)
            await asyncio.to_thread(held.let_go)
            assert await asyncio.wait_for(task, 10) == "k"

        asyncio.run(main())
        assert_clean(ours)


def test_plain_and_async_callers_wait_in_one_line(govern: Govern) -> None:
    """Threads and tasks that take turns asking are served in the order they came."""
    governor = govern({"k": 1})
    order: list[str] = []

    def plain(name: str) -> None:
        with governor.slot("k", task=name):
            order.append(name)

    async def in_task(name: str) -> None:
        async with governor.slot("k", task=name):
            order.append(name)

    async def main() -> None:
        held, names = Held(governor, "k"), [f"{number}" for number in range(6)]
        tasks, workers = [], []
        for number, name in enumerate(names):
            if number % 2:
                tasks.append(asyncio.create_task(in_task(name)))
            else:
                workers.append(Worker(partial(plain, name)))
            await auntil(partial(is_waiting, governor, f"{number}"))
        assert waiting_tasks(governor) == names
        await asyncio.to_thread(held.let_go)
        await asyncio.gather(*tasks)
        for worker in workers:
            await asyncio.to_thread(worker.result)
        assert sorted(order) == names

    asyncio.run(main())
    assert_clean(governor)

"""A task is cancelled at every step it takes; nothing of it may stay behind (rule 7)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import Held, Steps, always_busy, assert_clean, auntil, waiting_tasks

from headway import Governor, QueueTimeout, aio

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

# When in a step the cancellation comes: as the task goes to sleep, or just as what it
# waits for is there but before it runs again; once, or at every step from then on.
MOMENTS = ["falling asleep", "waking up", "again and again"]


class Run:
    """One task that takes a slot while others wait too, and is cancelled at its n-th step."""

    def __init__(self, governor: Governor, *, at: int, moment: str) -> None:
        self.governor, self._at, self._moment = governor, at, moment
        self.started = self.was_cancelled = self.waited_when_cancelled = self.granted = False
        self.steps = 0

    async def work(self) -> str:
        """What is cancelled: wait visibly, hold, take a step, give back."""
        async with self.governor.slot("k/a", task="it", on_wait=self._make_room) as lease:
            self.started = True
            assert lease.task == "it"
            await asyncio.sleep(0)
        return "done"

    def _make_room(self, _: object) -> None:
        self._room_wanted.set()

    def _cancel(self, _: object = None) -> None:
        if not self.was_cancelled:
            self.was_cancelled = True
            self.waited_when_cancelled = not self.granted and "it" in waiting_tasks(self.governor)
        self._task.cancel()

    def _pausing(self, step: int, paused_on: asyncio.Future[Any] | None) -> None:
        self.steps = step
        if step < self._at or (step > self._at and self._moment != "again and again"):
            return
        if self._moment == "waking up" and paused_on is not None:
            paused_on.add_done_callback(self._cancel)
        else:
            self._cancel()

    async def main(self) -> None:
        """Let it run beside a holder and a neighbour, and see what is left."""
        self._room_wanted = asyncio.Event()
        held = Held(self.governor, "k/b", task="holder")
        self._task = asyncio.create_task(self._stepped())
        neighbour = asyncio.create_task(self._neighbour())
        room = asyncio.create_task(self._room_wanted.wait())
        await asyncio.wait({self._task, room}, return_when=asyncio.FIRST_COMPLETED)
        room.cancel()
        self.granted = True
        await asyncio.to_thread(held.let_go)
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        assert await asyncio.wait_for(neighbour, 10) == "neighbour"
        self._check()

    async def _stepped(self) -> str:
        return await Steps(self.work(), pausing=self._pausing)

    async def _neighbour(self) -> str:
        async with self.governor.slot("k/c", task="neighbour") as lease:
            return f"{lease.task}"

    def _check(self) -> None:
        assert self._task.cancelled() == self.was_cancelled, "a cancellation was swallowed"
        if self.waited_when_cancelled:
            assert not self.started, "cancelled before its grant, and started all the same"
        assert_clean(self.governor)


@pytest.mark.parametrize("busy", [False, True], ids=["on the loop", "in threads"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_task_can_be_cancelled_at_every_step(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, moment: str, *, busy: bool
) -> None:
    """Asking, waiting, being announced, granted, holding, giving back: it leaves no trace."""
    monkeypatch.setattr(aio, "NOTICE_SECONDS", 0.001)
    governor = govern({"k": 1})
    if busy:
        always_busy(governor._turnstile.store, monkeypatch)

    step = 1
    while True:
        run = Run(governor, at=step, moment=moment)
        asyncio.run(run.main())
        if not run.was_cancelled:
            break
        step += 1

    assert run.started
    assert step > (5 if busy else 3), "the driver has lost its steps"


@pytest.mark.parametrize("busy", [False, True], ids=["on the loop", "in threads"])
def test_a_timed_task_can_be_cancelled_at_every_step(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    """The same for a wait whose time runs out: it withdraws, whatever comes in between."""
    governor = govern({"k": 1})
    if busy:
        always_busy(governor._turnstile.store, monkeypatch)

    async def main(at: int) -> bool:
        def pausing(step: int, _: object) -> None:
            if step >= at:
                task.cancel()

        async def work() -> None:
            async with governor.slot("k", timeout=0.001):
                raise AssertionError("there was no slot")

        async def stepped() -> None:
            await Steps(work(), pausing=pausing)

        task = asyncio.create_task(stepped())
        await asyncio.wait({task})
        assert waiting_tasks(governor) == []
        assert task.cancelled() or isinstance(task.exception(), QueueTimeout)
        return task.cancelled()

    with Held(governor, "k"):
        step = 1
        while asyncio.run(main(step)):
            step += 1
    assert step > 1
    assert_clean(governor)


def test_a_task_cancelled_before_it_runs_never_starts(govern: Govern) -> None:
    """No ticket is ever made for it."""
    governor = govern({"k": 1})
    events: list[object] = []
    governor.subscribe(events.append)

    async def work() -> None:
        async with governor.slot("k"):
            raise AssertionError("it was cancelled")

    async def main() -> None:
        task = asyncio.create_task(work())
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(main())
    assert events == []
    assert_clean(governor)


def test_a_task_that_was_cancelled_while_it_ran_takes_no_slot(govern: Govern) -> None:
    """A cancellation that waits to be noticed is noticed before the body starts."""
    governor = govern({"k": 1})

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        async with governor.slot("k"):
            raise AssertionError("it was cancelled")

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(main())
    assert_clean(governor)


def test_asyncio_timeout_around_a_wait_ends_it(govern: Govern) -> None:
    """The waiter is gone from the queue when ``asyncio.timeout`` strikes; its body never ran."""
    governor = govern({"k": 1})

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02), governor.slot("k"):
                raise AssertionError("there was no slot")
        assert waiting_tasks(governor) == []

    with Held(governor, "k"):
        asyncio.run(main())
    assert_clean(governor)


def test_asyncio_timeout_inside_the_block_gives_the_slot_back(govern: Govern) -> None:
    """The block is left like by any other error."""
    governor = govern({"k": 1})

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with governor.slot("k"), asyncio.timeout(0.001):
                await asyncio.Event().wait()
        assert governor.capacity("k").used == 0

    asyncio.run(main())
    assert_clean(governor)


def test_neighbours_move_up_when_a_waiter_is_cancelled(govern: Govern) -> None:
    """The one behind takes the place, and a light one behind a heavy one gets in at once."""
    governor = govern({"k": 2})

    async def wait(name: str, weight: int) -> str:
        async with governor.slot("k", task=name, weight=weight):
            return name

    async def main() -> None:
        heavy = asyncio.create_task(wait("heavy", 2))
        await auntil(lambda: waiting_tasks(governor) == ["heavy"])
        light = asyncio.create_task(wait("light", 1))
        await auntil(lambda: waiting_tasks(governor) == ["heavy", "light"])

        heavy.cancel()

        assert await asyncio.wait_for(light, 10) == "light"
        await asyncio.wait({heavy})
        assert heavy.cancelled()

    with Held(governor, "k"):
        asyncio.run(main())
    assert_clean(governor)


def test_a_group_that_is_cancelled_as_a_whole_leaves_nothing(govern: Govern) -> None:
    """Fifty tasks holding, waiting and starting end together."""
    governor = govern({"k": 3})

    async def work() -> None:
        async with governor.slot("k"):
            await asyncio.Event().wait()

    async def main() -> None:
        tasks = [asyncio.create_task(work()) for _ in range(50)]
        await auntil(lambda: governor.capacity("k").waiting == 47)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(main())
    assert_clean(governor)


def test_a_cancelled_release_is_finished_before_the_task_ends(
    govern: Govern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the cancelled task is seen as done, its slot is free, though a thread had to do it."""
    governor = govern({"k": 1})
    always_busy(governor._turnstile.store, monkeypatch)

    async def work() -> None:
        async with governor.slot("k"):
            pass

    async def main(at: int) -> bool:
        def pausing(step: int, _: object) -> None:
            if step == at:
                task.cancel()

        async def stepped() -> None:
            await Steps(work(), pausing=pausing)

        task = asyncio.create_task(stepped())
        await asyncio.wait({task})
        assert governor.capacity("k").used == 0
        return task.cancelled()

    assert asyncio.run(main(1))
    assert asyncio.run(main(2))
    assert not asyncio.run(main(99))
    assert_clean(governor)


@pytest.mark.parametrize("busy", [False, True], ids=["on the loop", "in threads"])
def test_an_unhindered_task_can_be_cancelled_at_every_step(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    """Also where a task that need not wait lets others have a turn: cancelled there, no start."""
    governor = govern({"k": 1})
    monkeypatch.setattr(governor._turnstile, "is_time_to_give_way", lambda: True)
    if busy:
        always_busy(governor._turnstile.store, monkeypatch)
    started: list[int] = []

    async def work(at: int) -> None:
        async with governor.slot("k"):
            started.append(at)

    async def main(at: int) -> bool:
        def pausing(step: int, _: object) -> None:
            if step == at:
                task.cancel()

        async def stepped() -> None:
            await Steps(work(at), pausing=pausing)

        task = asyncio.create_task(stepped())
        await asyncio.wait({task})
        assert governor.capacity("k").used == 0
        return task.cancelled()

    step = 1
    while asyncio.run(main(step)):
        step += 1
    assert step > 1
    assert 1 not in started
    assert_clean(governor)

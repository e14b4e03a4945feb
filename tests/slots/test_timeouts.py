"""Time in the queue runs out while a grant, a cancellation or a loss is on its way."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import (
    Held,
    Worker,
    assert_clean,
    auntil,
    is_waiting,
    ticket_of,
    until,
    waiting_tasks,
)

from headway import Cancelled, Governor, QueueTimeout

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

    from headway.events import Event


def outcomes_of(events: list[Event]) -> dict[str, list[str]]:
    """Which ends each ticket was told to have had, without the end of its lease."""
    ends: dict[str, list[str]] = {}
    for event in events:
        if event.kind in ("granted", "timed out", "cancelled", "refused"):
            ends.setdefault(event.ticket_id, []).append(event.kind)
    return ends


@pytest.mark.parametrize("in_tasks", [False, True], ids=["threads", "tasks"])
def test_a_timeout_that_races_a_grant_has_one_outcome(govern: Govern, *, in_tasks: bool) -> None:
    """Over many rounds each ticket is granted or timed out, never both, never neither."""
    governor = govern({"k": 1})
    events: list[Event] = []
    governor.subscribe(events.append)
    choose, outcomes = random.Random(7), Counter[str]()

    async def in_task(seconds: float) -> None:
        async with governor.slot("k", timeout=seconds):
            pass

    def enter(timeout: float) -> str:
        try:
            if in_tasks:
                asyncio.run(in_task(timeout))
            else:
                with governor.slot("k", timeout=timeout):
                    pass
        except QueueTimeout:
            return "timed out"
        return "granted"

    for _ in range(40):
        held = Held(governor, "k")
        timeouts = [choose.choice([0, 0.001, 0.002, 0.003]) for _ in range(3)]
        workers = [Worker(partial(enter, timeout)) for timeout in timeouts]
        threading.Event().wait(choose.random() * 0.004)
        held.let_go()
        outcomes.update(worker.result() for worker in workers)

    told = outcomes_of(events)
    assert all(len(ends) == 1 for ends in told.values()), told
    assert outcomes["granted"] + outcomes["timed out"] == 120
    assert sum(ends == ["timed out"] for ends in told.values()) == outcomes["timed out"]
    assert_clean(governor)


@pytest.mark.parametrize("in_tasks", [False, True], ids=["thread", "task"])
def test_a_grant_that_comes_just_before_the_timeout_counts(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, *, in_tasks: bool
) -> None:
    """Whoever finds on leaving the line that it was granted goes ahead."""
    governor = govern({"k": 1})
    held, store = Held(governor, "k"), governor._turnstile.store
    withdraw = store.withdraw

    def grant_then_withdraw(*args: Any, **options: Any) -> Any:
        held.let_go()
        return withdraw(*args, **options)

    async def in_task() -> str:
        async with governor.slot("k", timeout=0.001):
            return "granted"

    def plain() -> str:
        with governor.slot("k", timeout=0.001):
            return "granted"

    monkeypatch.setattr(store, "withdraw", grant_then_withdraw)
    assert Worker(lambda: asyncio.run(in_task()) if in_tasks else plain()).result() == "granted"
    assert_clean(governor)


def test_a_cancellation_that_races_a_grant_has_one_outcome(govern: Govern) -> None:
    """``cancel`` says true exactly for those tickets that were told so and never ran."""
    governor = govern({"k": 1})
    ran, cancelled = Counter[str](), Counter[str]()
    choose = random.Random(3)

    def enter(name: str) -> None:
        try:
            with governor.slot("k", task=name):
                ran[name] += 1
        except Cancelled:
            cancelled[name] += 1

    for number in range(40):
        held, name = Held(governor, "k"), f"{number}"
        worker = Worker(partial(enter, name))
        until(partial(is_waiting, governor, name))
        ticket = ticket_of(governor, name)
        releasing = Worker(held.let_go)
        threading.Event().wait(choose.random() * 0.0005)
        said = governor.cancel(ticket)
        releasing.result()
        worker.result()
        assert (ran[name], cancelled[name]) == ((0, 1) if said else (1, 0))

    assert_clean(governor)


def test_a_cancelled_ticket_raises_with_its_id(govern: Govern) -> None:
    """Whoever waits learns that somebody ended it, in threads and in tasks."""
    governor = govern({"k": 1})

    async def in_task() -> None:
        async with governor.slot("k", task="task"):
            raise AssertionError("it was cancelled")

    def in_thread() -> None:
        with governor.slot("k", task="thread"):
            raise AssertionError("it was cancelled")

    with Held(governor, "k"):
        workers = [Worker(in_thread), Worker(lambda: asyncio.run(in_task()))]
        until(lambda: sorted(map(str, waiting_tasks(governor))) == ["task", "thread"])
        tickets = [ticket_of(governor, "thread"), ticket_of(governor, "task")]
        assert [governor.cancel(ticket) for ticket in tickets] == [True, True]
        for worker, ticket in zip(workers, tickets, strict=True):
            with pytest.raises(Cancelled) as caught:
                worker.result()
            assert (caught.value.ticket_id, caught.value.keys) == (ticket, ("k",))
        assert [governor.cancel(ticket) for ticket in tickets] == [False, False]

    assert not governor.cancel("nobody-1")
    assert_clean(governor)


def test_a_ticket_can_be_cancelled_from_another_governor(home: str) -> None:
    """The one who waits is woken, wherever the cancellation came from."""
    with (
        Governor(f"sqlite:///{home}", limits={"k": 1}) as ours,
        Governor(f"sqlite:///{home}") as theirs,
    ):

        async def enter() -> None:
            async with ours.slot("k", task="it"):
                raise AssertionError("it was cancelled")

        async def main() -> None:
            task = asyncio.create_task(enter())
            await auntil(lambda: waiting_tasks(theirs) == ["it"])
            assert await theirs.acancel(ticket_of(theirs, "it"))
            with pytest.raises(Cancelled):
                await asyncio.wait_for(task, 10)

        with Held(ours, "k"):
            asyncio.run(main())
        assert_clean(ours)


@pytest.mark.parametrize("in_tasks", [False, True], ids=["thread", "task"])
def test_neighbours_move_up_when_time_runs_out(govern: Govern, *, in_tasks: bool) -> None:
    """One who gives up makes room for a lighter one behind."""
    governor = govern({"k": 2})

    async def heavy_task() -> None:
        async with governor.slot("k", task="heavy", weight=2, timeout=0.2):
            raise AssertionError("there was no room")

    def heavy() -> None:
        if in_tasks:
            asyncio.run(heavy_task())
        with governor.slot("k", task="heavy", weight=2, timeout=0.2):
            raise AssertionError("there was no room")

    def light() -> str:
        with governor.slot("k", task="light"):
            return "light"

    with Held(governor, "k"):
        first = Worker(heavy)
        until(lambda: waiting_tasks(governor) == ["heavy"])
        second = Worker(light)
        assert second.result() == "light"
        with pytest.raises(QueueTimeout):
            first.result()
    assert_clean(governor)


def test_the_longest_timeouts_are_just_long(govern: Govern) -> None:
    """Ten years in the queue are no special case."""
    governor = govern({"k": 1})

    async def enter() -> str:
        async with governor.slot("k", timeout="3650d", task="it"):
            return "task"

    def plain() -> str:
        with governor.slot("k", timeout="3650d"):
            return "thread"

    with Held(governor, "k"):
        workers = [Worker(plain), Worker(lambda: asyncio.run(enter()))]
        until(lambda: len(waiting_tasks(governor)) == 2)
    assert [worker.result() for worker in workers] == ["thread", "task"]

"""Slots inside slots: no self-deadlock, and a parent that lends (rule 11)."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.slots.support import (
    Crowd,
    Held,
    Worker,
    assert_clean,
    auntil,
    holding_tasks,
    until,
    waiting_tasks,
)

from headway import AtCapacity, DeadlockRefused, Governor

if TYPE_CHECKING:
    from tests.slots.conftest import Govern


def enter(governor: Governor, *keys: str) -> str:
    """Take a slot and give it back."""
    with governor.slot(*keys):
        return "done"


async def aenter(governor: Governor, *keys: str) -> str:
    """The same in a task."""
    async with governor.slot(*keys):
        return "done"


def test_waiting_for_oneself_is_refused_with_the_way_out(govern: Govern) -> None:
    """The error names the key, the lease in the way, and ``parent=``."""
    governor = govern({"k": 1})

    with governor.slot("k/a") as outer:
        with pytest.raises(DeadlockRefused, match="parent=") as caught:
            enter(governor, "k/b")
        assert (caught.value.key, tuple(caught.value.held_by)) == ("k", (outer.id,))
        assert waiting_tasks(governor) == []

    assert enter(governor, "k/b") == "done"
    assert_clean(governor)


def test_recursion_is_refused_at_the_depth_that_does_not_fit(govern: Govern) -> None:
    """A function that calls itself under a limit of three gets three levels deep."""
    governor = govern({"k": 3})

    def recurse(depth: int) -> int:
        try:
            with governor.slot("k"):
                return recurse(depth + 1)
        except DeadlockRefused:
            return depth

    assert recurse(0) == 3
    assert_clean(governor)


def test_a_nested_request_that_others_block_too_waits(govern: Govern) -> None:
    """With one's own lease and another's on a limit of two, the other one will make room."""
    governor = govern({"k": 2})
    other = Held(governor, "k")

    def nested() -> str:
        with governor.slot("k"):
            return enter(governor, "k")

    worker = Worker(nested)
    until(lambda: len(waiting_tasks(governor)) == 1)
    other.let_go()

    assert worker.result() == "done"
    assert_clean(governor)


def test_children_of_gather_and_to_thread_may_wait_for_their_starter(govern: Govern) -> None:
    """A task or thread started inside the block waits: its starter may leave the block."""
    governor = govern({"k": 1})

    async def main() -> None:
        async with governor.slot("k"):
            children = asyncio.gather(
                aenter(governor, "k"),
                asyncio.to_thread(enter, governor, "k"),
                asyncio.create_task(aenter(governor, "k")),
            )
            await auntil(lambda: len(waiting_tasks(governor)) == 3)
        assert list(await asyncio.wait_for(children, 10)) == ["done"] * 3

    asyncio.run(main())
    assert_clean(governor)


def test_a_child_may_wait_after_its_starters_lease_has_ended(govern: Govern) -> None:
    """What a task inherited counts only as long as it is held."""
    governor = govern({"k": 1})

    async def later(gate: asyncio.Event) -> str:
        await gate.wait()
        return await aenter(governor, "k")

    async def main() -> None:
        gate = asyncio.Event()
        async with governor.slot("k"):
            child = asyncio.create_task(later(gate))
            await asyncio.sleep(0)
        with Held(governor, "k"):
            gate.set()
            await auntil(lambda: len(waiting_tasks(governor)) == 1)
        assert await asyncio.wait_for(child, 10) == "done"

    asyncio.run(main())
    assert_clean(governor)


def test_an_unrelated_task_or_thread_waits_as_everyone_does(govern: Govern) -> None:
    """Who was not started from inside the block just stands in line."""
    governor = govern({"k": 1})

    async def main() -> None:
        ready, go = asyncio.Event(), asyncio.Event()

        async def unrelated() -> str:
            ready.set()
            await go.wait()
            return await aenter(governor, "k")

        task = asyncio.create_task(unrelated())
        await ready.wait()
        async with governor.slot("k"):
            go.set()
            thread = Worker(lambda: enter(governor, "k"))
            await auntil(lambda: len(waiting_tasks(governor)) == 2)
        assert await asyncio.wait_for(task, 10) == "done"
        assert await asyncio.to_thread(thread.result) == "done"

    asyncio.run(main())
    assert_clean(governor)


def test_a_nested_request_that_does_not_wait_is_just_full(govern: Govern) -> None:
    """``wait=False`` never waits, so there is no deadlock to refuse."""
    governor = govern({"k": 1})

    with governor.slot("k"), pytest.raises(AtCapacity), governor.slot("k", wait=False):
        pass


def test_other_keys_may_be_nested(govern: Govern) -> None:
    """Waiting inside a lease for a key that somebody else holds is a usual wait."""
    governor = govern({"a": 1, "b": 1})
    held = Held(governor, "b")

    def nested() -> str:
        with governor.slot("a"):
            return enter(governor, "b")

    worker = Worker(nested)
    until(lambda: len(waiting_tasks(governor)) == 1)
    held.let_go()

    assert worker.result() == "done"


def test_a_child_goes_ahead_on_its_parents_slot(govern: Govern) -> None:
    """With ``parent=`` the same key is had without waiting, and counts once."""
    governor = govern({"k": 1})

    with governor.slot("k/a") as parent:
        with governor.slot("k/a", parent=parent) as child:
            assert child.id != parent.id
            assert governor.capacity("k").used == 1
            with governor.slot("k", parent=child):
                assert governor.capacity("k").used == 1
        with governor.slot("k/b", parent=parent.id):
            assert governor.capacity("k").used == 1
            assert governor.capacity("k/b").used == 1

    assert_clean(governor)


def test_twenty_children_of_one_parent_take_turns_in_its_slot(govern: Govern) -> None:
    """They peak at one, and all of them finish."""
    governor = govern({"k": 1})
    crowd = Crowd()

    async def child(parent: str) -> str:
        async with governor.slot("k", parent=parent):
            crowd.enter()
            await asyncio.sleep(0)
            crowd.leave()
        return "done"

    def plain_child(parent: str) -> str:
        with governor.slot("k", parent=parent):
            crowd.enter()
            crowd.leave()
        return "done"

    async def main() -> None:
        async with governor.slot("k") as parent:
            answers = await asyncio.gather(
                *(child(parent.id) for _ in range(10)),
                *(asyncio.to_thread(plain_child, parent.id) for _ in range(10)),
            )
        assert answers == ["done"] * 20

    asyncio.run(asyncio.wait_for(main(), 20))
    assert (crowd.peak, crowd.running) == (1, 0)
    assert_clean(governor)


def test_two_parents_that_fill_a_limit_can_each_have_a_child(govern: Govern) -> None:
    """Both wait for a child on the key they fill together, and both finish."""
    governor = govern({"agent": 2})
    both = threading.Barrier(2)

    def parent(name: str) -> str:
        with governor.slot("agent/x", task=name) as lease:
            both.wait(10)

            def child() -> str:
                with governor.slot("agent/y", parent=lease, task=f"child of {name}"):
                    return name

            return Worker(child).result()

    workers = [Worker(partial(parent, name)) for name in ("one", "two")]

    assert [worker.result() for worker in workers] == ["one", "two"]
    assert_clean(governor)


def test_a_parent_that_ends_first_leaves_its_slot_to_the_child(govern: Govern) -> None:
    """The child goes on and counts for itself; nobody else gets in before it ends."""
    governor = govern({"k": 1})
    parent = governor.slot("k")
    lease = parent.__enter__()
    child = Held(governor, "k", parent=lease, task="child")

    parent.__exit__(None, None, None)

    assert holding_tasks(governor) == ["child"]
    assert governor.capacity("k").free == 0
    with pytest.raises(AtCapacity), governor.slot("k", wait=False):
        pass
    child.let_go()
    assert_clean(governor)


def test_an_unknown_parent_is_no_help_and_no_harm(govern: Govern) -> None:
    """A name that no lease has lends nothing."""
    governor = govern({"k": 1})

    with governor.slot("k", parent="nobody-7"):
        pass
    with Held(governor, "k"), pytest.raises(AtCapacity):
        governor.slot("k", parent="nobody-7", wait=False).__enter__()

    assert_clean(governor)


def test_a_circle_of_two_is_refused_and_the_other_goes_on(govern: Govern) -> None:
    """Each holds what the other waits for: the second to ask is told so, with names."""
    governor = govern({"a": 1, "b": 1})
    both = threading.Barrier(2)

    def cross(first: str, second: str) -> str:
        with governor.slot(first, task=first):
            both.wait(10)
            return enter(governor, second)

    workers = [Worker(lambda: cross("a", "b")), Worker(lambda: cross("b", "a"))]
    for worker in workers:
        worker.end()
    errors = [worker.error for worker in workers if worker.error is not None]
    assert [type(error) for error in errors] == [DeadlockRefused]
    text = str(errors[0])
    assert "(task 'a', pid" in text or "(task 'b', pid" in text
    assert "waits for" in text
    assert 'parent="current"' in text
    assert_clean(governor)


def test_a_wait_that_will_end_is_not_shown_as_a_deadlock(govern: Govern) -> None:
    """A holder that runs on is reason enough to wait."""
    governor = govern({"a": 1, "b": 1})

    def nested() -> str:
        with governor.slot("a"):
            return enter(governor, "b")

    with Held(governor, "b"):
        worker = Worker(nested)
        until(lambda: len(waiting_tasks(governor)) == 1)
        assert governor.snapshot().waiting[0].blocked_by.reason == "full"
    assert worker.result() == "done"

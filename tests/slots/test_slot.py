"""What a slot takes, and what its lease says."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import (
    Held,
    Worker,
    assert_clean,
    auntil,
    holding_tasks,
    is_waiting,
    unrelated_task,
    until,
    waiting_tasks,
)

import headway
from headway import AtCapacity, ConfigError, HeadwayError, QueueTimeout

if TYPE_CHECKING:
    from tests.slots.conftest import Govern


def test_a_with_block_holds_one_slot_on_its_key_and_all_ancestors(govern: Govern) -> None:
    """Inside the block every level counts one, after it none."""
    governor = govern({"llm/a": 2})

    with governor.slot("llm/a/opus"):
        used = [governor.capacity(key).used for key in ("llm", "llm/a", "llm/a/opus")]

    assert used == [1, 1, 1]
    assert_clean(governor)


def test_the_same_slot_object_serves_with_and_async_with(govern: Govern) -> None:
    """One object is entered both ways, one after the other, as often as one likes."""
    governor = govern({"k": 1})
    slot = governor.slot("k", task="again")
    ids = []

    async def enter() -> None:
        async with slot as lease:
            ids.append(lease.id)
            assert governor.capacity("k").used == 1

    for _ in range(2):
        with slot as lease:
            ids.append(lease.id)
        asyncio.run(enter())

    assert len(set(ids)) == 4
    assert_clean(governor)


def test_a_slot_in_use_cannot_be_entered_again(govern: Govern) -> None:
    """The second entry is refused with advice, and the first stays as it was."""
    governor = govern({"k": 5})
    slot = governor.slot("k")

    async def enter() -> None:
        async with slot:
            pass

    with slot:
        with pytest.raises(HeadwayError, match="in use"), slot:
            pass
        with pytest.raises(HeadwayError, match="in use"):
            asyncio.run(enter())
        assert governor.capacity("k").used == 1

    assert_clean(governor)


def test_a_slot_that_waits_cannot_be_entered_by_another_task(govern: Govern) -> None:
    """The second is refused before it asks, and the first gets its turn."""
    governor = govern({"k": 1})
    shared = governor.slot("k", task="first")

    async def use() -> str:
        async with shared:
            return "done"

    async def main() -> None:
        first = unrelated_task(use())
        await auntil(lambda: is_waiting(governor, "first"))
        assert repr(shared) == "<Slot on k, entering>"
        with pytest.raises(HeadwayError, match="in use"):
            await unrelated_task(use())
        with pytest.raises(HeadwayError, match="in use"):
            await asyncio.to_thread(shared.__enter__)
        assert waiting_tasks(governor) == ["first"]
        await asyncio.to_thread(held.let_go)
        assert await first == "done"

    with Held(governor, "k") as held:
        asyncio.run(main())
    assert_clean(governor)


def test_a_slot_that_waits_cannot_be_entered_by_another_thread(govern: Govern) -> None:
    """Of several threads that enter one slot object at once exactly one is let in."""
    governor = govern({"k": 4})
    shared, gate = governor.slot("k"), threading.Barrier(4)

    def use() -> str:
        gate.wait()
        with shared as lease:
            gate.wait()
            assert not lease.ended
            return "in"

    def try_to() -> str:
        try:
            return use()
        except HeadwayError:
            gate.wait()
            return "refused"

    workers = [Worker(try_to) for _ in range(4)]

    assert sorted(worker.result() for worker in workers) == ["in", "refused", "refused", "refused"]
    assert_clean(governor)


def test_a_slot_can_be_entered_after_a_failed_entry(govern: Govern) -> None:
    """Whoever gave up, was refused or cancelled has left it free."""
    governor = govern({"k": 1})
    slot = governor.slot("k", timeout=0.001)

    async def aenter() -> None:
        async with slot:
            pass

    with Held(governor, "k"):
        for _ in range(2):
            with pytest.raises(QueueTimeout):
                slot.__enter__()
            with pytest.raises(QueueTimeout):
                asyncio.run(aenter())
    with slot:
        pass
    assert_clean(governor)


def test_a_copied_lease_gives_nothing_back(govern: Govern) -> None:
    """A lease is one thing: its copies are itself, and it does not travel to other processes."""
    governor = govern({"k": 1})

    with governor.slot("k") as lease:
        assert copy.copy(lease) is lease
        assert copy.deepcopy([lease])[0] is lease
        with pytest.raises(TypeError, match="parent="):
            pickle.dumps(lease)
        gc.collect()
        assert governor.capacity("k").used == 1
        assert not lease.ended
    assert copy.copy(lease) is lease
    assert_clean(governor)


def test_a_copied_slot_is_a_request_of_its_own(govern: Govern) -> None:
    """Copies of a slot in use are not in use, and leaving one does not leave the other."""
    governor = govern({"k": 3})

    slot = governor.slot("k")
    with slot as lease:
        with copy.copy(slot) as first, copy.deepcopy(slot) as second:
            assert len({lease.id, first.id, second.id}) == 3
            assert governor.capacity("k").used == 3
        assert governor.capacity("k").used == 1
    with pytest.raises(TypeError, match=r"call slot\(\)"):
        pickle.dumps(slot)
    assert_clean(governor)


def test_a_lease_knows_its_ticket(govern: Govern) -> None:
    """Id, task, keys and waiting time are what the store shows too."""
    governor = govern({"k": 1})

    with governor.slot("k", "agent/x", task="issue-16") as lease:
        (row,) = governor.snapshot().leases
        assert (row.id, row.task, row.keys, row.weight) == (lease.id, "issue-16", lease.keys, 1)
        assert lease.keys == ("k", "agent/x")
        assert lease.waited_seconds >= 0
        assert not lease.lost
        assert not lease.ended
        assert "held" in repr(lease)

    assert lease.ended
    assert "ended" in repr(lease)


def test_tokens_grow_with_every_grant(govern: Govern) -> None:
    """A later grant of the store has the greater token, whatever its keys."""
    governor = govern({"k": 1})
    tokens = []
    for key in ("k", "other", "k", "k"):
        with governor.slot(key) as lease:
            tokens.append(lease.token)

    with Held(governor, "k"):
        waiter: Worker[None] = Worker(lambda: tokens.append(_token(governor)))
        until(lambda: waiting_tasks(governor))
    waiter.result()

    assert tokens == sorted(set(tokens))


def _token(governor: headway.Governor) -> int:
    with governor.slot("k") as lease:
        return lease.token


def test_tokens_grow_across_governors_and_openings(home: str) -> None:
    """A home's tokens go on growing in another governor and after everyone was gone."""
    tokens = []
    for _ in range(3):
        with headway.Governor(f"sqlite:///{home}") as governor, governor.slot("k") as lease:
            tokens.append(lease.token)

    assert tokens == sorted(set(tokens))


def test_weight_takes_that_many_slots(govern: Govern) -> None:
    """A weight of two leaves one of three, and one more of two finds no room."""
    governor = govern({"k": 3})

    with governor.slot("k", weight=2):
        assert governor.capacity("k").free == 1
        with pytest.raises(AtCapacity), governor.slot("k", weight=2, wait=False):
            pass
        with governor.slot("k", weight=1, wait=False):
            assert governor.capacity("k").free == 0

    assert_clean(governor)


def test_a_weight_that_can_never_fit_is_refused_at_once(govern: Govern) -> None:
    """Waiting for what never comes is refused, naming the key and its limit."""
    governor = govern({"k": 3})

    with pytest.raises(AtCapacity, match=r"weight 4 can never fit on k.*limit is 3"):
        governor.slot("k/deep", weight=4).__enter__()

    assert_clean(governor)


def test_a_higher_priority_goes_first(govern: Govern) -> None:
    """Of two who wait, the one with the higher priority is served first."""
    governor = govern({"k": 1})
    order: list[str] = []

    def enter(name: str, priority: int) -> None:
        with governor.slot("k", task=name, priority=priority):
            order.append(name)

    with Held(governor, "k"):
        late = Worker(lambda: enter("late", 0))
        until(lambda: waiting_tasks(governor) == ["late"])
        urgent = Worker(lambda: enter("urgent", 5))
        until(lambda: waiting_tasks(governor) == ["urgent", "late"])
    late.result()
    urgent.result()

    assert order == ["urgent", "late"]


@pytest.mark.parametrize("timeout", [0, 0.01, 0.15, "10ms", "150ms"])
def test_a_timeout_ends_the_wait_and_leaves_no_trace(govern: Govern, timeout: float | str) -> None:
    """Whatever way it is written, the time in the queue is bounded; then nobody waits."""
    governor = govern({"k": 1})

    async def enter() -> None:
        async with governor.slot("k", timeout=timeout):
            raise AssertionError("there was no slot")

    with Held(governor, "k"):
        with pytest.raises(QueueTimeout) as caught, governor.slot("k", timeout=timeout):
            pass
        assert caught.value.keys == ("k",)
        with pytest.raises(QueueTimeout):
            asyncio.run(enter())
        assert waiting_tasks(governor) == []

    assert_clean(governor)


def test_a_long_timeout_is_time_in_the_queue_and_not_in_the_block(govern: Govern) -> None:
    """A granted slot outlives its timeout."""
    governor = govern({"k": 1})

    with governor.slot("k", timeout="10m"):
        pass
    with governor.slot("k", timeout="1ms") as lease:
        until(lambda: lease.held_seconds > 0.002)
        assert governor.capacity("k").used == 1
        lease.check()

    assert_clean(governor)


def test_no_wait_is_refused_with_what_it_met(govern: Govern) -> None:
    """``wait=False`` raises with the capacity of the key that said no, in both worlds."""
    governor = govern({"llm/a": 1})

    async def enter() -> None:
        async with governor.slot("llm/a/opus", wait=False):
            pass

    with Held(governor, "llm/a/sonnet"):
        with pytest.raises(AtCapacity) as caught, governor.slot("llm/a/opus", wait=False):
            pass
        with pytest.raises(AtCapacity) as caught_in_task:
            asyncio.run(enter())

    capacity = caught.value.capacity
    assert capacity == caught_in_task.value.capacity
    assert (capacity.key, capacity.limit, capacity.used, capacity.free) == ("llm/a", 1, 1, 0)
    assert capacity.blocked_by == headway.BlockedBy("llm/a", "full")
    assert "llm/a" in str(caught.value)
    assert_clean(governor)


def test_several_keys_are_had_together_or_not_at_all(govern: Govern) -> None:
    """While one of the keys is full, nobody else is kept from the other for good."""
    governor = govern({"a": 1, "b": 1})
    started = threading.Event()

    def both() -> None:
        with governor.slot("a", "b", task="both"):
            started.set()

    with Held(governor, "b"):
        with pytest.raises(AtCapacity), governor.slot("a", "b", wait=False):
            pass
        assert governor.capacity("a").free == 1
        worker = Worker(both)
        until(lambda: waiting_tasks(governor) == ["both"])
        assert not started.is_set()
        assert "both" not in holding_tasks(governor)
    worker.result()

    assert started.is_set()
    assert_clean(governor)


def test_a_key_named_twice_or_with_its_ancestor_counts_once(govern: Govern) -> None:
    """Every key of a ticket counts its weight once, however it was named."""
    governor = govern({"llm": 1})

    with governor.slot("llm/a", "llm/a", "llm/b", "llm", wait=False):
        assert [governor.capacity(key).used for key in ("llm", "llm/a", "llm/b")] == [1, 1, 1]

    assert_clean(governor)


def test_the_environment_for_a_child_names_store_lease_and_task(
    govern: Govern, url: str, home: str
) -> None:
    """A child finds the store (if it can be shared), the lease, and the task (if it has one)."""
    governor = govern({"k": 2})

    with governor.slot("k", task="t") as named, governor.slot("k") as unnamed:
        assert named.environ()["HEADWAY_LEASE"] == named.id
        assert named.environ()["HEADWAY_TOKEN"] == str(named.token)
        assert named.environ()["HEADWAY_TASK"] == "t"
        assert "HEADWAY_TASK" not in unnamed.environ()
        assert named.environ().get("HEADWAY_HOME") == (None if url == "memory://" else home)
        server = url if url.startswith("unix:") else None
        assert named.environ().get("HEADWAY_STORE_URL") == server


BAD_ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"weight": 0}, "weight"),
    ({"weight": True}, "weight"),
    ({"weight": 1.0}, "weight"),
    ({"weight": 10**9}, "weight"),
    ({"priority": 101}, "priority"),
    ({"priority": -101}, "priority"),
    ({"priority": "5"}, "priority"),
    ({"timeout": -1}, "timeout"),
    ({"timeout": True}, "timeout"),
    ({"timeout": float("nan")}, "timeout"),
    ({"timeout": float("inf")}, "timeout"),
    ({"timeout": "soon"}, "timeout"),
    ({"timeout": 10**400}, "timeout"),
    ({"task": ""}, "task"),
    ({"task": 7}, "task"),
    ({"task": "x" * 1001}, "task"),
    ({"task": "\ud800"}, "task"),
    ({"parent": 3}, "parent"),
]


@pytest.mark.parametrize(("options", "named"), BAD_ARGUMENTS, ids=lambda value: str(value)[:30])
def test_a_bad_argument_is_refused_by_name(
    govern: Govern, options: dict[str, Any], named: str
) -> None:
    """Nothing is guessed: the error says which argument and what it was."""
    governor = govern()

    with pytest.raises(ConfigError, match=named):
        governor.slot("k", **options).__enter__()

    assert_clean(governor)


@pytest.mark.parametrize(
    "keys", [(), ("",), ("a//b",), ("/a",), ("a/",), (3,), ("llm/*",), ("a\n",)]
)
def test_a_bad_key_is_refused(govern: Govern, keys: tuple[Any, ...]) -> None:
    """What is no key is told so when the slot is made, not when it is entered."""
    with pytest.raises(ConfigError):
        govern().slot(*keys)


def test_the_module_level_slot_counts_in_the_home(home: str) -> None:
    """``headway.slot`` and a governor of the same home share one count."""
    with headway.Governor(f"sqlite:///{home}") as governor:
        with headway.slot("agent/x", task="t"):
            assert governor.capacity("agent").used == 1
            assert holding_tasks(governor) == ["t"]
        assert_clean(governor)
    headway.governor.default().close()

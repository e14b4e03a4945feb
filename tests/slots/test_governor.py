"""The governor besides slots: looking, async twins, opening and closing."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import (
    Held,
    Worker,
    assert_clean,
    auntil,
    is_waiting,
    unrelated_task,
    until,
    waiting_tasks,
)

import headway
from headway import AtCapacity, BlockedBy, ConfigError, Governor, HeadwayError

if TYPE_CHECKING:
    from tests.slots.conftest import Govern


def enter(governor: Governor, key: str, task: str) -> str:
    """Take a slot and give it back."""
    with governor.slot(key, task=task) as lease:
        return lease.id


def test_capacity_of_a_free_key(govern: Govern) -> None:
    """Nothing blocks, nothing waits, and the wait is nothing."""
    capacity = govern({"k": 10}).capacity("k")

    assert (capacity.key, capacity.limit, capacity.used, capacity.free) == ("k", 10, 0, 10)
    assert (capacity.waiting, capacity.blocked_by, capacity.pressure) == (0, None, "ok")
    assert capacity.estimated_wait_seconds == 0


def test_capacity_counts_the_ancestors(govern: Govern) -> None:
    """The tightest key on the way up decides what is free, and is named when it is full."""
    governor = govern({"llm": 2, "llm/a": 5})

    with Held(governor, "llm/b"):
        capacity = governor.capacity("llm/a/x")
        assert (capacity.limit, capacity.used, capacity.free) == ("unlimited", 0, 1)
        with Held(governor, "llm/c"):
            capacity = governor.capacity("llm/a/x")
            assert (capacity.free, capacity.blocked_by) == (0, BlockedBy("llm", "full"))
            assert capacity.pressure == "full"


def test_pressure_rises_before_the_key_is_full(govern: Govern) -> None:
    """Planners hear ``near`` when the next slot would pass four fifths."""
    governor = govern({"k": 10})
    seen = []
    held = []
    for _ in range(10):
        seen.append(governor.capacity("k").pressure)
        held.append(Held(governor, "k"))
    seen.append(governor.capacity("k").pressure)
    for one in held:
        one.let_go()

    assert seen == ["ok"] * 8 + ["near"] * 2 + ["full"]


def test_the_estimated_wait_is_learned_from_hold_times(govern: Govern) -> None:
    """Unknown at first; then the usual time divided by the slots, or what is left of it.

    For a request that is not in line yet the share of a slot counts; a ticket in line waits for
    the holders that there are, and these have just begun.
    """
    governor = govern({"k": 2})

    with Held(governor, "k"), Held(governor, "k"):
        assert governor.capacity("k").estimated_wait_seconds is None
    store = governor._turnstile.store
    for _ in range(60):
        ticket_slot = governor.slot("k")
        lease = ticket_slot.__enter__()
        store.release(lease.ticket, 8.0)
        ticket_slot.__exit__(None, None, None)

    with Held(governor, "k"), Held(governor, "k"):
        estimate = governor.capacity("k").estimated_wait_seconds
        assert estimate is not None
        assert estimate == pytest.approx(4.0, rel=0.1)
        worker = Worker(lambda: governor.slot("k", task="it").__enter__().id)
        until(lambda: waiting_tasks(governor) == ["it"])
        row = governor.snapshot().waiting[0]
        assert row.estimated_wait_seconds == pytest.approx(8.0, rel=0.1)
        behind = governor.capacity("k").estimated_wait_seconds
        assert behind == pytest.approx(8.0, rel=0.1)
    worker.result()


def test_a_full_queue_refuses(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``queue.max_waiting`` bounds who may stand in line at one key."""
    monkeypatch.setenv("HEADWAY_QUEUE_MAX_WAITING", "2")
    with Governor(url, limits={"k": 1}) as governor:
        with Held(governor, "k"):
            workers = [Worker(lambda: governor.slot("k").__enter__().id) for _ in range(2)]
            until(lambda: len(waiting_tasks(governor)) == 2)
            with pytest.raises(AtCapacity, match="max_waiting"):
                governor.slot("k").__enter__()
            with governor.slot("other"):
                pass
        for worker in workers:
            worker.result()
        assert_clean(governor)


def test_a_snapshot_has_exactly_the_documented_fields(govern: Govern) -> None:
    """What ``status --json`` prints: these names, in plain JSON."""
    governor = govern({"k": 1})

    with Held(governor, "k", task="holder"):
        worker = Worker(lambda: governor.slot("k", task="it", priority=2).__enter__().id)
        until(lambda: waiting_tasks(governor) == ["it"])
        seen: dict[str, Any] = json.loads(json.dumps(governor.snapshot().as_dict()))
    worker.result()

    assert set(seen) == {"limits", "leases", "waiting"}
    limit_fields = (
        "key limit source used reserved free waiting paused cooling_until cooling_reason"
        " probing requests_per_minute requests_lately next_request_at"
    )
    for limit in seen["limits"]:
        assert set(limit) == set(limit_fields.split())
    (lease,) = seen["leases"]
    assert set(lease) == {"id", "task", "keys", "weight", "since", "stopped", "holder"}
    assert set(lease["holder"]) == {"pid", "host", "command"}
    assert lease["holder"]["pid"] == os.getpid()
    assert lease["holder"]["host"] == os.uname().nodename
    (waiting,) = seen["waiting"]
    waiting_fields = "id task keys weight priority position blocked_by since stopped"
    estimates = {"estimated_wait_seconds", "estimated_wait_range"}
    assert set(waiting) == {*waiting_fields.split(), *estimates, "holder"}
    assert waiting["blocked_by"] == {"key": "k", "reason": "full"}
    assert (waiting["position"], waiting["priority"], waiting["keys"]) == (1, 2, ["k"])


def test_positions_count_along_each_key(govern: Govern) -> None:
    """A hot key's line does not push back who waits for another."""
    governor = govern({"a": 1, "b": 1})

    with Held(governor, "a"), Held(governor, "b"):
        workers = []
        for name, key in (("a1", "a"), ("a2", "a"), ("b1", "b")):
            workers.append(Worker(partial(enter, governor, key, name)))
            until(partial(is_waiting, governor, name))
        rows = {row.task: row.position for row in governor.snapshot().waiting}
    for worker in workers:
        worker.result()

    assert rows == {"a1": 1, "a2": 2, "b1": 1}


def test_the_async_twins_do_the_same(govern: Govern) -> None:
    """Each has an ``a`` in front and can be awaited."""
    governor = govern({"k": 1})

    async def wait() -> None:
        async with governor.slot("k", task="it"):
            pass

    async def main() -> None:
        await governor.aset_limit("k", 1)
        assert await governor.acapacity("k") == governor.capacity("k")
        async with governor.slot("k") as lease:
            task = unrelated_task(wait())
            await auntil(lambda: waiting_tasks(governor) == ["it"])
            seen = await governor.asnapshot()
            assert seen == governor.snapshot()
            assert await governor.acancel(seen.waiting[0].id)
            assert await governor.arevoke(lease.id, "by hand")
            assert not await governor.arevoke(lease.id)
            await asyncio.wait({task})
            assert isinstance(task.exception(), headway.Cancelled)
        await governor.apause("k")
        assert (await governor.acapacity("k")).blocked_by == BlockedBy("k", "paused")
        await governor.aresume("k")
        await governor.aunset_limit("k")
        await governor.areload()
        assert (await governor.acapacity("k")).limit == "unlimited"
        await governor.aclose()

    asyncio.run(main())


def test_what_is_no_option_of_a_slot_is_refused(govern: Govern) -> None:
    """A wait is yes or no, and a hook can be called."""
    governor = govern()
    wrong: Any

    for wrong in ("2", 0, 1, None, 1.5, "no"):
        with pytest.raises(ConfigError, match="wait must be True or False"):
            governor.slot("k", wait=wrong)
    for wrong in (3, "print", [print]):
        with pytest.raises(ConfigError, match="on_wait must be a function"):
            governor.slot("k", on_wait=wrong)


@pytest.mark.parametrize("wrong", [1.5, None, b"abcdef-1", True])
def test_what_is_no_id_is_refused(govern: Govern, wrong: Any) -> None:
    """Instead of being looked for in vain."""
    governor = govern()

    with pytest.raises(ConfigError, match="ticket_id must be text"):
        governor.cancel(wrong)
    with pytest.raises(ConfigError, match="lease_id must be text"):
        governor.revoke(wrong)
    with pytest.raises(ConfigError, match="reason must be text"):
        governor.revoke("nobody-1", wrong)


@pytest.mark.parametrize("url", ["", "sqlite://", "sqlite:///", "memory:", "file:///x"])
def test_an_unknown_store_is_refused(url: str) -> None:
    """The error names it and those that are known."""
    with pytest.raises(ConfigError, match=r"memory://.*sqlite:///") as caught:
        Governor(url)
    assert repr(url) in str(caught.value)


def test_what_is_no_store_at_all_is_refused() -> None:
    """Not even text."""
    with pytest.raises(ConfigError):
        Governor(3)  # type: ignore[arg-type]


def test_a_relative_directory_is_one_too(tmp_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``sqlite:///dir`` is relative to the present directory, and kept when that changes."""
    monkeypatch.chdir(tmp_path)
    with Governor("sqlite:///here") as governor:
        monkeypatch.chdir("/")
        with governor.slot("k"):
            assert governor.capacity("k").used == 1
    assert os.path.exists(os.path.join(tmp_path, "here", "slots.db"))


def test_a_memory_governor_writes_no_file(home: str, tmp_path: str) -> None:
    """It has no home."""
    with Governor("memory://") as governor:
        governor.set_limit("k", 1)
        governor.pause("k")
        governor.resume("k")
        governor.reload()
        with governor.slot("k"):
            pass
    assert os.listdir(tmp_path) == []
    assert not os.path.exists(home)


def test_closing_twice_is_closing_once(govern: Govern) -> None:
    """The second time does nothing."""
    governor = govern({"k": 1})
    with governor.slot("k"):
        pass
    governor.close()
    governor.close()
    asyncio.run(governor.aclose())


def test_closing_gives_everything_back(home: str) -> None:
    """What was held or waited for through it is free for others."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as other:
        governor = Governor(f"sqlite:///{home}")
        slot = governor.slot("k")
        slot.__enter__()
        waiter = Worker(lambda: governor.slot("k", task="it").__enter__())
        until(lambda: waiting_tasks(other) == ["it"])

        governor.close()

        waiter.end()
        assert isinstance(waiter.error, HeadwayError)
        assert_clean(other)
        slot.__exit__(None, None, None)
        assert_clean(other)


def test_closing_ends_the_wait_of_tasks(govern: Govern) -> None:
    """A task that waits is told, instead of waiting for ever."""
    governor = govern({"k": 1})

    async def wait() -> None:
        async with governor.slot("k", task="it"):
            pass

    async def main() -> None:
        async with governor.slot("k"):
            task = unrelated_task(wait())
            await auntil(lambda: waiting_tasks(governor) == ["it"])
            await governor.aclose()
            await asyncio.wait_for(asyncio.wait({task}), 10)
            assert isinstance(task.exception(), HeadwayError)

    asyncio.run(main())


def test_a_closed_governor_says_so(govern: Govern) -> None:
    """Using it is an error that says what to do, in threads and in tasks."""
    governor = govern({"k": 1})
    slot = governor.slot("k")
    governor.close()

    async def enter() -> None:
        async with governor.slot("k"):
            pass

    with pytest.raises(HeadwayError, match="closed"), slot:
        pass
    with pytest.raises(HeadwayError, match="closed"), governor.slot("k"):
        pass
    with pytest.raises(HeadwayError, match="closed"):
        asyncio.run(enter())
    for use in (
        governor.snapshot,
        lambda: governor.capacity("k"),
        lambda: governor.set_limit("k", 2),
        lambda: governor.pause("k"),
        lambda: governor.cancel("nobody-1"),
        lambda: governor.revoke("nobody-1"),
    ):
        with pytest.raises(HeadwayError, match="closed"):
            use()


def test_the_homes_governor_is_made_anew_after_it_was_closed(home: str) -> None:
    """``headway.slot`` goes on working for the rest of the program."""
    with headway.slot("k"):
        pass
    headway.governor.default().close()

    with headway.slot("k"):
        assert headway.governor.default().capacity("k").used == 1

    headway.governor.default().close()
    assert os.path.exists(home)


def test_the_homes_governor_is_shared_by_all_threads(home: str) -> None:
    """Twenty threads that come first at the same time make one governor."""
    barrier = threading.Barrier(20)

    def first() -> int:
        barrier.wait(10)
        return id(headway.governor.default())

    workers = [Worker(first) for _ in range(20)]
    assert len({worker.result() for worker in workers}) == 1
    headway.governor.default().close()
    assert home


def test_the_version_and_all_public_names_are_there() -> None:
    """Everything in ``__all__`` can be had, and nothing else appears by accident."""
    assert headway.__version__
    for name in headway.__all__:
        assert getattr(headway, name) is not None
    with pytest.raises(AttributeError, match="Capacities"):
        _ = headway.Capacities


def test_a_request_that_will_not_wait_is_told_of_a_pause(govern: Govern) -> None:
    """Not that the key is full: it has room."""
    governor = govern({"k": 2})
    governor.pause("k")

    with pytest.raises(AtCapacity, match="no slot on k: it is paused") as caught:
        governor.slot("k/deeper", wait=False).__enter__()

    assert caught.value.capacity.blocked_by == BlockedBy("k", "paused")

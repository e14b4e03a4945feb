"""Work on the caller's own slot: ``current_lease`` and ``parent="current"``."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import Crowd, Held, Worker, assert_clean, auntil, waiting_tasks

import headway
from headway import AtCapacity, DeadlockRefused, Governor, current_lease

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.slots.conftest import Govern


def test_the_current_lease_is_the_innermost_one_that_is_held(govern: Govern) -> None:
    """It is the very lease of the with block, and none outside of all blocks."""
    governor = govern()

    assert current_lease() is None
    with governor.slot("a") as outer:
        assert current_lease() is outer
        with governor.slot("b") as inner:
            assert current_lease() is inner
        assert current_lease() is outer
    assert current_lease() is None


def test_each_task_has_its_own_current_lease(govern: Govern) -> None:
    """Tasks side by side see only their own lease; one created in a block sees the block's."""
    governor = govern()

    async def hold() -> None:
        async with governor.slot("a") as lease:
            await asyncio.sleep(0)
            assert current_lease() is lease

    async def look() -> object:
        return current_lease()

    async def look_later(left: asyncio.Event) -> object:
        await left.wait()
        return current_lease()

    async def main() -> None:
        left = asyncio.Event()
        await asyncio.gather(hold(), hold())
        async with governor.slot("a") as lease:
            assert await asyncio.create_task(look()) is lease
            assert await asyncio.to_thread(current_lease) is lease
            left_behind = asyncio.create_task(look_later(left))
            await asyncio.sleep(0)
        left.set()
        assert await left_behind is None

    asyncio.run(main())
    with governor.slot("a"):
        assert Worker(current_lease).result() is None


def test_a_lease_that_was_dropped_is_not_current(govern: Govern) -> None:
    """A slot that was entered and forgotten is given back, and nobody runs on it."""
    governor = govern({"k": 1})

    governor.slot("k").__enter__()

    assert current_lease() is None
    assert_clean(governor)


def test_a_function_under_the_same_key_runs_on_its_callers_slot(govern: Govern) -> None:
    """Recursion of any depth needs one slot, and gives all of it back."""
    governor = govern({"api": 1})

    @governor.limited("api", parent="current")
    def count_down(n: int) -> int:
        assert governor.capacity("api").used == 1
        return 0 if n == 0 else 1 + count_down(n - 1)

    assert count_down(5) == 5
    assert current_lease() is None
    assert_clean(governor)


def test_as_many_callers_as_slots_do_not_hang(govern: Govern) -> None:
    """Twenty tasks whose functions call each other under one key of five slots all end."""
    governor = govern({"api": 5})
    crowd = Crowd()

    @governor.limited("api", parent="current")
    async def inner() -> int:
        crowd.enter()
        await asyncio.sleep(0)
        crowd.leave()
        return 1

    @governor.limited("api")
    async def outer() -> int:
        await asyncio.sleep(0)
        return await inner()

    async def main() -> list[int]:
        return await asyncio.wait_for(asyncio.gather(*(outer() for _ in range(20))), 20)

    assert sum(asyncio.run(main())) == 20
    assert crowd.peak <= 5
    assert_clean(governor)


def test_tasks_started_in_a_block_share_its_slot_one_at_a_time(govern: Govern) -> None:
    """``gather`` inside of a slot runs its children on that slot in turn."""
    governor = govern({"api": 1})
    crowd = Crowd()

    async def child() -> None:
        async with governor.slot("api", parent="current"):
            crowd.enter()
            await asyncio.sleep(0)
            crowd.leave()

    async def main() -> None:
        async with governor.slot("api"):
            await asyncio.wait_for(asyncio.gather(child(), child(), child()), 20)

    asyncio.run(main())
    assert crowd.peak == 1
    assert_clean(governor)


def test_a_slot_further_out_is_lent_as_well(govern: Govern) -> None:
    """The key may be held by any lease round the caller, and another governor's may be nearer."""
    governor = govern({"a": 1})

    with (
        governor.slot("a"),
        governor.slot("b"),
        Governor("memory://") as other,
        other.slot("c"),
        governor.slot("a", parent="current"),
    ):
        assert governor.capacity("a").used == 1

    assert_clean(governor)


def test_the_lease_is_looked_for_when_the_slot_is_entered(govern: Govern) -> None:
    """A slot made before the block that it is entered in runs on the slot of that block."""
    governor = govern({"k": 1})
    inner = governor.slot("k", parent="current")

    with governor.slot("k"), inner:
        assert governor.capacity("k").used == 1

    assert_clean(governor)


def test_without_a_lease_it_is_a_plain_request(govern: Govern) -> None:
    """It counts and waits like any other."""
    governor = govern({"k": 1})

    with Held(governor, "k"), pytest.raises(AtCapacity):
        governor.slot("k", parent="current", wait=False).__enter__()

    async def main() -> None:
        async with governor.slot("k", parent="current", task="late"):
            pass

    with Held(governor, "k") as held:
        worker = Worker(lambda: asyncio.run(main()))
        asyncio.run(auntil(lambda: waiting_tasks(governor) == ["late"]))
        held.let_go()
        worker.result()
    assert_clean(governor)


def test_the_lease_that_this_process_inherited_still_lends(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a lease in this thread, ``HEADWAY_LEASE`` counts as it does without ``parent``."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as governor, governor.slot("k") as outer:
        monkeypatch.setenv("HEADWAY_LEASE", outer.id)
        with Governor(f"sqlite:///{home}") as inherited:

            def work() -> bool:
                with inherited.slot("k", parent="current", wait=False) as lease:
                    return bool(lease.ticket.borrowed)

            assert Worker(work).result()


def test_generators_run_on_their_consumers_slot(govern: Govern) -> None:
    """Plain and async generators take ``parent`` like functions do."""
    governor = govern({"k": 1})

    @governor.limited("k", parent="current")
    def numbers() -> Iterator[int]:
        yield from range(3)

    @governor.limited("k", parent="current")
    async def anumbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async def consume() -> list[int]:
        async with governor.slot("k"):
            return [number async for number in anumbers()]

    with governor.slot("k"):
        assert list(numbers()) == [0, 1, 2]
    assert asyncio.run(consume()) == [0, 1, 2]
    assert_clean(governor)


def test_a_lease_handed_to_another_thread_is_current_there(govern: Govern) -> None:
    """As a streamed answer that another thread reads."""
    governor = govern()
    slot = governor.slot("k")
    lease = slot.__enter__()

    def read() -> object:
        me = threading.get_ident()
        slot.hand_to(lambda: threading.get_ident() == me)
        return current_lease()

    assert Worker(read).result() is lease
    assert current_lease() is None
    slot.__exit__(None, None, None)


def test_a_weight_that_the_callers_slot_does_not_carry_is_refused(govern: Govern) -> None:
    """Borrowing never makes more of a slot than it is."""
    governor = govern({"k": 1})

    with governor.slot("k"), pytest.raises((DeadlockRefused, AtCapacity)):
        governor.slot("k", parent="current", weight=2).__enter__()

    assert_clean(governor)


@pytest.mark.usefixtures("home")
def test_the_module_has_it_too() -> None:
    """``headway.slot`` and ``headway.limited`` take ``parent="current"`` in the home."""
    headway.governor.default().set_limit("k", 1)

    @headway.limited("k", parent="current")
    def inner() -> int:
        with headway.slot("k", parent="current") as lease:
            assert headway.current_lease() is lease
            return headway.governor.default().capacity("k").used

    with headway.slot("k"):
        assert inner() == 1
    headway.governor.default().close()


@pytest.mark.parametrize("decorator", [headway.limited, Governor("memory://").limited])
def test_limited_without_parentheses_is_refused_when_it_decorates(decorator: Any) -> None:
    """Not at the first call, and with what to write instead."""

    def ask() -> None:
        raise AssertionError("not decorated")

    with pytest.raises(TypeError, match=r'@headway\.limited\("') as caught:
        decorator(ask)

    assert "ask" in str(caught.value)


@pytest.mark.parametrize("keys", [(), ("a//b",), (3,)])
def test_limited_refuses_bad_keys_when_it_decorates(keys: tuple[Any, ...]) -> None:
    """A misspelt key is found at import and not at the first call."""
    with pytest.raises(headway.ConfigError):
        headway.limited(*keys)


def test_a_slot_shows_what_it_asks_for_and_how_far_it_is(govern: Govern) -> None:
    """Its keys, and whether it was entered."""
    governor = govern({"a": 1})
    slot = governor.slot("a", "b")

    assert repr(slot) == "<Slot on a + b, not entered>"
    with slot as lease:
        assert repr(slot) == f"<Slot on a + b, held as {lease.id}>"
    assert repr(slot) == "<Slot on a + b, not entered>"


@pytest.mark.parametrize("name", ["id", "token", "check", "environ", "lost"])
def test_a_slot_used_as_its_lease_says_how_to_enter_it(govern: Govern, name: str) -> None:
    """Who forgot the with block reads it in the error."""
    slot = govern().slot("k")

    with pytest.raises(AttributeError, match=rf"with .* as lease.*lease\.{name}"):
        getattr(slot, name)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        slot.nonsense  # type: ignore[attr-defined] # noqa: B018


def test_a_slot_that_is_awaited_or_called_says_how_to_enter_it(govern: Govern) -> None:
    """``await slot`` and ``@slot`` are near misses of ``async with`` and ``@limited``."""
    slot: Any = govern().slot("k")

    async def wait_for_it() -> None:
        await slot

    with pytest.raises(TypeError, match="async with"):
        asyncio.run(wait_for_it())
    with pytest.raises(TypeError, match="limited"):
        slot(len)

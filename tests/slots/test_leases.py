"""How leases end: left, dropped, taken back, or with a store that fails."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import (
    Held,
    Worker,
    always_busy,
    assert_clean,
    auntil,
    until,
    waiting_tasks,
)

from headway import ConfigError, Governor, LeaseLost, StoreUnavailable, waiting
from headway.slot import Lease
from headway.tickets import Ticket

if TYPE_CHECKING:
    from tests.slots.conftest import Govern


class FailingRelease:
    """Makes a store fail to release a number of times."""

    def __init__(self, governor: Governor, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
        store: Any = governor._turnstile.store
        self.left, self._release, self.lock = times, store.release, threading.Lock()
        monkeypatch.setattr(store, "release", self)
        monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.01)

    def __call__(self, *args: Any, **options: Any) -> Any:
        with self.lock:
            self.left -= 1
            fails = self.left >= 0
        if fails:
            raise StoreUnavailable("test", "out for lunch")
        return self._release(*args, **options)


def test_a_dropped_lease_is_given_back(govern: Govern) -> None:
    """Who enters a slot and forgets all about it does not keep it."""
    governor = govern({"k": 1})

    governor.slot("k").__enter__()

    gc.collect()
    assert_clean(governor)


def test_a_lease_dropped_in_a_thread_is_given_back(govern: Govern) -> None:
    """Also when the thread that entered is gone."""
    governor = govern({"k": 1})

    Worker(lambda: governor.slot("k").__enter__().id).result()

    assert_clean(governor)


def test_a_lease_dropped_by_a_task_is_given_back(govern: Govern) -> None:
    """Also when a task entered, and ended without leaving."""
    governor = govern({"k": 1})

    async def forget() -> None:
        await governor.slot("k").__aenter__()

    asyncio.run(forget())

    assert_clean(governor)


def test_a_lease_dropped_in_a_circle_is_given_back_by_the_collector(govern: Govern) -> None:
    """Garbage that refers to itself gives back too, and wakes who waits."""
    governor = govern({"k": 1})
    circle: list[Any] = []
    circle.extend([circle, governor.slot("k").__enter__()])
    waiter = Worker(lambda: governor.slot("k", task="next").__enter__().id)
    until(lambda: waiting_tasks(governor) == ["next"])

    del circle
    gc.collect()

    assert waiter.result()
    assert_clean(governor)


def test_leaving_twice_gives_back_once(govern: Govern) -> None:
    """A second exit is harmless, also when the slot has a new holder by then."""
    governor = govern({"k": 1})
    slot = governor.slot("k")
    slot.__enter__()
    slot.__exit__(None, None, None)

    with governor.slot("k", wait=False):
        slot.__exit__(None, None, None)
        assert governor.capacity("k").used == 1

    assert_clean(governor)


def test_the_result_and_error_of_the_block_survive_a_failing_release(
    govern: Govern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller gets its own answer or error, and the release is repeated until it works."""
    governor = govern({"k": 1})
    FailingRelease(governor, monkeypatch, 2)

    def answer() -> str:
        with governor.slot("k"):
            return "answer"

    def fail() -> None:
        with governor.slot("k"):
            raise KeyError("mine")

    assert answer() == "answer"
    with pytest.raises(KeyError, match="mine"):
        fail()

    assert_clean(governor)


def test_the_result_and_error_of_a_task_survive_a_failing_release(
    govern: Govern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with ``async with``; the attempt on the loop and the one in the thread both fail."""
    governor = govern({"k": 1})
    FailingRelease(governor, monkeypatch, 4)

    async def answer() -> str:
        async with governor.slot("k"):
            return "answer"

    async def fail() -> None:
        async with governor.slot("k"):
            raise KeyError("mine")

    assert asyncio.run(answer()) == "answer"
    with pytest.raises(KeyError, match="mine"):
        asyncio.run(fail())

    assert_clean(governor)


def test_a_failing_release_is_told_in_the_log(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not silent: a warning names the lease and the reason."""
    governor = govern({"k": 1})
    FailingRelease(governor, monkeypatch, 1)

    with governor.slot("k") as lease:
        pass

    assert [record.levelname for record in caplog.records if lease.id in record.message] == [
        "WARNING"
    ]
    assert "out for lunch" in caplog.text
    assert_clean(governor)


def test_a_waiter_gets_the_slot_once_a_failed_release_was_repeated(
    govern: Govern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody in line is forgotten because the first attempt failed."""
    governor = govern({"k": 1})
    held = Held(governor, "k")
    waiter = Worker(lambda: governor.slot("k", task="next").__enter__().id)
    until(lambda: waiting_tasks(governor) == ["next"])
    FailingRelease(governor, monkeypatch, 1)

    held.let_go()

    assert waiter.result()
    assert_clean(governor)


def test_a_request_that_the_store_fails_leaves_nothing(
    govern: Govern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grant whose answer got lost on the way is taken back."""
    governor = govern({"k": 1})
    store: Any = governor._turnstile.store
    request = store.request

    def granted_then_broken(*args: Any, **options: Any) -> Any:
        request(*args, **options)
        raise StoreUnavailable("test", "the answer was lost")

    async def enter() -> None:
        async with governor.slot("k"):
            raise AssertionError("not granted")

    with monkeypatch.context() as patch:
        patch.setattr(store, "request", granted_then_broken)
        with pytest.raises(StoreUnavailable, match="lost"), governor.slot("k"):
            pass
        assert_clean(governor)
        with pytest.raises(StoreUnavailable, match="lost"):
            asyncio.run(enter())

    assert_clean(governor)


@pytest.mark.parametrize("busy", [False, True])
def test_the_slot_is_free_when_the_caller_sees_the_result(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    """Whoever has the answer can have the slot, at once and without waiting."""
    governor = govern({"k": 1})
    if busy:
        always_busy(governor._turnstile.store, monkeypatch)

    @governor.limited("k")
    def plain() -> int:
        return 1

    @governor.limited("k")
    async def coroutine() -> int:
        return 2

    async def ask() -> None:
        assert await coroutine() == 2
        assert governor.capacity("k").used == 0
        await asyncio.gather(*(coroutine() for _ in range(5)))
        assert governor.capacity("k").used == 0

    for _ in range(5):
        assert plain() == 1
        assert governor.capacity("k").used == 0
    asyncio.run(ask())


def test_a_lease_taken_back_is_told_to_its_holder(govern: Govern) -> None:
    """``lost`` is set, whatever is used next raises, and leaving the block is quiet."""
    governor = govern({"k": 1})

    with governor.slot("k") as lease:
        assert governor.revoke(lease.id, "needed elsewhere")
        until(lambda: lease.lost)
        with pytest.raises(LeaseLost, match="needed elsewhere"):
            lease.check()
        with pytest.raises(LeaseLost):
            _ = lease.token
        with pytest.raises(LeaseLost):
            lease.environ()
        with pytest.raises(LeaseLost):
            governor.slot("k", parent=lease)
        assert "lost" in repr(lease)
        with governor.slot("k", wait=False):
            assert governor.capacity("k").used == 1

    assert not governor.revoke(lease.id)
    assert_clean(governor)


def test_leaving_after_a_loss_does_not_touch_the_new_holder(govern: Govern) -> None:
    """The old holder's exit frees nothing that is another's by now."""
    governor = govern({"k": 1})
    slot = governor.slot("k")
    lease = slot.__enter__()
    governor.revoke(lease.id)

    with Held(governor, "k"):
        slot.__exit__(None, None, None)
        assert governor.capacity("k").used == 1

    assert_clean(governor)


def test_a_loss_reaches_a_holder_in_another_governor(home: str) -> None:
    """Also when the lease was taken back from elsewhere, and its holder only works."""
    with Governor(f"sqlite:///{home}") as ours, Governor(f"sqlite:///{home}") as theirs:

        async def work() -> None:
            async with ours.slot("k") as lease:
                assert await theirs.arevoke(lease.id, "by hand")
                await auntil(lambda: lease.lost)

        asyncio.run(work())
        assert_clean(ours)


def test_an_ended_lease_lends_nothing(govern: Govern) -> None:
    """``parent=`` a lease whose block was left is refused, naming it."""
    governor = govern({"k": 1})
    with governor.slot("k") as lease:
        pass

    with pytest.raises(ConfigError, match=lease.id):
        governor.slot("k", parent=lease)


def test_generators_closed_elsewhere_do_not_pile_up(govern: Govern) -> None:
    """Leases that ended in another thread are not kept by the one that started them."""
    governor = govern()

    @governor.limited("k")
    def numbers() -> Any:
        yield 1

    def leases() -> int:
        gc.collect()
        return sum(isinstance(thing, Lease | Ticket) for thing in gc.get_objects())

    def start_and_close_elsewhere(times: int) -> None:
        for _ in range(times):
            generator = numbers()
            next(generator)
            Worker(generator.close).result()

    def measure() -> int:
        start_and_close_elsewhere(3)
        before = leases()
        start_and_close_elsewhere(20)
        return leases() - before

    assert Worker(measure).result() <= 1
    assert_clean(governor)

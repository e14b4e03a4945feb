"""A governor is closed at every moment of whatever its threads are in the middle of."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gc
import os
import random
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Self

import pytest
from tests.slots.interrupting import Strike
from tests.slots.support import Held, Steps, Worker, assert_clean, auntil, until, waiting_tasks

from headway import Cancelled, Governor, LeaseLost, QueueTimeout, StoreUnavailable
from headway.stores.base import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection

    from tests.slots.conftest import Govern


class Decoys:
    """Files of the program's own that take the numbers of descriptors that were closed."""

    def __init__(self, path: str) -> None:
        self._path = path
        with open(path, "wb"):
            pass
        self._taken: list[int] = []

    def take(self) -> None:
        """Open some: the lowest free numbers are given out first."""
        first = os.open(self._path, os.O_RDWR)
        self._taken += [first, *(os.dup(first) for _ in range(30))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nobody has closed, locked or written any of them."""
        wanted = os.stat(self._path)
        for number in self._taken:
            assert os.path.samestat(os.fstat(number), wanted), "somebody closed it"
        assert wanted.st_size == 0, "somebody wrote to it"
        other = os.open(self._path, os.O_RDWR)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            for number in (other, *self._taken):
                os.close(number)


def come_and_go(governor: Governor) -> None:
    """Room for everyone."""
    with governor.slot("k/a") as lease:
        lease.check()


def wait_in_line(governor: Governor) -> None:
    """Somebody else has the slot, for longer than this waits."""
    with governor.slot("full", timeout=0.003):
        raise AssertionError("let in beside another")


def look(governor: Governor) -> None:
    """Everything, and one key."""
    governor.snapshot()
    governor.capacity("k")


def change(governor: Governor) -> None:
    """Another limit."""
    governor.set_limit("k", 7)
    governor.cancel("nobody-1")


def use_jobs(governor: Governor) -> None:
    """The other database of the home."""
    governor.jobs.all()
    governor.jobs.prune()


SCENARIOS = [come_and_go, wait_in_line, look, change, use_jobs]


class Moment:
    """One run of a scenario whose governor is closed at its n-th point."""

    def __init__(self, home: str, scenario: Callable[[Governor], object]) -> None:
        self._scenario = scenario
        self.governor = Governor(f"sqlite:///{home}")
        self._decoys = Decoys(f"{home}-decoys")
        self._closers: list[Worker[None]] = []

    def close_here(self) -> None:
        """As a signal handler does."""
        self.governor.close()
        self._decoys.take()

    def close_elsewhere(self) -> None:
        """In another thread, which may have to wait until this one has gone on."""
        self._closers.append(Worker(self.governor.close))
        self._closers[0].join(0.02)
        self._decoys.take()

    def run(self, strike: Strike, n: int) -> None:
        """Do it; what comes of it must be one of the few things that may."""

        def scenario() -> None:
            may_end_so = contextlib.suppress(Cancelled, StoreClosed, LeaseLost, QueueTimeout)
            with may_end_so, strike.at(n):
                self._scenario(self.governor)

        with self._decoys:
            Worker(scenario).result()
            for closer in self._closers:
                closer.result()
            assert strike.where is None or self.governor._turnstile.store.closed
            self.governor.close()


@pytest.mark.parametrize("way", ["close_here", "close_elsewhere"])
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_closing_at_any_moment(
    home: str, scenario: Callable[[Governor], object], way: str, step: int
) -> None:
    """By a signal handler or another thread: one of three outcomes, and nothing stays behind."""
    with Governor(f"sqlite:///{home}", limits={"k": 3, "full": 1}) as other:
        with Held(other, "full") as held:
            strike, n = Strike(lambda: None), 0
            while strike.where is not None or n == 0:
                n = n + step if n else 1
                moment = Moment(home, scenario)
                strike = Strike(getattr(moment, way))
                try:
                    moment.run(strike, n)
                    seen = other.snapshot()
                    assert [lease.id for lease in seen.leases] == [held.id]
                    assert not seen.waiting
                except BaseException as error:
                    raise AssertionError(f"closed in {strike.where}") from error
        assert n > 10
        assert_clean(other)


def test_what_is_held_is_lost(govern: Govern) -> None:
    """Whoever still works under a lease is told that it has none any more."""
    governor = govern({"k": 2})
    slot, left = governor.slot("k"), governor.slot("k")
    lease = slot.__enter__()
    with left as given_back:
        pass

    governor.close()

    assert (lease.lost, lease.ended) == (True, True)
    with pytest.raises(LeaseLost, match="its governor was closed"):
        lease.check()
    slot.__exit__(None, None, None)
    assert (given_back.lost, given_back.ended) == (False, True)


@pytest.mark.parametrize("moment", ["before it asks", "before it waits", "while it waits"])
def test_whoever_is_about_to_wait_is_sent_away(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Nobody waits for a governor that will never call it."""
    governor = govern({"k": 1})
    turnstile = governor._turnstile
    held = Held(governor, "k")
    where = {
        "before it asks": (turnstile.store, "request"),
        "before it waits": (turnstile.switchboard, "attach"),
        "while it waits": (turnstile.switchboard, "wait"),
    }
    place, name = where[moment]
    go_on = getattr(place, name)

    def close_and_go_on(*args: object, **options: object) -> object:
        Worker(governor.close).result()
        return go_on(*args, **options)

    monkeypatch.setattr(place, name, close_and_go_on)
    waiter = Worker(lambda: governor.slot("k").__enter__())
    waiter.end()

    assert isinstance(waiter.error, Cancelled | StoreClosed)
    held.let_go()


@pytest.mark.parametrize("step", range(1, 4))
def test_a_task_whose_governor_is_closed_at_any_step(govern: Govern, step: int) -> None:
    """It ends, however far it has come."""
    governor = govern({"k": 1})

    async def take() -> None:
        async with governor.slot("k", on_wait=lambda _: None):
            await asyncio.sleep(0)

    def close(at: int, _: object) -> None:
        if at == step:
            governor.close()

    async def main() -> None:
        with contextlib.suppress(Cancelled, StoreClosed):
            await asyncio.wait_for(Steps(take(), pausing=close), 10)

    held = Held(governor, "k")
    asyncio.run(main())
    held.let_go()


class HeldUp:
    """The last operation of a governor, which waits inside until it is told to go on."""

    def __init__(self, governor: Governor) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        closing = governor._turnstile.store._closing  # type: ignore[attr-defined]
        self._give_back = closing._give_everything_back
        closing._give_everything_back = self._hold_up

    def _hold_up(self, connection: Connection) -> None:
        self.began.set()
        assert self.go_on.wait(10)
        self._give_back(connection)


def test_who_closes_at_the_same_time_returns_when_it_is_done(home: str) -> None:
    """Not before everything was given back."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as other:
        governor = Governor(f"sqlite:///{home}")
        slot = governor.slot("k")
        slot.__enter__()
        held_up = HeldUp(governor)
        first = Worker(governor.close)
        assert held_up.began.wait(10)
        second = Worker(governor.close)
        second.join(0.1)

        assert second.is_alive()
        held_up.go_on.set()
        second.result()
        assert not other.snapshot().leases
        first.result()


def test_who_asks_in_the_last_moment_is_refused(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that stands at the door while everything is given back gets nothing."""
    with Governor(f"sqlite:///{home}", limits={"k": 1}) as other:
        governor = Governor(f"sqlite:///{home}")
        store, at_the_door = governor._turnstile.store, threading.Event()
        held_up, guard = HeldUp(governor), store._home.guard  # type: ignore[attr-defined]
        wait_for_threads = guard._wait_for_threads

        def wait_at_the_door(*, patient: bool) -> None:
            at_the_door.set()
            wait_for_threads(patient=patient)

        monkeypatch.setattr(guard, "_wait_for_threads", wait_at_the_door)
        closer = Worker(store.close)
        assert held_up.began.wait(10)
        late = Worker(lambda: governor.slot("k").__enter__())
        assert at_the_door.wait(10)
        held_up.go_on.set()

        late.end()
        assert isinstance(late.error, StoreClosed)
        closer.result()
        governor.close()
        assert_clean(other)


def test_a_thread_that_stays_inside_closes_on_its_way_out(
    home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who closes does not wait for it for ever, and touches nothing that it uses."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "100ms")
    governor = Governor(f"sqlite:///{home}", limits={"k": 1})
    slot = governor.slot("k")
    slot.__enter__()
    store, inside, leave = governor._turnstile.store, threading.Event(), threading.Event()
    terms = store.terms()

    def stay() -> None:
        inside.set()
        assert leave.wait(10)

    staying = Worker(lambda: store.set_terms(terms, expected=terms, also=stay))
    assert inside.wait(10)
    with pytest.raises(StoreUnavailable, match="another thread of this process"):
        governor.close()
    assert not store.closed

    leave.set()
    staying.result()
    assert store.closed
    with Governor(f"sqlite:///{home}") as other:
        assert_clean(other)


def test_nothing_of_a_closed_home_stays_open(home: str) -> None:
    """Neither files nor threads, whatever its threads did when it was closed."""

    def use_and_close() -> None:
        governor = Governor(f"sqlite:///{home}", limits={"k": 1})
        held = Held(governor, "k")
        waiter = Worker(lambda: governor.slot("k", task="it").__enter__())
        until(lambda: waiting_tasks(governor) == ["it"])
        governor.jobs.all()
        governor.close()
        waiter.end()
        held.let_go()

    use_and_close()
    until(lambda: not _opened(home))


def _opened(home: str) -> list[str]:
    """The files of a home that this process has open."""
    gc.collect()
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return [file for file in found if file.startswith(home)]


@pytest.mark.parametrize("seconds", [2.0, pytest.param(60.0, marks=pytest.mark.soak)])
def test_closing_while_everyone_is_busy(url: str, seconds: float) -> None:
    """Threads and tasks ask, wait, look and change; each ends as it may, and nothing stays."""
    chance, ends_at = random.Random(0), time.monotonic() + seconds
    while time.monotonic() < ends_at:
        governor = Governor(url, limits={"k": 1, "m": 3})
        works = [ask, ask, churn, keep_looking, keep_changing, ask_in_tasks]
        workers = [Worker(partial(_as_it_may, work, governor)) for work in chance.sample(works, 3)]
        time.sleep(chance.choice([0, 0.0005, 0.002, 0.01]) * chance.random())
        closers = [Worker(governor.close) for _ in range(chance.choice([1, 2]))]
        for worker in (*closers, *workers):
            worker.result()
    with Governor(url) as other:
        assert_clean(other)


def _as_it_may(work: Callable[[Governor], None], governor: Governor) -> None:
    with contextlib.suppress(Cancelled, StoreClosed):
        work(governor)


def ask(governor: Governor) -> None:
    """Hold until it is lost."""
    with governor.slot("k") as lease:
        until(lambda: lease.lost)


def churn(governor: Governor) -> None:
    """Come and go."""
    while True:
        with governor.slot("m"):
            pass


def keep_looking(governor: Governor) -> None:
    """At everything."""
    while True:
        look(governor)


def keep_changing(governor: Governor) -> None:
    """Limits, and other people's tickets."""
    while True:
        change(governor)


def ask_in_tasks(governor: Governor) -> None:
    """Hold until it is lost, or wait until it is closed."""

    async def take() -> None:
        with contextlib.suppress(Cancelled, StoreClosed):
            async with governor.slot("k") as lease:
                await auntil(lambda: lease.lost)

    async def main() -> None:
        await asyncio.gather(*(take() for _ in range(3)))

    asyncio.run(main())

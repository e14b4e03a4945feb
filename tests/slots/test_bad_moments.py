"""Threads and signals that meet in the store at the worst moment: nothing is lost or kept."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.interrupting import Strike
from tests.slots.support import Held, Worker, assert_clean

from headway import Governor, NotStartable, StoreUnavailable
from headway.stores.guard import Guard
from headway.stores.own_tickets import OwnTickets
from headway.tickets import Granted, Ticket
from headway.waiting import ThreadWaiter

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from sqlite3 import Connection

    from headway.stores.sqlite import SqliteStore
    from headway.tickets import Decision
    from headway.waiting import Waiter

Opened = tuple[Governor, "SqliteStore"]


@pytest.fixture
def opened(home: str) -> Iterator[Callable[[], Opened]]:
    """Opens the home, each time as another holder."""
    governors: list[Governor] = []

    def open_home() -> Opened:
        governors.append(Governor(f"sqlite:///{home}", limits={"k": 1}))
        store: SqliteStore = governors[-1]._turnstile.store  # type: ignore[assignment]
        store.new_id()
        return governors[-1], store

    yield open_home
    for governor in governors:
        governor.close()


def test_a_grant_in_the_moment_of_beginning_to_wait(
    govern: Callable[..., Governor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread gives back right after the waiter was put down: it is not overwritten."""
    governor = govern({"k": 1})
    held = Held(governor, "k")
    switchboard = governor._turnstile.switchboard
    attach = switchboard.attach

    def attach_and_let_go(ticket_id: str, waiter: Waiter) -> Decision | None:
        early = attach(ticket_id, waiter)
        held.let_go()
        return early

    monkeypatch.setattr(switchboard, "attach", attach_and_let_go)
    with governor.slot("k", timeout=5) as lease:
        assert lease.waited_seconds < 2


def test_two_threads_that_watch_the_same_holder(
    opened: Callable[[], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is watched once: a second descriptor would report its end for ever."""
    _, store = opened()
    _, other = opened()
    presence, both = store._home.presence, threading.Barrier(2)
    open_process = presence._live.open_process

    def open_at_once(holder: str) -> int | None:
        both.wait(10)
        return open_process(holder)

    monkeypatch.setattr(presence._live, "open_process", open_at_once)
    watching = [Worker(lambda: presence.watch([other._home.holder_id])) for _ in range(2)]

    assert [worker.result() for worker in watching] == [[], []]
    assert len(presence._holder_of) == 1
    presence.unwatch(other._home.holder_id)
    assert not presence._holder_of


class SlowToForget(OwnTickets):
    """A process's own tickets, where taking one out waits for others to come, if they can."""

    def __init__(self, news: deque[Decision]) -> None:
        super().__init__(news)
        self.forgetting, self.looked = threading.Event(), threading.Event()

    def pop(self, *args: Any) -> Any:
        self.forgetting.set()
        self.looked.wait(0.3)
        return super().pop(*args)


@pytest.mark.parametrize("way", ["given back", "withdrawn"])
def test_what_just_ended_is_not_announced_again(opened: Callable[[], Opened], way: str) -> None:
    """A database that is opened anew right after the end of a ticket does not get it back."""
    governor, store = opened()
    own = store._own = store._recovery._own = SlowToForget(store.news)
    ticket = Ticket(store.new_id(), ("k",), ("k",))
    if way == "withdrawn":
        _, other = opened()
        other.request(Ticket(other.new_id(), ("k",), ("k",)), wait=True)
    store.request(ticket, wait=True)
    ways: dict[str, Callable[[], object]] = {
        "given back": lambda: store.release(ticket, 1.0),
        "withdrawn": lambda: store.withdraw(ticket),
    }
    ending = Worker(ways[way])
    assert own.forgetting.wait(20)

    assert store.come_to_rest()  # as for a fork: the database is closed
    store.go_on()
    seen = governor.snapshot()

    own.looked.set()
    ending.result()
    assert ticket.id not in {row.id for row in seen.leases}
    assert ticket.id not in {row.id for row in seen.waiting}


def test_a_ticket_that_is_being_granted_is_decided_at_every_moment(
    opened: Callable[[], Opened],
) -> None:
    """Who opens the database in that moment ends what is neither waiting nor held."""
    _, store = opened()
    moments: list[bool] = []

    class Observed(Ticket):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name in {"at", "token"} and self.id in store._own:
                moments.append(self.is_decided)

    ticket = Observed(store.new_id(), ("k",), ("k",))
    ticket.at = "k"
    store._own[ticket.id] = ticket

    store._own.decided(Granted(ticket.id, 7))

    assert moments == [True, True]
    del store._own[ticket.id]


def test_a_release_from_inside_an_opening_is_not_forgotten(
    opened: Callable[[], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector gives a lease back while the attendant opens the database after a fork."""
    governor, store = opened()
    slot = governor.slot("k")
    slot.__enter__()
    announce = store._recovery.announce

    def announce_and_collect(connection: Connection) -> None:
        announce(connection)
        slot.__exit__(None, None, None)

    monkeypatch.setattr(store._recovery, "announce", announce_and_collect)
    assert store.come_to_rest()
    store.go_on()

    store.listen(0)

    assert not governor.snapshot().leases


@pytest.fixture
def told(opened: Callable[[], Opened]) -> tuple[SqliteStore, SqliteStore, Ticket]:
    """One who was granted a slot that another gave back, and has not heard of it yet."""
    (_, store), (_, other) = opened(), opened()
    held, ticket = (Ticket(s.new_id(), ("k",), ("k",)) for s in (other, store))
    other.request(held, wait=True)
    store.request(ticket, wait=True)
    store.listen(0)
    other.release(held, 1.0)
    store._home.presence.receive(0)  # the message is lost
    assert ticket.at is not None
    return store, other, ticket


def test_ctrl_c_while_looking_for_grants(
    told: tuple[SqliteStore, SqliteStore, Ticket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who listens for others as well leaves them nothing unread."""
    store, _, ticket = told
    with monkeypatch.context() as struck:
        struck.setattr(store._reader, "decisions", _raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.listen(0)

    store.listen(0)

    assert ticket.at is None


def test_a_failed_look_is_repeated_though_messages_keep_coming(
    told: tuple[SqliteStore, SqliteStore, Ticket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fails for a moment costs one more look, not a wait for silence."""
    store, other, ticket = told
    with monkeypatch.context() as failing:
        failing.setattr(store._reader, "decisions", _raise_unavailable)
        with pytest.raises(StoreUnavailable):
            store.listen(0)
    other._home.presence.send(store._home.holder_id, "i")

    store.listen(0)

    assert ticket.at is None


def _raise_interrupt(_: str) -> None:
    raise KeyboardInterrupt


def _raise_unavailable(_: str) -> None:
    raise StoreUnavailable("slots.db", "on purpose")


def test_an_attendant_that_cannot_be_started_is_started_later(
    opened: Callable[[], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread too many for a moment does not leave tasks waiting unheard for ever."""
    governor, _ = opened()
    with monkeypatch.context() as full:
        full.setattr("headway.background._thread.start_new_thread", _raise_no_thread)
        with pytest.raises(NotStartable), governor.slot("k"):
            pass
    _, other = opened()
    held = Ticket(other.new_id(), ("k",), ("k",))
    other.request(held, wait=True)

    async def wait() -> float:
        asyncio.get_running_loop().call_later(0.1, other.release, held, 1.0)
        async with governor.slot("k", timeout=5) as lease:
            return lease.waited_seconds

    assert asyncio.run(wait()) < 2


def test_ctrl_c_at_any_moment_of_listening_lets_others_listen(
    opened: Callable[[], Opened],
) -> None:
    """The right to listen does not stay with one who went away."""
    (governor, _), (_, other) = opened(), opened()
    other.request(Ticket(other.new_id(), ("k",), ("k",)), wait=True)
    switchboard = governor._turnstile.switchboard
    switchboard.attend = lambda: None  # type: ignore[method-assign]
    strike, n = Strike(lambda: _raise_interrupt("")), 0
    while strike.where is not None or n == 0:
        n += 1
        waiter = ThreadWaiter()
        with contextlib.suppress(KeyboardInterrupt), strike.at(n):
            switchboard.wait(waiter, 0.001)
        assert Worker(lambda: _can_take(switchboard._listening)).result(), strike.where


def _can_take(lock: Any) -> bool:
    return bool(lock.acquire(False)) and lock.release() is None


def test_a_grant_to_a_closed_loop_is_given_back_by_the_thread_it_ran_in(
    govern: Callable[..., Governor],
) -> None:
    """Leaving a block does not fail because the next in line is gone, and nothing stays held."""
    governor = govern({"k": 1})
    loop = asyncio.new_event_loop()

    async def wait() -> None:
        async with governor.slot("k"):
            pass

    with governor.slot("k"):
        task = loop.create_task(wait(), context=contextvars.Context())
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()

    assert_clean(governor)
    task.get_coro().close()
    del task


def _raise_no_thread(*_: object) -> None:
    raise RuntimeError("can't start new thread")


def test_a_signal_handler_that_looks_at_any_moment_of_a_look(opened: Callable[[], Opened]) -> None:
    """It sees the same, and what it interrupted goes on."""
    governor, _ = opened()
    seen: list[int] = []
    strike, n = Strike(lambda: seen.append(len(governor.snapshot().leases))), 0
    with governor.slot("k"):
        governor.snapshot()
        while strike.where is not None or n == 0:
            n += 1
            strike.at(n)
            looking = Worker(lambda: _strike_a_look(governor, strike))
            assert looking.result() == 1, strike.where
    assert set(seen) == {1}


def _strike_a_look(governor: Governor, strike: Strike) -> int:
    with strike:
        return len(governor.snapshot().leases)


def test_a_signal_handler_that_looks_in_the_middle_of_an_operation(
    opened: Callable[[], Opened],
) -> None:
    """Though the database has to be opened for that: the operation is not undone half way."""
    governor, store = opened()

    def look() -> None:
        store._reader._database.let_go()
        store._home.database._identity = (0, 0)  # as if the file had been replaced just now
        with contextlib.suppress(StoreUnavailable):
            governor.capacity("k")

    strike, n = Strike(look), 0
    while strike.where is not None or n == 0:
        n += 1
        with contextlib.suppress(StoreUnavailable), strike.at(n), governor.slot("k"):
            pass
        assert_clean(governor)


def test_a_fork_in_the_middle_of_asking_for_the_version(
    opened: Callable[[], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is counted on one connection is never taken for what another one counts later."""
    (governor, store), (other, _) = opened(), opened()

    def commit() -> None:
        with other.slot("k"):
            pass

    for _ in range(5):
        commit()
        store.version()
    read = store._reader._read

    def read_and_fork(look: Any) -> Any:
        monkeypatch.undo()
        answer = read(look)
        assert store.come_to_rest()
        store.go_on()
        governor.snapshot()
        return answer

    monkeypatch.setattr(store._reader, "_read", read_and_fork)
    seen = store.version()

    for _ in range(20):
        commit()
        assert store.version() != seen


def test_a_thread_may_give_back_while_another_naps(
    opened: Callable[[], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for another process to leave keeps the door open for its own threads."""
    _, store = opened()
    _, other = opened()
    guard, outside = store._home.guard, other._home.guard
    outside.acquire(patient=True)
    gone_in: list[bool] = []

    def go_in() -> None:
        try:
            guard.acquire(patient=False)
            gone_in.append(True)
        finally:
            guard.release()

    def nap(_seconds: float) -> None:
        if not gone_in:
            outside.release()
            Worker(go_in).result()

    monkeypatch.setattr("headway.stores.guard.time.sleep", nap)
    try:
        guard.acquire(patient=True)
        assert gone_in
    finally:
        guard.release()


def test_a_hook_that_exits_does_not_end_the_listening(
    opened: Callable[[], Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``sys.exit`` in a callback means that callback, not everyone who waits."""
    governor, _ = opened()
    switchboard = governor._turnstile.switchboard
    take_turn, turned = switchboard._take_turn, threading.Event()

    def exit_once() -> None:
        if not turned.is_set():
            turned.set()
            raise SystemExit
        take_turn()

    monkeypatch.setattr(switchboard, "_take_turn", exit_once)
    with governor.slot("k"):
        assert turned.wait(20)

    async def wait_in_line() -> str:
        async with governor.slot("k", timeout=20) as lease:
            return lease.id

    other, _ = opened()
    held = Held(other, "k")
    worker = Worker(lambda: asyncio.run(wait_in_line()))
    while not governor.snapshot().waiting:
        time.sleep(0.01)
    held.let_go()
    assert worker.result()


def test_a_file_in_the_making_that_somebody_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is the first in a home takes it for one that was left behind: it is made again."""
    link = os.link

    def clear_away_first(draft: str, path: str) -> None:
        monkeypatch.setattr(os, "link", link)
        os.unlink(draft)
        link(draft, path)

    monkeypatch.setattr(os, "link", clear_away_first)
    Guard(str(tmp_path / "slots.lock"), timeout_seconds=1.0).close()
    assert os.listdir(tmp_path) == ["slots.lock"]

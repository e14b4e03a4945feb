"""The way to the server is cut, broken or silent: nobody hangs, and nothing is granted twice."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.crash.kit import PATIENCE_SECONDS
from tests.fleet.conftest import LEASE_SECONDS
from tests.slots.support import Worker, is_waiting, until

from headway import Governor, StoreUnavailable
from headway.stores import redis_inbox
from headway.stores.redis_link import Connection, Link

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleet
    from tests.fleet.proxy import Proxy
    from tests.fleet.server import Server

_HOLDS_UNTIL_LOST = """
governor = headway.Governor()
with governor.slot("k") as lease:
    say("holding", lease.token)
    while not lease.lost:
        time.sleep(0.01)
    try:
        lease.check()
    except headway.LeaseLost:
        say("lost")
    hear()
say("left")
hear()
"""


def test_one_that_is_cut_off_loses_its_lease_and_is_told(fleet: Fleet, proxy: Proxy) -> None:
    """The next in line has it when the time is over; the late release of the other is nothing."""
    cut_off = fleet.start(_HOLDS_UNTIL_LOST, HEADWAY_STORE_URL=proxy.url)
    old_token = int(cut_off.expect("holding"))
    waiter = fleet.fenced_waiter()

    proxy.cut()
    assert int(waiter.expect("granted")) > old_token
    third = fleet.waiter("k")
    proxy.heal()

    cut_off.expect("lost")
    cut_off.ask("leave", "left")
    assert third.line_within(0.5) is None
    waiter.ask("leave", "left")
    third.expect("granted")


def test_a_waiter_that_only_seems_to_be_connected(fleet: Fleet, proxy: Proxy) -> None:
    """Its messages go nowhere and nobody says so: it finds out."""
    holder = fleet.holding("k")
    waiter = fleet.waiter("k", HEADWAY_STORE_URL=proxy.url)
    proxy.cut(b"BLPOP")

    holder.ask("leave", "left")

    waiter.expect("granted")


def test_a_wake_up_that_gets_lost_is_found_before_its_connection_is_given_up(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits and hears not even the ends of its reads asks on its other connection."""
    monkeypatch.setattr(redis_inbox, "_SLACK_SECONDS", 1e6)
    monkeypatch.setenv("HEADWAY_LIMITS", "k=1")
    with Governor(server.url) as other, Governor(proxy.url) as governor:
        slot = other.slot("k", timeout=PATIENCE_SECONDS)
        slot.__enter__()
        next_slot = governor.slot("k", task="next")
        worker = Worker(next_slot.__enter__)
        until(lambda: is_waiting(governor, "next"))
        store: Any = governor._store
        until(lambda: not store._listening.inbox.has_gap)
        connection = store._listening.inbox._connection
        proxy.cut(b"BLPOP")

        slot.__exit__(None, None, None)

        worker.result()
        next_slot.__exit__(None, None, None)
        assert store._listening.inbox._connection is connection


@pytest.mark.parametrize("operation", ["request", "release", "withdraw"])
def test_an_answer_that_gets_lost(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """It was done, and is asked for again: once is enough."""
    monkeypatch.setenv("HEADWAY_LIMITS", "k=2")
    with Governor(server.url) as other, Governor(proxy.url) as governor:
        with governor.slot("k", timeout=PATIENCE_SECONDS):
            pass
        proxy.lost_answer = operation.encode()
        with other.slot("k"), governor.slot("k") as lease:
            waiter = threading.Thread(target=_wait_in_vain, args=(governor,))
            waiter.start()
            waiter.join()
            assert other.capacity("k").used == 2
            assert other.capacity("k").waiting == 0
            lease.check()
        assert proxy.lost.wait(PATIENCE_SECONDS)
        assert other.snapshot().leases == ()
        assert other.snapshot().waiting == ()


def test_what_comes_late_is_not_done(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller has given up, and gave back what it never got."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "2s")
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", "6")  # nobody is taken for dead
    with Governor(server.url) as other, Governor(proxy.url) as governor:
        with governor.slot("j"):
            pass
        proxy.kept_back = b"request"
        with pytest.raises(StoreUnavailable):
            governor.slot("k").__enter__()
        with governor.slot("j"):
            pass

        proxy.let_pass()

        for _ in range(2):  # the server reads from one connection after the other
            server.client.ping()
        assert other.snapshot().leases == ()


def test_a_grant_whose_answer_is_the_last_that_gets_through(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked is told that the server is away; when it is back, the slot is free."""
    monkeypatch.setenv("HEADWAY_LIMITS", "k=1")
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "2s")
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", "6")  # nobody is taken for dead
    with Governor(server.url) as other, Governor(proxy.url) as governor:
        for _ in range(2):
            with governor.slot("k", timeout=PATIENCE_SECONDS):
                pass
        proxy.lost_answer, proxy.is_cut_by_loss = b"request", True
        with pytest.raises(StoreUnavailable):
            governor.slot("k").__enter__()

        proxy.heal()

        until(lambda: other.capacity("k").used == 0)
        assert governor.capacity("k").used == 0


def _wait_in_vain(governor: Governor) -> None:
    with pytest.raises(TimeoutError):
        governor.slot("k", timeout=0.01).__enter__()


def test_connections_that_break_all_the_time(
    server: Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request ends, and at the end nothing is left."""
    monkeypatch.setenv("HEADWAY_LIMITS", "k=1")
    inside: list[int] = []
    most: list[int] = []

    def work(governor: Governor) -> None:
        for _ in range(8):
            with governor.slot("k", timeout=PATIENCE_SECONDS):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    with Governor(server.url) as watcher, Governor(proxy.url) as one, Governor(proxy.url) as two:
        threads = [
            threading.Thread(target=work, args=(governor,)) for governor in (one, one, two, two)
        ]
        for thread in threads:
            thread.start()
        while working := [thread for thread in threads if thread.is_alive()]:
            proxy.reset()
            working[0].join(0.2)
        assert len(most) == 32
        assert max(most) == 1
        assert watcher.snapshot().leases == ()
        assert watcher.snapshot().waiting == ()


def test_many_threads_are_told_at_the_same_time(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None waits until the one before it has given up."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "2s")
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", "6")  # nobody is taken for dead
    told = []

    def ask(governor: Governor) -> None:
        try:
            governor.slot("k").__enter__()
        except StoreUnavailable as error:
            told.append(str(error))

    governor = Governor(proxy.url)
    with governor.slot("k"):
        pass
    proxy.cut()
    threads = [threading.Thread(target=ask, args=(governor,), daemon=True) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(told) == len(threads)

    with pytest.raises(StoreUnavailable):
        governor.close()


def test_many_tasks_are_told_at_the_same_time(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few threads ask for all of them, and try in vain no more often than for one."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "2s")
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", "6")  # nobody is taken for dead
    tries = []
    meet = Connection._meet

    def count(connection: Connection, deadline: float) -> None:
        tries.append(1)
        meet(connection, deadline)

    async def ask(governor: Governor) -> None:
        with pytest.raises(StoreUnavailable):
            await governor.slot("k").__aenter__()

    async def ask_often(governor: Governor) -> None:
        await asyncio.gather(*(ask(governor) for _ in range(400)))

    governor = Governor(proxy.url)
    with governor.slot("k"):
        pass
    proxy.cut()
    monkeypatch.setattr(Connection, "_meet", count)
    asyncio.run(ask_often(governor))

    assert len(tries) < 20
    with pytest.raises(StoreUnavailable):
        governor.close()


@pytest.mark.parametrize("call", ["slot", "snapshot"])
def test_a_task_cancelled_while_the_server_is_silent_leaves_no_traceback(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The error of the call that it left is seen, so asyncio does not report it later."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "1s")
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", "6")  # no holder is taken for dead
    governor = Governor(proxy.url)
    reported: list[dict[str, Any]] = []

    async def cancelled(asking: threading.Event) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        ask: Any = governor.slot("k").__aenter__ if call == "slot" else governor.asnapshot
        task = asyncio.create_task(ask())
        assert await asyncio.to_thread(asking.wait, PATIENCE_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        gc.collect()

    with governor.slot("k"):
        pass
    proxy.cut()
    asking, meet = threading.Event(), Connection._meet

    def tell(connection: Connection, deadline: float) -> None:
        asking.set()
        meet(connection, deadline)

    monkeypatch.setattr(Connection, "_meet", tell)
    asyncio.run(cancelled(asking))

    assert reported == []
    with pytest.raises(StoreUnavailable):
        governor.close()


def test_a_message_that_is_lost_while_the_server_refuses_to_tell(
    fleet: Fleet, proxy: Proxy, server: Server
) -> None:
    """Who could not catch up tries it again."""
    holder = fleet.holding("k")
    waiter = fleet.waiter("k", HEADWAY_STORE_URL=proxy.url, HEADWAY_STORE_TIMEOUT="500ms")
    server.client.delete(*server.client.keys("*inbox*"), "nothing")
    proxy.delay_seconds = 1.0
    proxy.reset()
    holder.ask("leave", "left")
    assert waiter.line_within(LEASE_SECONDS / 2) is None

    proxy.delay_seconds = 0.0

    waiter.expect("granted")


def test_a_connection_may_break_any_number_of_times(server: Server) -> None:
    """The driver's pools have an end of patience with that."""
    connection = Link(server.url, "any", timeout_seconds=5.0).connect()
    for _ in range(150):
        connection.ping()
        connection.hang_up()

"""A server that refuses: what can wait is tried again, what cannot is told, nothing is lost."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until
from tests.fleet.conftest import on_each_server
from tests.fleet.server import Server, free_port

from headway import Governor, StoreUnavailable
from headway.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet.conftest import Fleet
    from tests.fleet.proxy import Proxy

pytestmark = on_each_server
_MANY_KEYS = 8100
_ENDLESS = "while true do end"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks in this process does not wait for long."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "1s")
    monkeypatch.setenv("HEADWAY_LIMITS", "k=1,j=1")


@pytest.fixture
def governor(server: Server, impatient: None) -> Iterator[Governor]:
    """One of this process."""
    del impatient
    with Governor(server.url) as governor:
        yield governor


def beats_of(server: Server, governor: Governor) -> float:
    """Until when a holder counts as alive."""
    holder = governor._store.new_id().partition("-")[0]
    found = server.client.zscore("{headway:default}:holders", holder)
    return float(found or 0)


def test_without_memory_nothing_new_comes_in_and_all_that_is_there_goes_on(
    server: Server, governor: Governor
) -> None:
    """Holders are heard and give back; who asks for more is told why that cannot be."""
    with governor.slot("known"):
        pass
    with governor.slot("k") as lease:
        server.client.config_set("maxmemory", "1")
        for key in ("known", "unknown"):
            with pytest.raises(StoreUnavailable, match="maxmemory"):
                governor.slot(key).__enter__()
        before = beats_of(server, governor)
        while beats_of(server, governor) <= before:
            pass
        lease.check()
    assert governor.capacity("k").used == 0

    server.client.config_set("maxmemory", "0")
    with governor.slot("k"):
        pass


def test_who_asks_in_vain_keeps_nobody_from_giving_back(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without memory refuses one thing and does the other, in the same process."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "1m")
    with Governor(server.url) as governor:
        lease = governor.slot("k").__enter__()
        server.client.config_set("maxmemory", "1")
        asking = threading.Thread(target=_use, args=(governor, "new"))
        asking.start()
        store = governor._store
        assert isinstance(store, RedisStore)
        until(lambda: "maxmemory" in store._session._connection._trouble, "a refusal")

        governor.turnstile.give_back(lease)

        assert asking.is_alive()
        assert governor.capacity("k").used == 0
        server.client.config_set("maxmemory", "0")
        asking.join()


def _use(governor: Governor, key: str) -> None:
    with governor.slot(key):
        pass


def test_a_waiter_is_served_by_a_server_without_memory(fleet: Fleet, server: Server) -> None:
    """What is given back goes to the next in line, and the dead are found."""
    holder, first, second = fleet.holding("k"), fleet.waiter("k"), fleet.waiter("k")
    server.client.config_set("maxmemory", "1")

    holder.ask("leave", "left")
    first.expect("granted")
    first.kill()
    second.expect("granted")


def test_a_server_that_may_not_be_written_to(server: Server, governor: Governor) -> None:
    """It is a replica now: whoever asks is told so, until it is none any more."""
    with governor.slot("k"):
        pass
    server.client.replicaof("127.0.0.1", str(free_port()))
    with pytest.raises(StoreUnavailable, match="read only"):
        governor.slot("k").__enter__()

    promotion = threading.Timer(0.1, server.promote)
    promotion.start()
    with governor.slot("k"):
        pass
    promotion.join()


def test_a_server_that_is_busy_with_a_script_of_others(server: Server, governor: Governor) -> None:
    """Whoever asks meanwhile is told; afterwards all is as before."""
    with governor.slot("k") as lease:
        server.client.config_set("lua-time-limit", "50")
        busy = threading.Thread(target=_run_endlessly, args=(server.other_client(),))
        busy.start()
        _wait_until_busy(server)
        with pytest.raises(StoreUnavailable, match="BUSY"):
            governor.slot("j").__enter__()
        server.client.script_kill()
        busy.join()
        lease.check()
    with governor.slot("k"), governor.slot("j"):
        pass


def _run_endlessly(client: object) -> None:
    with pytest.raises(Exception, match="killed"):
        client.eval(_ENDLESS, 0)  # type: ignore[attr-defined]


def _wait_until_busy(server: Server) -> None:
    while True:
        try:
            server.client.ping()
        except Exception as error:  # noqa: BLE001 - the driver has no name for it
            assert "BUSY" in str(error)  # noqa: PT017
            return


def test_a_server_that_loads_its_data(fleet: Fleet, server: Server) -> None:
    """It says so; those who hold and wait go on when it has loaded."""
    holder, waiter = fleet.holding("k"), fleet.waiter("k")
    server.client.config_set("rdbcompression", "no")
    server.client.config_set("key-load-delay", "5000")
    for number in range(200):  # it answers after every two megabytes
        server.client.set(f"ballast {number}", "x" * 50_000)
    load = server.other_client().execute_command
    loading = threading.Thread(target=load, args=("DEBUG", "RELOAD"))
    loading.start()
    holder.tell("leave")
    loading.join()

    holder.expect("left")
    waiter.expect("granted")


def test_a_slow_server(fleet: Fleet, proxy: Proxy) -> None:
    """Every answer takes its time, and everything happens as usual."""
    fleet.url = proxy.url
    proxy.delay_seconds = 0.1
    holder, first, second = fleet.holding("k"), fleet.waiter("k"), fleet.waiter("k")

    for each, following in ((holder, first), (first, second)):
        each.ask("leave", "left")
        following.expect("granted")


def test_a_server_that_sleeps(server: Server, governor: Governor) -> None:
    """Whoever asks meanwhile is told; what it held it holds."""
    with governor.slot("k") as lease:
        asleep = threading.Thread(
            target=server.other_client().execute_command, args=("DEBUG", "SLEEP", "3")
        )
        asleep.start()
        with pytest.raises(StoreUnavailable):
            _use_until_ended(governor, asleep)
        asleep.join()
        lease.check()


def _use_until_ended(governor: Governor, thread: threading.Thread) -> None:
    while thread.is_alive():
        with governor.slot("j"):
            pass


def test_more_keys_than_lua_can_pass_on_at_once(governor: Governor) -> None:
    """Terms change, and the store settles, whatever the number of keys."""
    with governor.slot("k"):
        for first in range(0, _MANY_KEYS, 100):
            with governor.slot(*(f"many/{number}" for number in range(first, first + 100))):
                pass

        governor.set_limit("many/*", 3)

        assert governor.capacity("many/7").limit == 3


def test_a_namespace_is_its_own(
    server: Server, governor: Governor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two on one server have their own limits and leases."""
    monkeypatch.setenv("HEADWAY_STORE_NAMESPACE", "another")
    with Governor(server.url) as other:
        other.set_limit("k", 2)
        with governor.slot("k"), other.slot("k"), other.slot("k", parent=None):
            assert [governor.capacity("k").used, other.capacity("k").used] == [1, 2]
            assert len(governor.snapshot().leases) == 1
        assert governor.capacity("k").limit == 1

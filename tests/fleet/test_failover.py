"""A replica takes over: who holds something holds it, also if the replica never heard of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.crash.kit import PATIENCE_SECONDS
from tests.fleet.conftest import on_each_server
from tests.fleet.server import Server, free_port
from tests.slots.support import until

from headway import Governor
from headway.stores import open_store
from headway.stores.redis import RedisStore
from headway.tickets import Granted, Ticket

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet.conftest import Fleet
    from tests.fleet.proxy import Proxy

pytestmark = on_each_server


@pytest.fixture
def server(kind: str) -> Iterator[Server]:
    """One that may have replicas."""
    server = Server(kind=kind, port=free_port())
    yield server
    server.close()


@pytest.fixture
def replica(server: Server) -> Iterator[Server]:
    """One of them."""
    replica = server.replica()
    yield replica
    replica.close()


def test_a_replica_that_knows_everything(
    fleet: Fleet, proxy: Proxy, server: Server, replica: Server
) -> None:
    """The line is as it was."""
    fleet.url = proxy.url
    holder = fleet.holding("k")
    first, second = fleet.waiter("k"), fleet.waiter("k")
    server.client.wait(1, 0)

    server.kill()
    replica.promote()
    proxy.switch_to(replica.socket)

    newcomer = fleet.waiter("k")
    assert [each.line_within(0.5) for each in (first, second, newcomer)] == [None] * 3
    for each, following in ((holder, first), (first, second), (second, newcomer)):
        each.ask("leave", "left")
        following.expect("granted")


def test_a_replica_that_missed_a_grant(
    fleet: Fleet, proxy: Proxy, server: Server, replica: Server
) -> None:
    """There the new holder still waits and the old one still holds; both tell it otherwise."""
    fleet.url = proxy.url
    holder, waiter = fleet.holding("k"), fleet.waiter("k")
    server.client.wait(1, 0)
    replica.promote()
    holder.ask("leave", "left")
    waiter.expect("granted")

    server.kill()
    proxy.switch_to(replica.socket)

    newcomer = fleet.fenced_waiter(priority=5)
    assert newcomer.line_within(3.0) is None
    waiter.ask("leave", "left")
    newcomer.expect("granted")


def test_a_replica_that_missed_everything(
    fleet: Fleet, proxy: Proxy, server: Server, replica: Server
) -> None:
    """It knows nothing of the namespace; those who live tell it."""
    fleet.url = proxy.url
    replica.promote()
    holder, waiter = fleet.holding("k"), fleet.waiter("k")

    server.kill()
    proxy.switch_to(replica.socket)

    newcomer = fleet.waiter("k")
    assert [each.line_within(1.5) for each in (waiter, newcomer)] == [None] * 2
    holder.ask("leave", "left")
    waiter.expect("granted")
    waiter.ask("leave", "left")
    newcomer.expect("granted")


def test_a_server_that_was_a_replica_for_a_moment(
    fleet: Fleet, server: Server, replica: Server
) -> None:
    """It is the same one, never started anew, and has forgotten what the other one missed."""
    fleet.holding("k").ask("leave", "left")
    server.client.wait(1, 0)
    replica.promote()
    holder = fleet.holding("k")

    server.follow(replica)
    server.promote()

    newcomer = fleet.waiter("k")
    assert newcomer.line_within(3.0) is None
    holder.ask("leave", "left")
    newcomer.expect("granted")


@pytest.mark.parametrize("is_known", [True, False])
def test_one_that_did_not_notice_that_its_server_was_a_replica(
    fleet: Fleet, server: Server, replica: Server, *, is_known: bool
) -> None:
    """The server knows nothing of its slot, or not even of itself; it has it all the same."""
    fleet.holding("k").ask("leave", "left")
    store = _store(server)
    if is_known:
        store.version()
    server.client.wait(1, 0)
    replica.promote()
    ticket = Ticket(store.new_id(), ("k",), ("k",))
    assert isinstance(store.request(ticket, wait=True), Granted)

    server.follow(replica)
    server.promote()

    assert not store.is_lost(ticket)
    assert store.census().states["k"].used == 1
    assert store.is_settling
    store.close()


def test_a_server_that_forgets_that_it_was_a_replica(replica: Server) -> None:
    """One without replicas does so after an hour; it is the same one as before."""
    replica.promote()
    replica.client.config_set("repl-backlog-ttl", "1")
    with Governor(replica.url) as governor:
        with governor.slot("k", timeout=PATIENCE_SECONDS):
            until(lambda: replica.client.info("replication")["second_repl_offset"] == -1)
            newcomer = _store(replica)
            newcomer.version()
            assert not newcomer.is_settling
            newcomer.close()
        with governor.slot("k", wait=False):
            pass


def _store(server: Server) -> RedisStore:
    store, _ = open_store(server.url)
    assert isinstance(store, RedisStore)
    return store

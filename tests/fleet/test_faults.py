"""A server that ends, forgets or does not answer: nobody is over the limit, and nothing hangs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fleet.conftest import LEASE_SECONDS, on_each_server

from headway import Governor, StoreUnavailable

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleet
    from tests.fleet.server import Server

pytestmark = on_each_server
_KEPT = ("--appendonly", "yes")


@pytest.mark.parametrize("server", [(), _KEPT], indirect=True, ids=["not", "kept"])
def test_a_server_that_is_started_again(fleet: Fleet, server: Server) -> None:
    """With its data or without: who held something holds it, and the line is as it was."""
    holder = fleet.holding("k")
    first, second = fleet.waiter("k"), fleet.waiter("k")

    server.kill()
    server.start()

    newcomer = fleet.waiter("k")
    assert [each.line_within(1.0) for each in (first, second, newcomer)] == [None] * 3
    for each, following in ((holder, first), (first, second), (second, newcomer)):
        each.ask("leave", "left")
        following.expect("granted")


@pytest.mark.parametrize("server", [_KEPT], indirect=True, ids=["kept"])
def test_a_server_that_was_away_for_long(fleet: Fleet, server: Server) -> None:
    """Nobody could be heard meanwhile: who holds something gets the time to come back."""
    holder, waiter = fleet.holding("k"), fleet.waiter("k")
    holder.stop()  # it will not be the first to come back
    server.kill()
    assert waiter.line_within(LEASE_SECONDS) is None

    server.start()

    assert waiter.line_within(LEASE_SECONDS / 2) is None
    holder.wake()
    assert waiter.line_within(LEASE_SECONDS) is None
    holder.ask("leave", "left")
    waiter.expect("granted")


def test_a_server_that_was_emptied(fleet: Fleet, server: Server) -> None:
    """A newcomer who finds nothing there waits until those who were there can be back."""
    holder, waiter = fleet.holding("k"), fleet.waiter("k")
    assert waiter.line_within(1.5 * LEASE_SECONDS) is None  # the server is not new any more
    holder.stop()
    waiter.kill()

    server.client.flushall()

    newcomer = fleet.waiter("k")
    holder.wake()
    assert newcomer.line_within(1.5 * LEASE_SECONDS) is None
    holder.ask("leave", "left")
    newcomer.expect("granted")


def test_whoever_asks_a_server_that_is_gone_is_told(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time that is set for it, and never later."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "1s")
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", "1")
    with Governor(server.url) as governor:
        with governor.slot("k"):
            server.kill()
        with pytest.raises(StoreUnavailable, match=r"redis\.sock is unavailable"):
            governor.slot("k").__enter__()
        server.start()
        with governor.slot("k"):
            pass

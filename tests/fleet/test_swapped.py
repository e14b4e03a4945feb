"""The way leads to another server and back: what the first one knows is old by then."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fleet.conftest import LEASE_SECONDS
from tests.fleet.server import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet.conftest import Fleet
    from tests.fleet.proxy import Proxy


@pytest.fixture
def other() -> Iterator[Server]:
    """Another server, which knows nothing."""
    other = Server()
    yield other
    other.close()


def test_a_server_that_comes_back_with_old_knowledge(
    fleet: Fleet, proxy: Proxy, server: Server, other: Server
) -> None:
    """What was granted elsewhere meanwhile is held, and nobody is let in beside it."""
    fleet.url = proxy.url
    holder, waiter = fleet.holding("k"), fleet.waiter("k")
    proxy.switch_to(other.socket)
    holder.ask("leave", "left")
    waiter.expect("granted")

    proxy.switch_to(server.socket)

    newcomer = fleet.fenced_waiter(priority=5)
    assert newcomer.line_within(LEASE_SECONDS) is None
    waiter.ask("leave", "left")
    newcomer.expect("granted")

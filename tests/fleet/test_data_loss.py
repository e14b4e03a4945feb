"""Data that a server loses without a trace: those who are alive bring back what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fleet.conftest import LEASE_SECONDS, on_each_server

if TYPE_CHECKING:
    from tests.fleet.away import Away
    from tests.fleet.conftest import Fleet
    from tests.fleet.server import Server


def _delete(server: Server) -> None:
    server.client.unlink(*server.client.keys("{headway:*"))


def _swap(server: Server) -> None:
    server.client.swapdb(0, 7)


def _flush_and_reset(server: Server) -> None:
    server.client.flushall()
    server.client.config_resetstat()


def _expire(server: Server) -> None:
    """As if the server's clock was put forward by days."""
    for name in server.client.keys("{headway:*"):
        if server.client.ttl(name) >= 0:
            server.client.pexpire(name, 0)


@on_each_server
@pytest.mark.parametrize("lose", [_delete, _swap, _flush_and_reset, _expire])
def test_a_newcomer_waits_for_the_holders_after_a_loss_that_leaves_no_trace(
    fleet: Fleet, server: Server, lose: object
) -> None:
    """Nothing in INFO tells of it; that the mark of the namespace is missing does."""
    assert callable(lose)
    holder, waiter = fleet.holding("k"), fleet.waiter("k")
    assert waiter.line_within(1.5 * LEASE_SECONDS) is None  # the server is not new any more
    waiter.kill()
    holder.stop()  # it does not speak before the newcomer does

    lose(server)

    newcomer = fleet.waiter("k")
    holder.wake()
    assert newcomer.line_within(1.5 * LEASE_SECONDS) is None
    holder.ask("leave", "left")
    newcomer.expect("granted")


def test_the_counts_are_the_first_to_expire(away: Away) -> None:
    """A clock that is put forward by days takes them first, and by that the loss is noticed."""
    away.limit(k=1)
    away.ask("k", by=0)
    away.ask("k", by=1)

    lives = {name: seconds for name, seconds in away.lifetimes().items() if seconds >= 0}
    counts = lives.pop("keys")
    others = {name: lives[name] for name in lives if not name.startswith("inbox:")}

    assert others
    assert min(others.values()) >= counts + 24 * 3600 - 60


def test_rows_without_counts_are_brought_again(away: Away) -> None:
    """Who holds and who waits is counted once, though the old rows are still there."""
    away.limit(k=1)
    running = away.ask("k", by=0)
    waiting = away.ask("k", by=1)
    away.lose("keys")

    for store in away.holders:
        store.version()
    away.house._settle()  # type: ignore[attr-defined]

    (state,) = [state for key, state in away.look().states.items() if key == "k"]
    assert (state.used, state.waiting) == (1, 1)
    away.release(running)
    assert away.runs(waiting)

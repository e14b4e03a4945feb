"""Threads and signals that meet in the store at the worst moment: nothing is lost or kept."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.support import Worker

from headway import Governor
from headway.tickets import Granted, Ticket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headway.stores.sqlite import SqliteStore

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


class SlowToForget(dict[str, Ticket]):
    """A process's own tickets, where taking one out lasts long enough for others to come."""

    def pop(self, *args: Any) -> Any:
        time.sleep(0.3)
        return super().pop(*args)


@pytest.mark.parametrize("way", ["given back", "withdrawn"])
def test_what_just_ended_is_not_announced_again(opened: Callable[[], Opened], way: str) -> None:
    """A database that is opened anew right after the end of a ticket does not get it back."""
    governor, store = opened()
    store._own = store._recovery._own = SlowToForget()
    ticket = Ticket(store.new_id(), ("k",), ("k",))
    if way == "withdrawn":
        _, other = opened()
        other.request(Ticket(other.new_id(), ("k",), ("k",)), wait=True)
    store.request(ticket, wait=True)
    ending = Worker(lambda: store.release(ticket, 1.0) if way == "given back" else store.withdraw(ticket))
    time.sleep(0.1)

    assert store.come_to_rest()  # as for a fork: the database is closed
    store.go_on()
    seen = governor.snapshot()

    ending.result()
    assert ticket.id not in {row.id for row in (*seen.leases, *seen.waiting)}


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

    store.decided(Granted(ticket.id, 7))

    assert moments == [True, True]
    del store._own[ticket.id]

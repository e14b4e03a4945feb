"""Threads and signals that meet in the store at the worst moment: nothing is lost or kept."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.slots.support import Worker, until

from headway import Governor

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

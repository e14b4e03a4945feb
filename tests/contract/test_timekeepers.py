"""Who watches the clock in a home: the process of the first in line to the moment, others later."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.houses import SqliteHouse
from tests.contract.rig import Rig

from headway.stores.book import WINDOW_SECONDS
from headway.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import FakeClock

MODEL, PROVIDER = "llm/openai/gpt", "llm/openai"
LATER = 0.25


@pytest.fixture
def rig(tmp_path: Path, clock: FakeClock) -> Iterator[Rig]:
    """Three holders of one home."""
    house = SqliteHouse(str(tmp_path / "house"), clock=clock, max_waiting=100)
    made = Rig(house, clock)
    yield made
    house.close(made.holders)


def _due(rig: Rig, holder: int) -> float | None:
    """When a holder means to look after what time brings, in seconds from now."""
    store = rig.holders[holder]
    assert isinstance(store, SqliteStore)
    due = store._wakeups._find_due()
    return None if due is None else due - rig.clock()


def _messages(rig: Rig, holder: int) -> str:
    """What was sent to a holder and not read."""
    store = rig.holders[holder]
    assert isinstance(store, SqliteStore)
    messages, _, _ = store._home.presence.receive(0)
    return "".join(messages)


def test_who_comes_to_wait_knows_when(rig: Rig) -> None:
    """Without a look at anything but its own answer."""
    assert _due(rig, 0) is None
    rig.cool(PROVIDER, 20)
    rig.ask(MODEL, by=0)
    rig.ask(MODEL, by=1)
    assert _due(rig, 0) == pytest.approx(20)
    assert _due(rig, 1) == pytest.approx(20 + LATER)
    assert _due(rig, 2) is None, "who does not wait has nothing to keep"


def test_who_becomes_the_first_in_line_is_told_to_watch(rig: Rig) -> None:
    """Then it is to the moment."""
    rig.cool(PROVIDER, 20)
    first = rig.ask(MODEL, by=0)
    rig.ask(MODEL, by=1)
    assert _due(rig, 1) == pytest.approx(20 + LATER)
    rig.withdraw(first)
    rig.holders[1].listen(0)
    assert _due(rig, 1) == pytest.approx(20)


def test_a_cool_down_is_told_to_who_is_in_line_already(rig: Rig) -> None:
    """It waited for room, and knew of no time."""
    rig.limits({PROVIDER: 1})
    rig.ask(PROVIDER, by=2)
    rig.ask(MODEL, by=1)
    rig.holders[1].listen(0)
    assert _due(rig, 1) is None
    rig.cool(PROVIDER, 20)
    rig.holders[1].listen(0)
    assert _due(rig, 1) == pytest.approx(20)


def test_the_time_is_kept_for_a_part_of_the_probe(rig: Rig) -> None:
    """It waits for the budget, whatever the others wait for."""
    rig.limits({PROVIDER: {"requests_per_minute": 1}})
    rig.cool(PROVIDER, 20)
    rig.wait(20)
    probe = rig.ask(PROVIDER, by=0)
    rig.ask(MODEL, parent=probe, by=1)
    assert _due(rig, 1) == pytest.approx(WINDOW_SECONDS, abs=0.01)


def test_who_is_moved_on_to_a_budget_is_told_to_watch(rig: Rig) -> None:
    """By someone who frees another key; it waited for room, and knew of no time."""
    rig.limits({PROVIDER: 1, "llm/xai": {"requests_per_minute": 1}})
    holding = rig.ask(PROVIDER, by=2)
    rig.ask("llm/xai", by=2)
    moved = rig.ask(PROVIDER, "llm/xai", by=1)
    rig.holders[1].listen(0)
    assert _due(rig, 1) is None
    rig.release(holding)
    assert rig.at(moved) == "llm/xai"
    assert "h\n" in _messages(rig, 1)


def test_who_gets_messages_all_the_time_still_looks(rig: Rig) -> None:
    """It learns of a cool-down, and sees to its end, though nothing told it."""
    rig.limits({PROVIDER: 1})
    rig.ask(PROVIDER, by=2)
    rig.ask(PROVIDER, by=1)
    rig.holders[1].listen(0)
    assert _due(rig, 1) is None
    rig.cool(PROVIDER, 20)
    rig.house.lose_messages(rig.holders[1])
    for _ in range(2):
        rig.clock.move(LATER)
        _say_nothing_to(rig, 1)
        rig.holders[1].listen(0)
    assert _due(rig, 1) == pytest.approx(20 - 2 * LATER)


def _say_nothing_to(rig: Rig, holder: int) -> None:
    sender, receiver = rig.holders[2], rig.holders[holder]
    assert isinstance(sender, SqliteStore)
    assert isinstance(receiver, SqliteStore)
    sender._home.presence.send(receiver._home.holder_id, "i")


def test_the_next_in_line_for_a_budget_is_told_each_time(rig: Rig) -> None:
    """Also if it knows all who hold something: the time is what is new."""
    rig.limits({PROVIDER: {"requests_per_minute": 1}})
    rig.ask(MODEL, by=0)
    for _ in range(3):
        rig.ask(MODEL, by=1)
        rig.ask(MODEL, by=2)
    for turn in range(4):
        told = 2 - turn % 2  # whose ticket is next after this one
        _messages(rig, told)
        rig.clock.move(WINDOW_SECONDS)
        rig.store.tend()
        assert "h\n" in _messages(rig, told), f"turn {turn}"
        rig.look()

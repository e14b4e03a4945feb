"""``Store.repair``: counts that no ticket stands for are made to agree with the tickets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.houses import SqliteHouse
from tests.contract.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import FakeClock

PROVIDER = "llm/openai"


def _repaired(rig: Rig) -> set[tuple[str, str, int, int]]:
    found = rig.house.repair(rig.holders)
    rig.look()
    return {(each.key, each.count, each.found, each.expected) for each in found}


def test_sound_counts_are_left_alone(rig: Rig) -> None:
    """With leases, loans, reservations and waiting tickets that agree, nothing is changed."""
    rig.limits({PROVIDER: 2, "llm/xai": 1})
    parent, other = rig.ask(PROVIDER), rig.ask("llm/xai")
    child = rig.ask(PROVIDER, "llm/xai", parent=parent)
    reserving = rig.ask(PROVIDER, "llm/xai")
    rig.house.falsify(rig.store, PROVIDER, "used", 1)  # as it is
    assert _repaired(rig) == set()
    assert rig.at(child) == rig.at(reserving) == "llm/xai"
    rig.release(other)
    assert rig.runs(child)


def test_a_slot_that_nobody_holds_is_free_again(rig: Rig) -> None:
    """A count that is too high jams a key; repaired, the first in line is granted."""
    rig.limits({PROVIDER: 2})
    lease = rig.ask(PROVIDER)
    rig.house.falsify(rig.store, PROVIDER, "used", 2)
    assert _repaired(rig) == {(PROVIDER, "used", 2, 1)}
    first, second = rig.ask(PROVIDER), rig.ask(PROVIDER)
    assert rig.runs(lease, first)
    assert rig.waits(second)


def test_those_who_waited_for_a_slot_that_nobody_held_are_granted(rig: Rig) -> None:
    """Tickets parked behind a false count run as far as the limit allows, in their order."""
    rig.limits({PROVIDER: 2})
    held = [rig.ask(PROVIDER) for _ in range(2)]
    waiting = [rig.ask(PROVIDER) for _ in range(3)]
    rig.house.falsify(rig.store, PROVIDER, "used", 3)
    rig.owner(held[0]).release(held[0], 1.0)  # two seem to be left, so nobody is let in
    assert (PROVIDER, "used", 2, 1) in _repaired(rig)
    assert rig.running(*waiting) == waiting[:1]


def test_a_count_that_is_too_low_lets_nobody_in_above_the_limit(rig: Rig) -> None:
    """After the repair the leases count again, and the next request waits."""
    rig.limits({PROVIDER: 1})
    lease = rig.ask(PROVIDER)
    rig.house.falsify(rig.store, PROVIDER, "used", 0)
    assert _repaired(rig) == {(PROVIDER, "used", 0, 1)}
    waiting = rig.ask(PROVIDER)
    assert rig.waits(waiting)
    rig.release(lease)
    assert rig.runs(waiting)


@pytest.mark.parametrize("count", ["reserved", "waiting", "promised"])
def test_reservations_and_lines_are_counted_anew(rig: Rig, count: str) -> None:
    """A false reservation, line length or promised request is found and mended."""
    rig.limits({PROVIDER: {"slots": 2, "requests_per_minute": 100}, "llm/xai": 1})
    other = rig.ask("llm/xai")
    waiting = rig.ask(PROVIDER, "llm/xai")
    rig.house.falsify(rig.store, PROVIDER, count, 7)
    expected = 0 if count == "waiting" else 1
    assert _repaired(rig) == {(PROVIDER, count, 7, expected)}
    rig.release(other)
    assert rig.runs(waiting)


def test_a_child_keeps_its_loan(rig: Rig) -> None:
    """A lease that runs on its parent's slot is not counted by the repair, before and after."""
    rig.limits({PROVIDER: 1})
    parent = rig.ask(PROVIDER)
    child = rig.ask(PROVIDER, parent=parent)
    rig.house.falsify(rig.store, PROVIDER, "used", 2)
    assert _repaired(rig) == {(PROVIDER, "used", 2, 1)}
    assert rig.runs(parent, child)
    rig.release(child)
    rig.release(parent)
    assert rig.state(PROVIDER).used == 0


# -- rows that are gone from a home's database ------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, clock: FakeClock) -> Iterator[tuple[Rig, Callable[..., None]]]:
    """A home, and a way to change its database behind its back."""
    house = SqliteHouse(str(tmp_path / "home"), clock=clock, max_waiting=100)
    rig = Rig(house, clock)

    def tamper(statement: str, *arguments: object) -> None:
        rig.store._home.database.connection.execute(statement, arguments)  # type: ignore[attr-defined]

    yield rig, tamper
    house.close(rig.holders)


def test_a_key_whose_row_is_gone(home: tuple[Rig, Callable[..., None]]) -> None:
    """Leases count on a key again whose counts were deleted."""
    rig, tamper = home
    rig.limits({PROVIDER: 1})
    rig.ask(PROVIDER)
    tamper("delete from keys where key = ?", PROVIDER)
    assert _repaired(rig) == {(PROVIDER, "used", 0, 1)}
    assert rig.waits(rig.ask(PROVIDER))


def test_a_lease_whose_row_is_gone(home: tuple[Rig, Callable[..., None]]) -> None:
    """The slot of a lease that was deleted goes to the next in line."""
    rig, tamper = home
    rig.limits({PROVIDER: 1})
    lost, waiting = rig.ask(PROVIDER), rig.ask(PROVIDER)
    tamper("delete from leases where id = ?", lost.id)
    rig.ended.add(lost.id)
    assert (PROVIDER, "used", 1, 0) in _repaired(rig)
    assert rig.runs(waiting)


def test_a_head_whose_row_is_gone(home: tuple[Rig, Callable[..., None]]) -> None:
    """A waiting ticket that was deleted neither blocks the line nor counts in it."""
    rig, tamper = home
    rig.limits({PROVIDER: 1})
    lease, lost, second = rig.ask(PROVIDER), rig.ask(PROVIDER), rig.ask(PROVIDER)
    tamper("delete from waiting where id = ?", lost.id)
    rig.owner(lease).release(lease, 1.0)
    rig.ended |= {lost.id, lease.id}
    assert _repaired(rig) == {(PROVIDER, "waiting", 1, 0)}
    assert rig.runs(second)


def test_a_loan_without_a_lender(home: tuple[Rig, Callable[..., None]]) -> None:
    """A lease on the slot of a lease that was deleted counts for itself."""
    rig, tamper = home
    rig.limits({PROVIDER: 1})
    parent = rig.ask(PROVIDER)
    child = rig.ask(PROVIDER, parent=parent)
    tamper("delete from leases where id = ?", parent.id)
    rig.ended.add(parent.id)
    assert _repaired(rig) == {(key, "loans", 1, 0) for key in ("llm", PROVIDER)}
    assert rig.runs(child)
    assert rig.state(PROVIDER).used == 1
    rig.release(child)
    assert rig.state(PROVIDER).used == 0


def test_a_budget_that_nobody_has_spent(home: tuple[Rig, Callable[..., None]]) -> None:
    """A budget counts the requests in its log, and no others."""
    rig, tamper = home
    rig.limits({PROVIDER: {"slots": 5, "requests_per_minute": 2}})
    rig.release(rig.ask(PROVIDER))
    tamper("update keys set spent = 2 where key = ?", PROVIDER)
    assert _repaired(rig) == {(PROVIDER, "spent", 2, 1)}
    first, second = rig.ask(PROVIDER), rig.ask(PROVIDER)
    assert rig.runs(first)
    assert rig.waits(second)


def test_the_lease_of_a_holder_without_a_lock_file(home: tuple[Rig, Callable[..., None]]) -> None:
    """A dead holder that nothing in ``live/`` names any more is given back for."""
    rig, _ = home
    rig.limits({PROVIDER: 1})
    lease = rig.ask(PROVIDER, by=1)
    dead = rig.kill(1)
    rig.store._home.live.remove(dead)  # type: ignore[attr-defined]
    rig.ended.add(lease.id)
    assert _repaired(rig) == set()
    assert rig.runs(rig.ask(PROVIDER))

"""Rule 4 for tickets with several keys: all or none, in one order, and nobody stranded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.contract.rig import Rig

    from headway.tickets import Ticket


def test_all_keys_or_none(rig: Rig) -> None:
    """A ticket runs only when it has each of its keys, and uses none before."""
    rig.limits({"agent": 5, "llm": 1})
    running = rig.ask("llm")
    both = rig.ask("agent", "llm")
    assert rig.waits(both)
    assert rig.state("agent").used == 0
    rig.release(running)
    assert rig.runs(both)
    assert (rig.state("agent").used, rig.state("agent").reserved) == (1, 0)


def test_what_is_kept_for_a_waiting_ticket_is_shown_as_reserved(rig: Rig) -> None:
    """Room collected on the way to a full key is reserved: neither used nor free."""
    rig.limits({"a": 2, "b": 1})
    rig.ask("b")
    both = rig.ask("a", "b", weight=1)
    assert rig.at(both) == "b"
    assert (rig.state("a").used, rig.state("a").reserved) == (0, 1)
    one, other = rig.ask("a"), rig.ask("a")
    assert rig.runs(one)
    assert rig.at(other) == "a"


def test_keys_are_collected_deepest_first_then_by_name(rig: Rig) -> None:
    """Whatever order the caller names them in, each key is waited for in its turn."""
    rig.limits({"z/z": 1, "b": 1, "a": 1})
    for key in ("z/z", "b", "a"):
        rig.ask(key)
    ticket = rig.ask("a", "b", "z/z")
    order = []
    while (at := rig.at(ticket)) is not None:
        order.append(at)
        rig.release(_leases_on(rig, at)[0])
    assert order == ["z/z", "a", "b"]
    assert rig.runs(ticket)


def test_light_tickets_do_not_starve_one_with_many_keys(rig: Rig) -> None:
    """Steady traffic on each of its keys cannot keep a ticket with both of them out."""
    rig.limit(a=1, b=1)
    on_a, on_b = rig.ask("a"), rig.ask("b")
    both = rig.ask("a", "b")
    for _ in range(5):
        rig.ask("a")
        rig.ask("b")
    rig.release(on_a)
    assert rig.waits(both)
    rig.release(on_b)
    assert rig.runs(both)


def test_two_tickets_with_the_same_keys_cannot_block_each_other(rig: Rig) -> None:
    """However two tickets name the same keys, one of them runs and the other follows."""
    rig.limit(a=1, b=1)
    first, second = rig.ask("a", "b"), rig.ask("b", "a")
    assert rig.running(first, second) == [first]
    rig.release(first)
    assert rig.runs(second)


def test_a_follower_with_the_same_keys_turns_its_reservation_into_use(rig: Rig) -> None:
    """Who takes over just what another leaves had collected some of it already."""
    rig.limits({"a": 2, "b": 1})
    first, second = rig.ask("a", "b", by=0), rig.ask("a", "b", by=0)
    assert rig.at(second) == "b"
    rig.release(first)
    assert rig.runs(second)
    assert (rig.state("a").used, rig.state("a").reserved) == (1, 0)


def test_a_ring_of_tickets_runs_dry(rig: Rig) -> None:
    """Tickets whose pairs of keys form a ring all get their turn."""
    names = ["a", "b", "c", "d"]
    rig.limits(dict.fromkeys(names, 1))
    holding = [rig.ask(name) for name in names]
    ring = [rig.ask(name, names[number - 1]) for number, name in enumerate(names)]
    for ticket in holding:
        rig.release(ticket)
    ended = 0
    while running := rig.running(*ring):
        rig.release(running[0])
        ended += 1
    assert ended == len(ring)


def test_a_cancelled_ticket_gives_its_reservations_to_the_next(rig: Rig) -> None:
    """Who waited behind a reservation starts when its owner is cancelled."""
    rig.limit(a=1, b=1)
    rig.ask("b")
    both, behind = rig.ask("a", "b"), rig.ask("a")
    assert rig.waits(both, behind)
    assert rig.cancel(both)
    assert rig.runs(behind)
    assert rig.state("a").reserved == 0


@pytest.mark.parametrize("end", ["cancel", "withdraw", "release"])
def test_ending_a_ticket_with_many_keys_strands_nobody(rig: Rig, end: str) -> None:
    """Each line that a ticket stood in or held up moves on when it leaves."""
    rig.limits({"a": 2, "b": 1, "c": 1})
    rig.ask("c")
    heavy = rig.ask("a", "b", "c", weight=1)
    on_a, on_b = rig.ask("a", weight=2), rig.ask("b")
    light = rig.ask("a")
    assert rig.at(heavy) == "c"
    assert rig.waits(on_a, on_b, light)
    getattr(rig, end)(heavy)
    assert rig.runs(on_a, on_b)
    assert rig.waits(light)
    assert rig.gone(heavy)


def test_a_line_moves_on_when_its_first_leaves(rig: Rig) -> None:
    """A heavy head that is withdrawn uncovers a light ticket that fits."""
    rig.limit(a=2)
    rig.ask("a")
    heavy, light = rig.ask("a", weight=2), rig.ask("a")
    assert rig.waits(heavy, light)
    rig.withdraw(heavy)
    assert rig.runs(light)


def test_a_full_ancestor_is_waited_for_with_the_child_reserved(rig: Rig) -> None:
    """A ticket keeps its place on the model while it waits for the provider."""
    rig.limits({"llm/a": 1, "llm": 1})
    running = rig.ask("llm/b")
    first, second = rig.ask("llm/a"), rig.ask("llm/a")
    assert (rig.at(first), rig.at(second)) == ("llm", "llm/a")
    assert rig.state("llm/a").reserved == 1
    rig.release(running)
    assert rig.runs(first)
    assert rig.at(second) == "llm/a"


def test_a_ticket_that_moves_on_lets_the_next_collect(rig: Rig) -> None:
    """One release may move several tickets along their keys, each in its turn."""
    rig.limits({"x/a": 1, "x/b": 1, "x": 2})
    on_both = rig.ask("x/a", "x/b")
    after_a, after_b = rig.ask("x/a"), rig.ask("x/b")
    rig.release(on_both)
    assert rig.runs(after_a, after_b)
    assert rig.news() == {("granted", after_a.id), ("granted", after_b.id)}


def test_unlimited_keys_are_passed_without_waiting(rig: Rig) -> None:
    """A ticket waits only at keys with a limit."""
    rig.limit(a=1)
    rig.ask("a")
    ticket = rig.ask("a", "free/of/limits")
    assert rig.at(ticket) == "a"
    assert rig.state("free/of/limits").reserved == 0


def _leases_on(rig: Rig, key: str) -> list[Ticket]:
    """The tickets of the test that hold a key."""
    return [lease for lease in rig.asked if lease.id in rig.look().leases and key in lease.path]


def test_keys_that_somebody_will_need_further_on_are_not_forgotten(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody uses them yet, and many new ones have come."""
    monkeypatch.setattr(rig.house.many_keys, 2)
    rig.limit(a=1)
    running = rig.ask("a")
    waiting = rig.ask("a", "b")
    for number in range(4):
        rig.release(rig.ask(f"new/{number}"))

    rig.release(running)

    assert rig.runs(waiting)

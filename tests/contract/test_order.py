"""Rules 4, 5 and 16: who goes next, how it is handed over, and how long a line may grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headway.tickets import Granted

if TYPE_CHECKING:
    from tests.conftest import FakeClock
    from tests.contract.conftest import RigMaker
    from tests.contract.rig import Rig


def test_first_come_first_served(rig: Rig) -> None:
    """Within one priority tickets run in the order of their arrival."""
    rig.limit(llm=1)
    tickets = [rig.ask("llm") for _ in range(6)]
    for ticket in tickets:
        assert rig.running(*tickets) == [ticket]
        rig.release(ticket)


def test_arrivals_are_distinct_though_the_clock_stands_still(rig: Rig, clock: FakeClock) -> None:
    """Two tickets of one instant still have an order, that of their requests."""
    clock.move(50)
    rig.limit(llm=1)
    rig.ask("llm")
    tickets = [rig.ask("llm") for _ in range(5)]
    arrivals = [ticket.arrival for ticket in tickets]
    assert arrivals == sorted(set(arrivals))
    assert rig.look().order == [ticket.id for ticket in tickets]


def test_a_clock_that_goes_back_brings_nobody_forward(rig: Rig, clock: FakeClock) -> None:
    """Who asks later arrives later, whatever the clock says."""
    rig.limit(llm=1)
    running, first = rig.ask("llm"), rig.ask("llm")
    clock.move(-500)
    second = rig.ask("llm")
    clock.move(+100)
    third = rig.ask("llm")
    assert first.arrival < second.arrival < third.arrival
    rig.release(running)
    assert rig.running(first, second, third) == [first]


def test_a_higher_priority_goes_first(rig: Rig) -> None:
    """Among tickets of about the same age the priority decides."""
    rig.limit(llm=1)
    running = rig.ask("llm")
    low, usual, high = (rig.ask("llm", priority=priority) for priority in (-1, 0, 1))
    assert rig.look().order == [high.id, usual.id, low.id]
    rig.release(running)
    assert rig.running(low, usual, high) == [high]


@pytest.mark.parametrize(("age", "first"), [(599, "urgent"), (601, "old")])
def test_a_priority_is_a_head_start_and_no_more(
    rig: Rig, clock: FakeClock, age: float, first: str
) -> None:
    """One step of priority outweighs ten minutes of waiting and not a second more."""
    rig.limit(llm=1)
    running = rig.ask("llm")
    old = rig.ask("llm")
    clock.move(age)
    urgent = rig.ask("llm", priority=1)
    rig.release(running)
    assert rig.running(old, urgent) == [{"old": old, "urgent": urgent}[first]]


def test_a_low_priority_is_not_starved(rig: Rig, clock: FakeClock) -> None:
    """Under a steady stream of better tickets the worst one still gets its turn."""
    rig.limit(llm=1)
    running, patient = rig.ask("llm"), rig.ask("llm", priority=-2)
    clock.move(0.5)
    served = 0
    while not rig.runs(patient):
        clock.move(60)
        following = rig.ask("llm", priority=1)
        rig.release(running)
        running = following if rig.runs(following) else patient
        served += 1
    assert served == 30  # three steps of ten minutes, one ticket a minute


def test_a_better_rank_takes_room_that_the_first_in_line_cannot_use(rig: Rig) -> None:
    """A ticket that comes before the head of the line does not wait behind it."""
    rig.limit(llm=2)
    rig.ask("llm")
    heavy = rig.ask("llm", weight=2)
    assert rig.waits(heavy)
    assert rig.runs(rig.ask("llm", priority=1))


def test_a_hot_key_does_not_stop_others(rig: Rig) -> None:
    """A long line at one model leaves its neighbours alone, also under one roof."""
    rig.limits({"llm": 10, "llm/hot": 1})
    tickets = [rig.ask("llm/hot") for _ in range(8)]
    assert rig.running(*tickets) == tickets[:1]
    assert rig.runs(*(rig.ask("llm/cold") for _ in range(9)))
    assert rig.state("llm").reserved == 0


def test_light_tickets_do_not_starve_a_heavy_one(rig: Rig) -> None:
    """Behind a heavy ticket light ones wait, though they would fit."""
    rig.limit(llm=3)
    running = [rig.ask("llm") for _ in range(3)]
    heavy = rig.ask("llm", weight=3)
    light = [rig.ask("llm") for _ in range(3)]
    for ticket in running[:2]:
        rig.release(ticket)
        assert rig.waits(heavy, *light)
    assert rig.waits(rig.ask("llm"))
    rig.release(running[2])
    assert rig.runs(heavy)
    assert rig.waits(*light)
    rig.release(heavy)
    assert rig.runs(*light)


def test_a_light_ticket_does_not_pass_a_waiting_heavy_one_straight_in(rig: Rig) -> None:
    """A new ticket that would fit stands in line when someone better waits at its key."""
    rig.limit(llm=2)
    rig.ask("llm")
    assert rig.waits(rig.ask("llm", weight=2))
    late = rig.ask("llm/openai")
    assert rig.was_told_to_wait(late)
    assert rig.at(late) == "llm"


def test_who_frees_a_slot_hands_it_to_exactly_the_next(rig: Rig) -> None:
    """A release grants to the first in line in the same breath, and tells nobody else."""
    rig.limit(llm=1)
    running, first, second = (rig.ask("llm") for _ in range(3))
    assert rig.news() == set()
    rig.release(running)
    assert rig.runs(first)
    assert rig.waits(second)
    ((name, decision),) = rig.decisions()
    assert name == "granted"
    assert isinstance(decision, Granted)
    assert (decision.ticket_id, decision.token) == (first.id, first.token)
    assert rig.news() == set()


def test_a_lost_wake_up_is_made_up_for_by_a_look(rig: Rig) -> None:
    """A grant is in the store, whether its message arrives or not."""
    rig.limit(llm=1)
    running, waiting = rig.ask("llm", by=0), rig.ask("llm", by=1)
    rig.news()
    rig.release(running)
    rig.house.lose_messages(rig.owner(waiting))
    assert rig.news() == {("granted", waiting.id)}
    assert rig.news() == set()


def test_freed_room_goes_to_as_many_as_it_holds(rig: Rig) -> None:
    """When a heavy lease ends, all those start who fit, in order."""
    rig.limit(llm=3)
    heavy = rig.ask("llm", weight=3)
    waiting = [rig.ask("llm", weight=weight) for weight in (1, 2, 1)]
    rig.release(heavy)
    assert rig.running(*waiting) == waiting[:2]
    assert rig.news() == {("granted", ticket.id) for ticket in waiting[:2]}


def test_room_that_helps_nobody_wakes_nobody(rig: Rig) -> None:
    """A release on another key is no news to those who wait here."""
    rig.limits({"llm/a": 1, "llm/b": 1})
    rig.ask("llm/a")
    other = rig.ask("llm/b")
    rig.ask("llm/a")
    rig.release(other)
    assert rig.news() == set()


def test_several_freed_keys_are_served_by_rank(rig: Rig) -> None:
    """Room under a common ancestor goes to the oldest, whatever the names of the freed keys."""
    rig.limits({"llm/a": 1, "llm/b": 1, "llm": 2})
    both = rig.ask("llm/a", "llm/b")
    rig.ask("llm/c")
    older, younger = rig.ask("llm/b"), rig.ask("llm/a")
    rig.release(both)
    assert rig.running(older, younger) == [older]


def test_a_full_queue_refuses(make_rig: RigMaker) -> None:
    """No more may wait at one key than the settings allow; the next one is told so."""
    rig = make_rig(max_waiting=2)
    rig.limits({"llm/a": 1, "llm/b": 1})
    running = rig.ask("llm/a")
    waiting = [rig.ask("llm/a") for _ in range(2)]
    for priority in (0, 100):
        refused = rig.ask("llm/a", priority=priority)
        assert rig.refusal(refused) == ("queue_full", "llm/a")
        assert rig.gone(refused)
    rig.ask("llm/b")
    assert rig.waits(rig.ask("llm/b"), *waiting)
    rig.release(running)
    assert rig.waits(rig.ask("llm/a"))


@pytest.mark.parametrize("named", ["llm", "llm/openai"])
def test_a_ticket_heavier_than_a_limit_is_refused(rig: Rig, named: str) -> None:
    """What can never fit is told so at once, whichever of its keys is too small."""
    rig.limits({named: 2})
    refused = rig.ask("llm/openai", weight=3)
    assert rig.refusal(refused) == ("too_heavy", named)
    assert rig.gone(refused)
    assert rig.runs(rig.ask("llm/openai", weight=2))


def test_positions_count_from_one_along_the_line(rig: Rig) -> None:
    """Each waiting ticket has its place at the key it waits at, and the rest have none."""
    rig.limits({"llm/a": 1, "llm/b": 1})
    running = rig.ask("llm/a", by=0)
    rig.ask("llm/b", by=1)
    third, first, second = (rig.ask("llm/a", priority=p, by=p % 3) for p in (0, 2, 1))
    elsewhere = rig.ask("llm/b", by=0)
    places: dict[str, int] = {}
    for store in rig.holders:
        own = [t for t in (running, first, second, third, elsewhere) if rig.owner(t) is store]
        found = store.positions(own)
        places |= {ticket.id: found[ticket.id] for ticket in own if ticket.id in found}
    assert places == {first.id: 1, second.id: 2, third.id: 3, elsewhere.id: 1}


def test_an_outlook_says_where_one_stands_and_behind_whom(rig: Rig) -> None:
    """A waiting ticket sees its key, its place and the leases there; others see nothing."""
    rig.limits({"llm/a": 1})
    running = rig.ask("llm/a")
    rig.ask("llm/b")
    rig.ask("llm/a")
    ticket = rig.ask("llm/a")
    outlook = rig.owner(ticket).outlook(ticket)
    assert outlook is not None
    assert (outlook.state.key, outlook.state.used, outlook.position) == ("llm/a", 1, 2)
    assert [lease.id for lease in outlook.leases] == [running.id]
    assert running.holder in outlook.holders or not rig.house.mortal
    assert rig.owner(running).outlook(running) is None
    rig.withdraw(ticket)
    assert rig.owner(ticket).outlook(ticket) is None


def test_the_usual_hold_time_is_learned_from_releases(rig: Rig) -> None:
    """Each release moves the usual time a fifth of the way, on all its keys."""
    first = rig.ask("llm/a")
    assert rig.state("llm").hold_seconds is None
    rig.release(first, 10.0)
    assert rig.state("llm/a").hold_seconds == pytest.approx(10.0)
    rig.release(rig.ask("llm/a"), 20.0)
    assert rig.state("llm").hold_seconds == pytest.approx(12.0)
    rig.limit(llm=1)
    running = rig.ask("llm/a")
    rig.ask("llm/a")
    rig.release(running, 22.0)
    assert rig.state("llm/a").hold_seconds == pytest.approx(14.0)


def test_a_store_says_when_something_may_have_changed(rig: Rig) -> None:
    """The version stays while nothing happens and moves when something does."""
    watcher = rig.holders[-1]
    before = watcher.version()
    assert watcher.version() == before
    rig.ask("llm/a", by=0)
    assert watcher.version() != before

"""Rule 6, as far as a store decides it: what a dead holder leaves goes to the next in line.

A holder dies here as the kernel would end it, but within this process; real
processes and signals are for the crash tests.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import pytest
from tests.contract.houses import HOUSES

from headway.limits import Terms, line

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.contract.rig import Rig

    Notice = Callable[[Rig, str], object]


# The holders of the others end with their process, and with them all there is.
MORTAL = sorted(name for name, house in HOUSES.items() if house.mortal)
pytestmark = pytest.mark.parametrize("make_rig", MORTAL, indirect=True)


def _by_a_census(rig: Rig, _dead: str) -> None:
    rig.store.census()


def _by_a_survey(rig: Rig, _dead: str) -> None:
    rig.store.survey(["llm"])


def _by_a_newcomer(rig: Rig, _dead: str) -> None:
    rig.holders.append(rig.house.open(rig.store.terms()))


def _by_a_watcher(rig: Rig, dead: str) -> None:
    rig.house.notice(rig.store, [dead])


@pytest.fixture(params=[_by_a_census, _by_a_survey, _by_a_newcomer, _by_a_watcher])
def notice(request: pytest.FixtureRequest) -> Notice:
    """The ways in which a living holder learns of a death."""
    return cast("Notice", request.param)


def test_a_dead_holders_slot_goes_to_exactly_the_next(rig: Rig, notice: Notice) -> None:
    """When a holder dies, the first in line gets its slot and the second stays."""
    rig.limit(llm=1)
    rig.ask("llm", by=1)
    first, second = rig.ask("llm", by=0), rig.ask("llm", by=2)
    notice(rig, rig.kill(1))
    assert rig.runs(first)
    assert rig.waits(second)
    assert ("granted", first.id) in rig.news()


def test_all_that_a_holder_had_comes_back(rig: Rig, notice: Notice) -> None:
    """Leases, reservations and places in line end with their holder."""
    rig.limits({"a": 2, "b": 1, "llm": 2})
    rig.ask("llm", weight=2, by=1)
    rig.ask("b", by=0)
    rig.ask("a", "b", by=1)
    rig.ask("b", by=1)
    living = [rig.ask("a", weight=2, by=2), rig.ask("llm", by=2)]
    assert rig.waits(*living)
    notice(rig, rig.kill(1))
    assert rig.runs(*living)
    assert rig.look().waiting == {}
    assert rig.state("a").reserved == 0


def test_a_death_serves_by_rank(rig: Rig, notice: Notice) -> None:
    """All that a holder leaves is there at once: the oldest has the first choice of it."""
    rig.limits({"llm/a": 1, "llm/b": 2, "llm": 2})
    rig.ask("llm/a", by=1)
    rig.ask("llm/b", by=1)
    older, younger = rig.ask("llm/b", weight=2, by=0), rig.ask("llm/a", by=2)
    notice(rig, rig.kill(1))
    assert rig.running(older, younger) == [older]


def test_a_dead_waiter_with_a_reservation_gives_it_back(rig: Rig, notice: Notice) -> None:
    """What was kept for someone who died while waiting goes on."""
    rig.limits({"llm": 1, "zzz": 1})
    rig.ask("zzz", by=0)
    rig.ask("llm", "zzz", by=1)
    behind = rig.ask("llm", by=2)
    assert rig.waits(behind)
    notice(rig, rig.kill(1))
    assert rig.runs(behind)


def test_a_dead_childs_loan_goes_to_its_sibling(rig: Rig, notice: Notice) -> None:
    """A child that dies while it waits brings back what it had on loan."""
    rig.limits({"llm": 1, "zzz": 1})
    parent = rig.ask("llm", by=0)
    rig.ask("zzz", by=0)
    child = rig.ask("llm", "zzz", by=1, parent=parent)
    sibling = rig.ask("llm", by=2, parent=parent)
    assert rig.at(child) == "zzz"
    assert rig.at(sibling) == "llm"
    notice(rig, rig.kill(1))
    assert rig.runs(sibling)


def test_a_dead_head_of_the_line_holds_nobody_up(rig: Rig, notice: Notice) -> None:
    """A heavy ticket whose owner died does not keep a light one behind it waiting."""
    rig.limit(llm=2)
    rig.ask("llm", by=0)
    rig.ask("llm", weight=2, by=1)
    light = rig.ask("llm", by=2)
    assert rig.waits(light)
    notice(rig, rig.kill(1))
    assert rig.runs(light)


def test_a_dead_parent_leaves_its_child_running(rig: Rig, notice: Notice) -> None:
    """A child on a dead parent's slot counts itself from then on."""
    rig.limit(llm=1)
    parent = rig.ask("llm", by=1)
    child, stranger = rig.ask("llm", by=2, parent=parent), rig.ask("llm", by=0)
    notice(rig, rig.kill(1))
    assert rig.runs(child)
    assert rig.waits(stranger)
    rig.release(child)
    assert rig.runs(stranger)


def test_the_next_in_line_dies_before_its_grant(rig: Rig) -> None:
    """A slot that is handed to a dead waiter goes on to the one behind it."""
    rig.limit(llm=1)
    running = rig.ask("llm", by=0)
    rig.ask("llm", by=1)
    living = rig.ask("llm", by=2)
    rig.kill(1)
    rig.release(running)
    assert rig.runs(living)
    assert rig.news() == {("granted", living.id)}


def test_the_next_in_line_dies_after_its_grant(rig: Rig, notice: Notice) -> None:
    """A slot that was granted to someone who died before hearing of it goes on."""
    rig.limit(llm=1)
    running = rig.ask("llm", by=0)
    granted, living = rig.ask("llm", by=1), rig.ask("llm", by=2)
    rig.release(running)
    assert rig.runs(granted)
    notice(rig, rig.kill(1))
    assert rig.runs(living)


@pytest.mark.parametrize("wait", [True, False])
def test_who_asks_next_finds_a_dead_holders_slot(rig: Rig, wait: bool) -> None:  # noqa: FBT001
    """Nobody is made to wait, or sent away, for the sake of the dead."""
    rig.limit(llm=1)
    rig.ask("llm", by=2)
    rig.kill(2)
    assert rig.runs(rig.ask("llm", by=0, wait=wait))


def test_who_asks_next_finds_a_dead_childs_loan(rig: Rig) -> None:
    """A sibling does not wait for a loan that a dead child had when it died waiting."""
    rig.limits({"llm": 1, "zzz": 1})
    parent = rig.ask("llm", by=0)
    rig.ask("zzz", by=0)
    rig.ask("llm", "zzz", by=2, parent=parent)
    rig.kill(2)
    assert rig.runs(rig.ask("llm", by=1, parent=parent))


def test_who_asks_next_is_not_held_up_by_a_dead_waiter(rig: Rig) -> None:
    """A ticket does not queue behind one whose owner is gone."""
    rig.limit(llm=2)
    rig.ask("llm", by=0)
    rig.ask("llm", weight=2, by=2)
    rig.kill(2)
    assert rig.runs(rig.ask("llm", by=1))


def test_a_living_holder_is_not_reclaimed(rig: Rig) -> None:
    """A false alarm takes nothing from a holder that lives, the caller included."""
    rig.limit(llm=3)
    leases = [rig.ask("llm", by=number) for number in range(3)]
    rig.ask("llm", by=1)
    rig.house.notice(rig.store, [lease.holder for lease in leases])
    assert rig.runs(*leases)
    assert rig.state("llm").waiting == 1


def test_a_death_is_reported_once_with_each_lost_ticket(rig: Rig) -> None:
    """Whoever buries a holder tells which leases it left; nobody else does."""
    told: list[str] = []
    for store in rig.holders:
        store.on_reclaimed = lambda ticket, _: told.append(ticket.id)
    leases = [rig.ask("llm", by=1), rig.ask("llm", by=1)]
    rig.kill(1)
    for store in rig.holders:
        store.census()
    assert sorted(told) == sorted(lease.id for lease in leases)


def test_a_late_cancel_of_a_dead_holders_ticket_finds_nothing(rig: Rig) -> None:
    """After a burial the tickets of the dead can be neither cancelled nor revoked."""
    rig.limit(llm=1)
    lease, waiting = rig.ask("llm", by=1), rig.ask("llm", by=1)
    _by_a_watcher(rig, rig.kill(1))
    assert not rig.cancel(waiting)
    assert not rig.revoke(lease)
    assert rig.state("llm").used == 0


MODEL, PROVIDER = "llm/openai/gpt", "llm/openai"


def _all_die(rig: Rig) -> None:
    """Everyone at once; then somebody comes who finds nobody alive."""
    tickets = {ticket.id for ticket in rig.asked}
    while rig.holders:
        rig.kill(0)
    rig.holders.append(rig.house.open(Terms()))
    rig.look(ended=tickets)


def test_a_probe_that_died_with_everyone_else_does_not_keep_the_key(rig: Rig) -> None:
    """There was nobody to notice; whoever comes next tries, and the rest follows."""
    rig.cool(PROVIDER, 20)
    rig.wait(20)
    assert rig.runs(rig.ask(MODEL))
    _all_die(rig)
    first, second = rig.ask(MODEL, by=0), rig.ask(MODEL, by=0)
    assert rig.runs(first)
    assert rig.waits(second)
    rig.answer(first)
    assert rig.runs(second)


def test_what_was_promised_to_those_who_died_with_everyone_else_is_free(rig: Rig) -> None:
    """And what was spent stays so, for as long as it counts."""
    budget = line(PROVIDER, {"requests_per_minute": 2}, source=rig.store.source, where="")
    rig.set_terms(Terms([budget, line("llm", 1, source=rig.store.source, where="")]))
    rig.ask(MODEL)
    assert rig.at(rig.ask(MODEL)) == "llm"
    _all_die(rig)
    first = rig.ask(MODEL, by=0)
    assert rig.runs(first)
    rig.release(first)
    assert rig.at(rig.ask(MODEL, by=0)) == PROVIDER


def test_limits_from_code_end_with_the_last_who_knew_them(rig: Rig) -> None:
    """Also on keys that were in use."""
    rig.limits({"llm": 1, PROVIDER: {"requests_per_minute": 1}})
    rig.ask(MODEL)
    _all_die(rig)
    assert rig.store.terms() == Terms()
    assert rig.runs(rig.ask(MODEL, by=0), rig.ask(MODEL, by=0))


def test_closing_gives_everything_back(rig: Rig) -> None:
    """A holder that leaves properly takes its leases and tickets with it."""
    rig.limit(llm=1)
    rig.ask("llm", by=1)
    rig.ask("llm", by=1)
    living = rig.ask("llm", by=0)
    rig.house.close([rig.holders.pop(1)])
    assert rig.runs(living)
    assert rig.look().waiting == {}


def test_closed_stores_leave_no_descriptors(rig: Rig) -> None:
    """Opening and closing again and again uses up nothing."""

    def come_and_go() -> int:
        store = rig.house.open(rig.store.terms())
        store.close()
        return open_descriptors()

    come_and_go()
    first = come_and_go()
    assert min(come_and_go() for _ in range(3)) <= first  # those of other tests may go meanwhile


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(os.listdir("/dev/fd"))

"""A key that is left alone: nobody is let in until its time has come, then one, then the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.contract.houses import MAX_COOLING_SECONDS

from headway.stores.book import WINDOW_SECONDS

if TYPE_CHECKING:
    from tests.contract.rig import Rig

MODEL, PROVIDER = "llm/openai/gpt", "llm/openai"


def test_nobody_is_let_in_while_a_key_cools(rig: Rig) -> None:
    """Whoever asks waits there, on that key and below it; work that runs goes on."""
    running = rig.ask(MODEL)
    rig.cool(PROVIDER)
    waiting = [rig.ask(MODEL), rig.ask(PROVIDER), rig.ask("llm/openai/other")]
    assert rig.runs(running)
    assert rig.waits(*waiting)
    assert {rig.at(ticket) for ticket in waiting} == {PROVIDER}
    rig.release(running)
    assert rig.waits(*waiting)


def test_other_keys_go_on(rig: Rig) -> None:
    """One provider's refusal is nobody else's business."""
    rig.cool(PROVIDER)
    assert rig.runs(rig.ask("llm/anthropic/opus"))


def test_when_it_is_over_one_goes_first(rig: Rig) -> None:
    """The first in line; the others wait for its answer, whatever room there is."""
    rig.cool(PROVIDER, 20)
    tickets = [rig.ask(MODEL) for _ in range(4)]
    rig.wait(19.9)
    assert not rig.running(*tickets)
    rig.wait(0.2)
    assert rig.running(*tickets) == tickets[:1]
    assert rig.news() == {("granted", tickets[0].id)}
    assert rig.waits(rig.ask(MODEL))
    rig.wait(3600)
    assert rig.running(*tickets) == tickets[:1]


@pytest.mark.parametrize("how", ["answered", "released"])
def test_the_rest_follows_when_the_first_was_answered(rig: Rig, how: str) -> None:
    """Or when it is over, for who says nothing of answers."""
    rig.cool(PROVIDER, 20)
    tickets = [rig.ask(MODEL) for _ in range(4)]
    rig.wait(20)
    rig.news()
    if how == "answered":
        rig.answer(tickets[0])
    else:
        rig.release(tickets[0])
    assert rig.running(*tickets)[-3:] == tickets[1:]
    assert rig.news() == {("granted", ticket.id) for ticket in tickets[1:]}
    assert rig.runs(rig.ask(MODEL))
    assert rig.state(PROVIDER).cooldown is None


@pytest.mark.parametrize("how", ["revoked", "died", "stood back"])
def test_a_probe_that_was_not_answered_proves_nothing(rig: Rig, how: str) -> None:
    """The next one tries, alone again."""
    if how == "died" and not rig.house.mortal:
        pytest.skip("nobody dies in a memory store")
    rig.cool(PROVIDER, 20)
    tickets = [rig.ask(MODEL, by=number % 3) for number in (2, 0, 1)]
    rig.wait(20)
    assert rig.running(*tickets) == tickets[:1]
    if how == "revoked":
        rig.revoke(tickets[0])
    elif how == "stood back":
        rig.stand_back(tickets[0])
        assert rig.running(*tickets) == tickets[:2]
        rig.release(tickets[0])
    else:
        rig.kill(2)
        rig.store.census()
    assert rig.running(*tickets) == tickets[1:2]
    assert rig.waits(tickets[2])


def test_who_comes_after_the_end_is_let_in_without_anyone_tending(rig: Rig) -> None:
    """Nobody waited, so nobody watched the clock."""
    rig.cool(PROVIDER, 20)
    rig.clock.move(20)
    first, second = rig.ask(MODEL), rig.ask(MODEL)
    assert rig.runs(first)
    assert rig.waits(second)
    rig.answer(first)
    assert rig.runs(second)


def test_a_probe_that_leaves_the_line_makes_way(rig: Rig) -> None:
    """It had passed the key and waited for room further up."""
    rig.limits({"llm": 1})
    holder = rig.ask("llm")
    rig.cool(PROVIDER, 20)
    first, second = rig.ask(MODEL), rig.ask(MODEL)
    rig.wait(20)
    assert (rig.at(first), rig.at(second)) == ("llm", PROVIDER)
    rig.withdraw(first)
    assert rig.at(second) == "llm"
    rig.release(holder)
    assert rig.runs(second)


def test_who_has_passed_the_key_is_called_back(rig: Rig) -> None:
    """It waits at an ancestor and must not slip in when that gets room."""
    rig.limits({"llm": 1})
    holder = rig.ask("llm")
    early = rig.ask(MODEL)
    assert rig.at(early) == "llm"
    rig.cool(MODEL)
    assert rig.at(early) == MODEL
    rig.release(holder)
    assert rig.waits(early)
    assert rig.runs(rig.ask("llm/anthropic"))


def test_the_longer_wish_counts(rig: Rig) -> None:
    """Many requests are refused at once; their cool-downs do not add up."""
    assert rig.cool(PROVIDER, 20) == pytest.approx(20)
    assert rig.cool(PROVIDER, 5) == pytest.approx(20)
    assert rig.cool(PROVIDER, 30) == pytest.approx(30)
    rig.clock.move(10)
    assert rig.cool(PROVIDER, 5) == pytest.approx(20)


def test_without_advice_it_doubles_with_every_probe_that_fails(rig: Rig) -> None:
    """One second at first, a minute at most, and one again after an answer."""
    lengths = []
    for _ in range(8):
        lengths.append(round(rig.cool(PROVIDER, None)))
        assert rig.cool(PROVIDER, None) == pytest.approx(lengths[-1])  # those sent with it
        rig.wait(lengths[-1])
        probe = rig.ask(MODEL)
        assert rig.runs(probe)
        rig.revoke(probe)
    assert lengths == [1, 2, 4, 8, 16, 32, 60, 60]
    rig.warm(PROVIDER)
    assert rig.cool(PROVIDER, None) == pytest.approx(1)


@pytest.mark.parametrize(("seconds", "most"), [(20, 22), (0.1, 0.11), (1000, 1005)])
def test_jitter_makes_it_a_little_longer_and_never_shorter(
    rig: Rig, seconds: float, most: float
) -> None:
    """So that programs on many machines do not come back at the same moment."""
    assert rig.cool("llm/a", seconds, jitter=0.0) == pytest.approx(seconds)
    assert rig.cool("llm/b", seconds, jitter=1.0) == pytest.approx(most)
    assert seconds < rig.cool("llm/c", seconds, jitter=0.5) < most


def test_who_would_wait_too_long_is_sent_away(rig: Rig) -> None:
    """Those who wait already, those who come, and those who wait for another key as well."""
    rig.limits({MODEL: 1})
    rig.ask(MODEL)
    waiting = [rig.ask(MODEL), rig.ask(PROVIDER, MODEL)]
    elsewhere = rig.ask("llm/anthropic")
    rig.cool(PROVIDER, MAX_COOLING_SECONDS + 1)
    assert rig.gone(*waiting)
    assert {("refused", ticket.id) for ticket in waiting} <= rig.news()
    assert rig.refusal(rig.ask(MODEL)) == ("cooling", PROVIDER)
    assert rig.runs(elsewhere)
    rig.wait(2)
    assert rig.waits(rig.ask(MODEL))


def test_a_job_stays_in_line_however_long_it_takes(rig: Rig) -> None:
    """Its ticket has the job's name."""
    first = rig.ask(MODEL, name="job7")
    rig.release(first)
    rig.cool(PROVIDER, MAX_COOLING_SECONDS * 3)
    job = rig.ask(MODEL, name="job8")
    assert rig.waits(job)
    rig.cool(PROVIDER, MAX_COOLING_SECONDS * 4)
    assert rig.waits(job)
    rig.wait(MAX_COOLING_SECONDS * 4)
    assert rig.runs(job)


def test_who_will_not_wait_is_told_why(rig: Rig) -> None:
    """Not that it was full."""
    rig.cool(PROVIDER)
    assert rig.refusal(rig.ask(MODEL, wait=False)) == ("cooling", PROVIDER)


def test_a_person_ends_it_before_its_time(rig: Rig) -> None:
    """Everyone goes on at once; there is nothing to try."""
    rig.cool(PROVIDER, MAX_COOLING_SECONDS)
    tickets = [rig.ask(MODEL) for _ in range(3)]
    assert rig.warm(PROVIDER)
    assert rig.runs(*tickets)
    assert not rig.warm(PROVIDER)


def test_a_child_on_its_parents_slot_waits_as_well(rig: Rig) -> None:
    """It needs no room, but the provider wants to be left alone by everyone."""
    rig.limits({PROVIDER: 1})
    parent = rig.ask(PROVIDER)
    stranger = rig.ask(MODEL)
    rig.cool(PROVIDER, 20)
    child = rig.ask(MODEL, parent=parent)
    assert rig.waits(child)
    rig.wait(20)
    assert rig.runs(child)
    assert rig.waits(stranger)
    rig.release(child)
    rig.release(parent)
    assert rig.runs(stranger)


def test_a_child_is_called_back_from_further_up_and_keeps_its_claim(rig: Rig) -> None:
    """It had gone ahead on its parent's slot and waits for room at a later key."""
    rig.limits({PROVIDER: 1, "llm/xai": 1})
    parent, other = rig.ask(PROVIDER), rig.ask("llm/xai")
    child = rig.ask(MODEL, "llm/xai", parent=parent)
    assert rig.at(child) == "llm/xai"
    rig.cool(PROVIDER, 20)
    assert rig.at(child) == PROVIDER
    rig.release(other)
    assert rig.waits(child)
    rig.wait(20)
    assert rig.runs(child)
    assert rig.state(PROVIDER).used == 1


def test_a_cool_down_from_before_a_restart_is_over(rig: Rig) -> None:
    """The clock of another start of the machine says nothing now."""
    rig.cool(PROVIDER, 600)
    rig.restart(uptime_seconds=100)
    assert rig.runs(rig.ask(MODEL))


def test_the_picture_has_the_time_that_is_left(rig: Rig) -> None:
    """And the reason, for as long as it cools."""
    rig.cool(PROVIDER, 20)
    rig.clock.move(5)
    state = rig.state(PROVIDER)
    assert state.cooling_seconds == pytest.approx(15)
    assert state.obstacle() == "cooling"
    rig.clock.move(16)
    assert rig.state(PROVIDER).cooling_seconds is None
    assert rig.state(PROVIDER).admits(1), "whoever looks before asking would never ask"


def test_a_part_of_the_probe_goes_on_with_it(rig: Rig) -> None:
    """A command has the slot, and asks from inside of it: it would wait for itself otherwise."""
    rig.cool(PROVIDER, 20)
    rig.wait(20)
    probe = rig.ask(PROVIDER)
    other = rig.ask(MODEL)
    child = rig.ask(MODEL, parent=probe)
    assert rig.runs(probe, child)
    assert rig.waits(other, rig.ask(MODEL, parent=probe))
    rig.answer(child)
    assert rig.runs(other)


def test_a_part_of_the_probe_may_wait_for_something_else(rig: Rig) -> None:
    """That is no wait for itself."""
    rig.limits({"llm/anthropic": 1})
    rig.cool(PROVIDER, 20)
    rig.wait(20)
    probe, other = rig.ask(PROVIDER), rig.ask("llm/anthropic")
    child = rig.ask(MODEL, "llm/anthropic", parent=probe)
    assert rig.at(child) == "llm/anthropic"
    rig.release(other)
    assert rig.runs(child)


@pytest.mark.parametrize("wait", [True, False])
def test_a_part_that_was_not_let_in_leaves_the_probe_what_it_is(rig: Rig, wait: bool) -> None:  # noqa: FBT001
    """It met a full key further on, and is gone; the others still wait for the probe."""
    rig.limits({"llm/xai": 1})
    rig.cool(PROVIDER, 20)
    rig.wait(20)
    probe, _ = rig.ask(PROVIDER), rig.ask("llm/xai")
    other = rig.ask(MODEL)
    child = rig.ask(MODEL, "llm/xai", parent=probe, wait=wait)
    rig.withdraw(child)
    assert rig.waits(other)
    rig.answer(probe)
    assert rig.runs(other)


def test_the_answer_to_a_probe_counts_whatever_its_parts_wait_for(rig: Rig) -> None:
    """The provider may be asked, and one of its own waits for another."""
    rig.limits({"llm/xai": 1})
    rig.cool(PROVIDER, 20)
    rig.wait(20)
    probe, _ = rig.ask(PROVIDER), rig.ask("llm/xai")
    other, child = rig.ask(MODEL), rig.ask(MODEL, "llm/xai", parent=probe)
    rig.answer(probe)
    assert rig.runs(other)
    assert rig.at(child) == "llm/xai"


def test_a_part_goes_on_as_the_probe_when_that_is_taken_back(rig: Rig) -> None:
    """It has passed the key already: nobody else tries at the same time."""
    rig.limits({"llm/xai": 1})
    rig.cool(PROVIDER, 20)
    rig.wait(20)
    probe, full = rig.ask(PROVIDER), rig.ask("llm/xai")
    other, child = rig.ask(MODEL), rig.ask(MODEL, "llm/xai", parent=probe)
    rig.revoke(probe)
    assert rig.waits(other, child)
    rig.release(full)
    assert rig.runs(child)
    assert rig.waits(other)
    rig.release(child)
    assert rig.runs(other)


def test_a_part_of_the_probe_waits_for_the_budget_only(rig: Rig) -> None:
    """The probe has spent it, and would wait for its part for ever."""
    rig.limits({PROVIDER: {"requests_per_minute": 1}})
    rig.cool(PROVIDER, 20)
    rig.wait(20)
    probe = rig.ask(PROVIDER)
    other, child = rig.ask(MODEL), rig.ask(MODEL, parent=probe)
    assert rig.waits(other, child)
    rig.wait(WINDOW_SECONDS)
    assert rig.runs(child)
    assert rig.waits(other)


def test_a_wait_for_ones_own_probe_is_refused(rig: Rig) -> None:
    """Nothing is lent inside of a process."""
    rig.cool(PROVIDER, 20)
    rig.wait(20)
    probe = rig.ask(PROVIDER)
    assert rig.refusal(rig.ask(MODEL, within=(probe,))) == ("deadlock", PROVIDER)


@pytest.mark.parametrize("seconds", [20, 0])
def test_a_jobs_supervisor_takes_over_whatever_the_provider_says(rig: Rig, seconds: int) -> None:
    """The worker was let in; that its slot changes hands is no other request."""
    _needs_two_processes(rig)
    rig.limits({PROVIDER: {"slots": 1, "requests_per_minute": 1}})
    worker = rig.ask(MODEL, name="job7", by=0)
    if seconds:
        rig.cool(PROVIDER, seconds)
    supervisor = rig.ask(MODEL, name="job7", by=1, parent=worker, wait=False)
    assert rig.runs(supervisor)
    assert rig.state(PROVIDER).spent == 1
    rig.release(worker)
    assert rig.state(PROVIDER).used == 1


def test_the_probe_is_handed_over_with_the_job(rig: Rig) -> None:
    """The worker's end proves nothing; the job's does."""
    _needs_two_processes(rig)
    rig.cool(PROVIDER, 20)
    worker = rig.ask(MODEL, name="job7", by=0)
    behind = rig.ask(MODEL, by=2)
    rig.wait(20)
    supervisor = rig.ask(MODEL, name="job7", by=1, parent=worker, wait=False)
    rig.hand_over(worker, supervisor)
    assert rig.waits(behind)
    rig.release(supervisor)
    assert rig.runs(behind)


def _needs_two_processes(rig: Rig) -> None:
    if not rig.house.mortal:
        pytest.skip("there is one holder only")


def test_a_lone_probe_that_is_released_opens_the_key(rig: Rig) -> None:
    """Nobody waited, before or meanwhile."""
    rig.release(rig.ask(MODEL))
    rig.cool(PROVIDER, 20)
    rig.clock.move(20)
    rig.release(rig.ask(MODEL))
    assert rig.state(PROVIDER).cooldown is None
    assert rig.runs(rig.ask(MODEL), rig.ask(MODEL))

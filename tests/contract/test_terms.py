"""Rule 12, and what rules 1 and 4 say about changes: limits are live, a pause stops admission."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headway.limits import CODE, FILE, Line, Terms
from headway.tickets import Refused

if TYPE_CHECKING:
    from tests.contract.rig import Rig


def test_raising_a_limit_lets_waiters_in_at_once(rig: Rig) -> None:
    """As many start as the new limit has room for, in order, and they are told."""
    rig.limit(llm=1)
    tickets = [rig.ask("llm") for _ in range(4)]
    rig.limit(llm=3)
    assert rig.running(*tickets) == tickets[:3]
    assert rig.news() == {("granted", ticket.id) for ticket in tickets[1:3]}


def test_lifting_a_limit_lets_everyone_in(rig: Rig) -> None:
    """``unlimited`` is a limit that everyone fits under."""
    rig.limit(llm=1)
    tickets = [rig.ask("llm/openai") for _ in range(6)]
    rig.unlimit("llm")
    assert rig.runs(*tickets)


def test_lowering_a_limit_drains(rig: Rig) -> None:
    """Running work goes on, and nothing starts until the leases weigh less than the limit."""
    rig.limit(llm=3)
    running = [rig.ask("llm") for _ in range(3)]
    waiting = rig.ask("llm")
    rig.limit(llm=1)
    assert rig.runs(*running)
    assert rig.state("llm").used == 3
    for ticket in running[:2]:
        rig.release(ticket)
        assert rig.waits(waiting)
        assert rig.waits(rig.ask("llm", priority=-1))
    rig.release(running[2])
    assert rig.runs(waiting)
    assert rig.state("llm").used == 1


def test_nobody_watches_the_clock_for_a_pause(rig: Rig) -> None:
    """No time ends it: a person does."""
    rig.pause("llm")
    assert rig.waits(rig.ask("llm"))
    assert rig.store.due_seconds() is None


def test_a_drained_key_refuses_who_will_not_wait(rig: Rig) -> None:
    """While a key is over its lowered limit, nobody slips in."""
    rig.limit(llm=2)
    rig.ask("llm")
    rig.ask("llm")
    rig.limit(llm=1)
    assert rig.refusal(rig.ask("llm", wait=False)) == ("full", "llm")


def test_a_reservation_from_before_is_worth_nothing_under_a_lower_limit(rig: Rig) -> None:
    """A ticket that had passed the key asks for it again when its limit falls."""
    rig.limit(a=2, b=1)
    on_a, on_b = rig.ask("a"), rig.ask("b")
    both = rig.ask("a", "b")
    assert (rig.at(both), rig.state("a").reserved) == ("b", 1)
    rig.limit(a=1)
    assert (rig.at(both), rig.state("a").reserved) == ("a", 0)
    rig.release(on_b)
    assert rig.waits(both)
    rig.release(on_a)
    assert rig.runs(both)


def test_who_is_sent_back_gives_up_what_came_after(rig: Rig) -> None:
    """Reservations on later keys go to others when a ticket has to ask again for an early one."""
    rig.limits({"a": 2, "b": 1, "c": 1})
    rig.ask("a")
    rig.ask("c")
    collected = rig.ask("a", "b", "c")
    behind = rig.ask("b")
    assert rig.at(collected) == "c"
    assert rig.at(behind) == "b"
    rig.limit(a=1)
    assert rig.at(collected) == "a"
    assert rig.runs(behind)


def test_who_is_sent_back_keeps_its_rank(rig: Rig) -> None:
    """A ticket that must ask again stands where its age puts it, before younger ones."""
    rig.limits({"a": 2, "b": 1})
    on_a, on_b = rig.ask("a"), rig.ask("b")
    older = rig.ask("a", "b")
    younger = rig.ask("a")
    rig.limit(a=1)
    assert rig.look().order == [older.id, younger.id]
    rig.release(on_b)
    rig.release(on_a)
    assert rig.running(older, younger) == [older]


def test_a_new_limit_on_a_key_already_passed_is_asked_for(rig: Rig) -> None:
    """A key that had no limit when a ticket passed it is collected once it has one."""
    rig.limit(b=1)
    on_a, on_b = rig.ask("a"), rig.ask("b")
    both = rig.ask("a", "b")
    rig.limit(a=1)
    assert rig.at(both) == "a"
    rig.release(on_b)
    assert rig.waits(both)
    rig.release(on_a)
    assert rig.runs(both)


def test_a_new_limit_with_room_is_collected_at_once(rig: Rig) -> None:
    """A ticket that finds room on a newly limited key is back where it was."""
    rig.limit(b=1)
    rig.ask("b")
    both = rig.ask("a", "b")
    rig.limit(a=1)
    assert (rig.at(both), rig.state("a").reserved) == ("b", 1)
    assert rig.news() == set()


def test_lowering_a_limit_below_a_waiting_ticket_refuses_it(rig: Rig) -> None:
    """Who can no longer ever fit is told, and those behind move up."""
    rig.limit(llm=3)
    rig.ask("llm")
    heavy, light = rig.ask("llm", weight=3), rig.ask("llm")
    rig.limit(llm=2)
    assert rig.gone(heavy)
    assert rig.runs(light)
    decisions = dict(rig.decisions())
    refused = decisions["refused"]
    assert isinstance(refused, Refused)
    assert (refused.ticket_id, refused.reason, refused.key) == (heavy.id, "too_heavy", "llm")
    assert decisions["granted"].ticket_id == light.id


def test_lowering_a_key_further_along_refuses_too(rig: Rig) -> None:
    """A ticket is refused for a key that it has not come to yet, and returns what it had."""
    rig.limits({"a": 2, "b": 1, "c": 2})
    rig.ask("b")
    heavy, behind = rig.ask("a", "c", weight=2), rig.ask("a")
    waiting = rig.ask("c", weight=2)
    assert rig.runs(heavy)
    assert rig.waits(behind, waiting)
    at_a = rig.ask("a", "c", weight=2)
    rig.limit(c=1)
    assert rig.gone(at_a, waiting)
    assert rig.runs(heavy)


def test_a_heavy_lease_outlives_a_lower_limit(rig: Rig) -> None:
    """What runs is never refused."""
    rig.limit(llm=3)
    heavy = rig.ask("llm", weight=3)
    rig.limit(llm=1)
    assert rig.runs(heavy)
    assert rig.release(heavy)


def test_a_template_is_live_too(rig: Rig) -> None:
    """A template raises and lowers every key it speaks of."""
    rig.limits({"llm/*": 1})
    tickets = [rig.ask(key) for key in ("llm/a", "llm/b", "llm/a", "llm/b", "llm/a", "llm/b")]
    rig.limits({"llm/*": 2})
    assert rig.running(*tickets) == tickets[:4]
    rig.limits({"llm/*": 1})
    rig.release(tickets[0])
    assert rig.waits(*tickets[4:])


def test_terms_that_change_together_are_true_together(rig: Rig) -> None:
    """A key that is raised lets nobody in under the old limit of one that is lowered with it."""
    rig.limit(a=1, b=2)
    rig.ask("a", "b")
    waiting = rig.ask("a", "b")
    rig.limit(a=2, b=1)
    assert rig.at(waiting) == "b"
    assert rig.state("b").used == 1


def test_a_limit_raised_with_a_pause_lets_nobody_in(rig: Rig) -> None:
    """Nobody passes a key that is paused by the same change that made room before it."""
    rig.limit(a=1)
    rig.ask("a", "b")
    waiting = rig.ask("a", "b")
    terms = rig.store.terms()
    rig.set_terms(terms.with_lines([Line("a", 2, CODE)]).with_paused(["b"]))
    assert rig.at(waiting) == "b"


def test_a_pause_stops_admission_and_not_work(rig: Rig) -> None:
    """Nothing starts on a paused key, however much room there is; what runs goes on."""
    rig.limit(llm=3)
    running = rig.ask("llm", by=0)
    rig.pause("llm")
    late = rig.ask("llm", by=0)
    assert rig.runs(running)
    assert rig.at(late) == "llm"
    assert rig.release(running)
    assert rig.waits(late)
    assert rig.refusal(rig.ask("llm", wait=False)) == ("paused", "llm")
    rig.resume("llm")
    assert rig.runs(late)
    assert rig.news() == {("granted", late.id)}


def test_a_pause_holds_back_a_line_that_was_there_before(rig: Rig) -> None:
    """A slot that is freed on a paused key stays free, though somebody waits for just that."""
    rig.limit(llm=1)
    running, waiting = rig.ask("llm", by=0), rig.ask("llm", by=0)
    rig.pause("llm")
    rig.release(running)
    assert rig.waits(waiting)
    rig.resume("llm")
    assert rig.runs(waiting)


@pytest.mark.parametrize("slots", [None, 5])
def test_a_pause_needs_no_limit(rig: Rig, slots: int | None) -> None:
    """A key with and without a limit can be paused, with all its descendants."""
    rig.limits({"llm": slots})
    rig.pause("llm")
    below, beside = rig.ask("llm/openai"), rig.ask("other")
    assert rig.at(below) == "llm"
    assert rig.runs(beside)
    rig.resume("llm")
    assert rig.runs(below)


def test_a_pause_holds_for_keys_nobody_asked_for_before(rig: Rig) -> None:
    """A key may be paused before its first use."""
    rig.pause("llm/new")
    assert rig.state("llm/new").paused
    assert rig.at(rig.ask("llm/new")) == "llm/new"


def test_a_paused_key_is_waited_at_before_a_full_one(rig: Rig) -> None:
    """A pause stops a ticket in its turn, though the key has no limit and a later one is full."""
    rig.limits({"y": 1})
    running = rig.ask("y", by=0)
    rig.pause("x/a")
    ticket = rig.ask("x/a", "y", by=0)
    assert rig.at(ticket) == "x/a"
    rig.release(running)
    assert rig.waits(ticket)
    rig.resume("x/a")
    assert rig.runs(ticket)


@pytest.mark.parametrize("limited", [True, False])
def test_a_pause_also_stops_who_had_already_passed(rig: Rig, limited: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A ticket that waits further along does not start while a key behind it is paused."""
    rig.limits({"a": 2 if limited else None, "b": 1})
    on_b = rig.ask("b")
    both = rig.ask("a", "b")
    rig.pause("a")
    assert rig.at(both) == "a"
    assert rig.state("a").reserved == 0
    rig.release(on_b)
    assert rig.waits(both)
    rig.resume("a")
    assert rig.runs(both)


def test_a_resumed_key_serves_its_line_in_order(rig: Rig) -> None:
    """After a pause those start who come first, up to the limit."""
    rig.limit(llm=2)
    rig.pause("llm")
    tickets = [rig.ask("llm") for _ in range(3)]
    urgent = rig.ask("llm", priority=1)
    rig.resume("llm")
    assert rig.running(*tickets, urgent) == [tickets[0], urgent]


def test_terms_change_only_from_what_was_expected(rig: Rig) -> None:
    """Who read older terms changes nothing, and its companion deed is not done."""
    rig.limit(llm=1)
    done: list[str] = []
    wrong = rig.store.set_terms(
        Terms([Line("llm", 9, CODE)]), expected=Terms(), also=lambda: done.append("wrong")
    )
    assert (wrong, done) == (False, [])
    assert rig.state("llm").cap == 1
    right = rig.store.set_terms(
        Terms([Line("llm", 9, CODE)]),
        expected=rig.holders[-1].terms(),
        also=lambda: done.append("right"),
    )
    assert (right, done) == (True, ["right"])
    assert rig.state("llm").cap == 9


def test_all_holders_see_the_same_terms(rig: Rig) -> None:
    """What one holder set is in force for every other, with its sources."""
    rig.set_terms(Terms([Line("llm", 2, FILE), Line("x/*", 1, CODE)], paused=["x"]))
    for store in rig.holders:
        assert store.terms() == Terms([Line("llm", 2, FILE), Line("x/*", 1, CODE)], paused=["x"])


def test_a_change_that_fails_with_its_companion_deed_is_not_made(rig: Rig) -> None:
    """When the settings file cannot be written, the store keeps the old terms."""
    rig.limit(llm=1)
    running, waiting = rig.ask("llm"), rig.ask("llm")

    def fail() -> None:
        raise OSError("the disk is full")

    before = rig.store.terms()
    with pytest.raises(Exception, match="the disk is full"):
        rig.store.set_terms(Terms([Line("llm", 5, CODE)]), expected=before, also=fail)
    assert rig.store.terms() == before
    assert rig.runs(running)
    assert rig.waits(waiting)
    assert rig.news() == set()

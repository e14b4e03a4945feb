"""A budget of requests a minute: charged on admission, in a window that slides along."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headway.stores.book import WINDOW_SECONDS

if TYPE_CHECKING:
    from tests.contract.rig import Rig

MODEL, PROVIDER = "llm/openai/gpt", "llm/openai"


def test_so_many_are_let_in_in_a_minute(rig: Rig) -> None:
    """Also when they end at once: it is not about how many run."""
    rig.limits({PROVIDER: {"requests_per_minute": 3}})
    for _ in range(3):
        rig.release(rig.ask(MODEL))
    fourth = rig.ask(MODEL)
    assert rig.waits(fourth)
    assert rig.state(PROVIDER).obstacle() == "budget"
    rig.wait(WINDOW_SECONDS - 0.1)
    assert rig.waits(fourth)
    rig.wait(0.2)
    assert rig.runs(fourth)
    assert rig.news() >= {("granted", fourth.id)}


def test_the_window_slides(rig: Rig) -> None:
    """Each request counts for a minute of its own; there is no full minute to wait for."""
    rig.limits({PROVIDER: {"requests_per_minute": 2}})
    rig.ask(MODEL)
    rig.wait(40)
    rig.ask(MODEL)
    third, fourth = rig.ask(MODEL), rig.ask(MODEL)
    rig.wait(WINDOW_SECONDS - 40)
    assert rig.runs(third)
    assert rig.waits(fourth)
    rig.wait(40)
    assert rig.runs(fourth)


def test_ancestors_count(rig: Rig) -> None:
    """A model's requests are its provider's, and those of all providers together."""
    rig.limits({"llm": {"requests_per_minute": 3}, PROVIDER: {"requests_per_minute": 2}})
    assert rig.runs(rig.ask(MODEL), rig.ask(PROVIDER))
    blocked = rig.ask("llm/openai/other")
    assert rig.at(blocked) == PROVIDER
    assert rig.runs(rig.ask("llm/anthropic"))
    assert rig.at(rig.ask("llm/anthropic")) == "llm"


def test_who_waits_or_is_refused_has_spent_nothing(rig: Rig) -> None:
    """Refused by one limit, nobody has spent another."""
    rig.limits({PROVIDER: 1, "llm": {"requests_per_minute": 3}, MODEL: {"requests_per_minute": 9}})
    holder = rig.ask(MODEL)
    waiting = rig.ask(MODEL)
    assert rig.refusal(rig.ask(MODEL, wait=False)) == ("full", PROVIDER)
    assert rig.state("llm").spent == rig.state(MODEL).spent == 1
    rig.withdraw(waiting)
    assert rig.state("llm").spent == rig.state(MODEL).spent == 1
    assert rig.state(MODEL).promised == 0
    rig.release(holder)
    rig.release(rig.ask(MODEL))
    rig.release(rig.ask(MODEL))
    assert rig.refusal(rig.ask(MODEL, wait=False)) == ("budget", "llm")
    assert rig.state(MODEL).spent == 3


def test_what_is_promised_is_not_given_twice(rig: Rig) -> None:
    """A ticket that has passed the budget and waits for room further up keeps its request."""
    rig.limits({MODEL: {"requests_per_minute": 2}, "llm": 1})
    holder = rig.ask("llm")
    first, second, third = rig.ask(MODEL), rig.ask(MODEL), rig.ask(MODEL)
    assert [rig.at(ticket) for ticket in (first, second, third)] == ["llm", "llm", MODEL]
    rig.wait(2 * WINDOW_SECONDS)
    assert rig.at(third) == MODEL
    rig.release(holder)
    rig.release(first)
    rig.release(second)
    assert rig.waits(third)
    rig.wait(WINDOW_SECONDS + 1)
    assert rig.runs(third)


def test_one_request_whatever_its_weight(rig: Rig) -> None:
    """Weight is of slots."""
    rig.limits({PROVIDER: {"slots": 9, "requests_per_minute": 2}})
    assert rig.runs(rig.ask(MODEL, weight=4), rig.ask(MODEL, weight=4))
    assert rig.state(PROVIDER).spent == 2


def test_waiting_is_in_the_one_order(rig: Rig) -> None:
    """By rank, as for slots."""
    rig.limits({PROVIDER: {"requests_per_minute": 1}})
    rig.ask(MODEL)
    late, early = rig.ask(MODEL, priority=-1), rig.ask(MODEL, priority=1)
    rig.wait(WINDOW_SECONDS)
    assert rig.runs(early)
    assert rig.waits(late)
    rig.wait(WINDOW_SECONDS)
    assert rig.runs(late)


def test_a_child_spends_a_request_on_its_parents_slot(rig: Rig) -> None:
    """It goes ahead without room, and is still a request; nobody in line for room stops it."""
    rig.limits({PROVIDER: {"slots": 1, "requests_per_minute": 2}})
    parent = rig.ask(PROVIDER)
    stranger = rig.ask(MODEL)
    first = rig.ask(MODEL, parent=parent)
    assert rig.runs(first)
    assert rig.state(PROVIDER).spent == 2
    rig.release(first)
    second = rig.ask(MODEL, parent=parent)
    assert rig.waits(second)
    rig.wait(WINDOW_SECONDS)
    assert rig.runs(second)
    assert rig.waits(stranger)
    rig.release(second)
    rig.release(parent)
    assert rig.runs(stranger)


def test_a_child_whose_parent_ends_while_it_waits_for_the_budget(rig: Rig) -> None:
    """From then on it waits for room as well."""
    rig.limits({PROVIDER: {"slots": 1, "requests_per_minute": 1}})
    parent = rig.ask(PROVIDER)
    child = rig.ask(MODEL, parent=parent)
    assert rig.waits(child)
    rig.release(parent)
    assert rig.waits(child)
    rig.wait(WINDOW_SECONDS)
    assert rig.runs(child)
    assert rig.state(PROVIDER).used == 1


@pytest.mark.parametrize("limit", [{"slots": 1}, {"slots": 1, "requests_per_minute": 2}])
def test_a_child_goes_on_when_the_budget_is_lifted(rig: Rig, limit: dict[str, int]) -> None:
    """Though there is no room: it needs none."""
    rig.limits({PROVIDER: {"slots": 1, "requests_per_minute": 1}})
    parent = rig.ask(PROVIDER)
    stranger, child = rig.ask(MODEL), rig.ask(MODEL, parent=parent)
    assert rig.waits(stranger, child)
    rig.limits({PROVIDER: limit})
    assert rig.runs(child)
    assert rig.waits(stranger)


def test_a_smaller_budget_calls_back_whom_it_does_not_cover(rig: Rig) -> None:
    """They had passed the key under the old one."""
    rig.limits({MODEL: {"requests_per_minute": 5}, "llm": 1})
    holder = rig.ask("llm")
    tickets = [rig.ask(MODEL) for _ in range(3)]
    assert {rig.at(ticket) for ticket in tickets} == {"llm"}
    rig.limits({MODEL: {"requests_per_minute": 1}})
    assert [rig.at(ticket) for ticket in tickets] == ["llm", MODEL, MODEL]
    rig.release(holder)
    rig.release(tickets[0])
    assert rig.waits(*tickets[1:])


@pytest.mark.parametrize("limit", [{"requests_per_minute": 9}, {"slots": 3}, None])
def test_a_larger_budget_lets_in_at_once(rig: Rig, limit: dict[str, int] | None) -> None:
    """And so does one that is taken away."""
    rig.limits({PROVIDER: {"requests_per_minute": 1}})
    first, second = rig.ask(MODEL), rig.ask(MODEL)
    rig.limits({PROVIDER: limit})
    assert rig.runs(first, second)


def test_a_budget_counts_from_the_moment_it_is_set(rig: Rig) -> None:
    """Nothing is kept of requests before."""
    for _ in range(5):
        rig.release(rig.ask(MODEL))
    rig.limits({PROVIDER: {"requests_per_minute": 1}})
    assert rig.runs(rig.ask(MODEL))
    assert rig.waits(rig.ask(MODEL))


def test_each_part_of_a_limit_is_decided_by_the_line_that_has_it(rig: Rig) -> None:
    """A line without slots leaves those to the pattern."""
    rig.limits({"llm/*": 1, PROVIDER: {"requests_per_minute": 2}})
    first, second = rig.ask(PROVIDER), rig.ask(PROVIDER)
    assert rig.runs(first)
    assert rig.waits(second)
    assert rig.state(PROVIDER).obstacle() == "full"


def test_requests_from_before_a_restart_do_not_count(rig: Rig) -> None:
    """The clock of another start of the machine says nothing now."""
    if not rig.house.mortal:
        pytest.skip("a memory store ends with the machine")
    rig.limits({PROVIDER: {"requests_per_minute": 1}})
    rig.release(rig.ask(MODEL))
    rig.restart(uptime_seconds=100)
    assert rig.store.survey([PROVIDER])[0].spent == 0
    assert rig.runs(rig.ask(MODEL, by=0))

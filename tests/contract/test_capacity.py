"""Rules 1, 2 and 3: never over, ancestors count, identity does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headway.limits import UNCAPPED

if TYPE_CHECKING:
    from tests.contract.rig import Rig


def test_a_limit_of_n_lets_n_run(rig: Rig) -> None:
    """As many tickets run as there are slots, and the next one waits."""
    rig.limit(llm=3)
    tickets = [rig.ask("llm") for _ in range(5)]
    assert rig.running(*tickets) == tickets[:3]
    assert rig.waits(*tickets[3:])
    assert rig.state("llm").used == 3
    assert rig.state("llm").waiting == 2


def test_weights_add_up_to_the_limit_and_not_beyond(rig: Rig) -> None:
    """A ticket takes as many slots as it weighs."""
    rig.limit(llm=5)
    heavy, light, waiting = (rig.ask("llm", weight=weight) for weight in (3, 2, 1))
    assert rig.runs(heavy, light)
    assert rig.waits(waiting)
    assert rig.state("llm").used == 5


def test_a_release_brings_the_count_back_to_nothing(rig: Rig) -> None:
    """When all leases are gone, nothing is used, reserved or waited for on any of their keys."""
    rig.limit(llm=2)
    tickets = [rig.ask("llm/openai/gpt", weight=2) for _ in range(4)]
    for ticket in tickets:
        assert rig.release(ticket)
    for key in ("llm", "llm/openai", "llm/openai/gpt"):
        state = rig.state(key)
        assert (state.used, state.reserved, state.waiting) == (0, 0, 0)


def test_a_lease_counts_on_all_its_ancestors(rig: Rig) -> None:
    """The limit of an ancestor bounds the sum over its descendants."""
    rig.limit(llm=2)
    one, other = rig.ask("llm/anthropic/opus"), rig.ask("llm/openai/gpt")
    third = rig.ask("llm/google")
    assert rig.runs(one, other)
    assert rig.at(third) == "llm"
    assert rig.state("llm").used == 2
    assert rig.state("llm/anthropic").used == 1
    assert rig.state("llm/anthropic/opus").used == 1


def test_every_level_has_to_have_room(rig: Rig) -> None:
    """A ticket needs room on its key and on each ancestor, whichever of them is full."""
    rig.limits({"llm": 3, "llm/anthropic": 2, "llm/anthropic/opus": 1})
    opus = rig.ask("llm/anthropic/opus")
    assert rig.at(rig.ask("llm/anthropic/opus")) == "llm/anthropic/opus"
    sonnet = rig.ask("llm/anthropic/sonnet")
    assert rig.at(rig.ask("llm/anthropic/sonnet")) == "llm/anthropic"
    gpt = rig.ask("llm/openai")
    assert rig.at(rig.ask("llm/openai")) == "llm"
    assert rig.runs(opus, sonnet, gpt)


def test_a_key_named_twice_over_its_ancestor_counts_once(rig: Rig) -> None:
    """A ticket with two keys under one ancestor weighs once there."""
    rig.limit(llm=1)
    ticket = rig.ask("llm/openai", "llm/anthropic", "llm")
    assert rig.runs(ticket)
    assert rig.state("llm").used == 1


@pytest.mark.parametrize("key", ["llm", "llm/openai", "llm/openai/gpt"])
def test_a_limit_that_is_set_later_is_true_at_once(rig: Rig, key: str) -> None:
    """Leases are counted where no limit stands, so a new limit finds them there."""
    early = [rig.ask("llm/openai/gpt") for _ in range(2)]
    rig.limits({key: 2})
    assert rig.state(key).used == 2
    late = rig.ask("llm/openai/gpt")
    assert rig.at(late) == key
    rig.release(early[0])
    assert rig.runs(late)


def test_a_limit_for_a_key_nobody_ever_asked_for_is_shown(rig: Rig) -> None:
    """A survey answers for keys that were never used, with the limit they would have."""
    rig.limits({"llm/*": 4})
    state = rig.state("llm/new")
    assert (state.cap, state.used, state.waiting) == (4, 0, 0)


def test_a_template_limits_each_child_for_itself(rig: Rig) -> None:
    """``llm/*`` gives every child of ``llm`` its own slots, not one pool for all."""
    rig.limits({"llm/*": 1})
    first = [rig.ask("llm/openai"), rig.ask("llm/anthropic")]
    second = [rig.ask("llm/openai"), rig.ask("llm/anthropic")]
    assert rig.runs(*first)
    assert [rig.at(ticket) for ticket in second] == ["llm/openai", "llm/anthropic"]


def test_a_template_says_nothing_about_other_levels(rig: Rig) -> None:
    """``llm/*`` limits neither ``llm`` nor a grandchild itself, though a grandchild counts."""
    rig.limits({"llm/*": 1})
    assert rig.state("llm").cap == UNCAPPED
    assert rig.state("llm/openai/gpt").cap == UNCAPPED
    running = rig.ask("llm/openai/gpt")
    assert rig.at(rig.ask("llm/openai/other")) == "llm/openai"
    assert rig.runs(running)


def test_the_most_specific_line_wins(rig: Rig) -> None:
    """A line of its own beats a template, and of two templates the one exact further left."""
    rig.limits({"llm/*/*": 1, "llm/openai/*": 2, "llm/*/opus": 3})
    assert rig.state("llm/openai/opus").cap == 2
    rig.limits({"llm/openai/opus": 4})
    caps = {
        key: rig.state(key).cap
        for key in ("llm/x/y", "llm/openai/y", "llm/x/opus", "llm/openai/opus")
    }
    assert caps == {"llm/x/y": 1, "llm/openai/y": 2, "llm/x/opus": 3, "llm/openai/opus": 4}


def test_a_line_that_is_taken_away_uncovers_the_template(rig: Rig) -> None:
    """Without its own line a key falls back to the next best one, at once."""
    rig.limits({"llm/*": 2, "llm/openai": 1})
    tickets = [rig.ask("llm/openai") for _ in range(3)]
    assert rig.running(*tickets) == tickets[:1]
    rig.limits({"llm/openai": None})
    assert rig.running(*tickets) == tickets[:2]


def test_a_line_may_take_a_key_out_of_its_template(rig: Rig) -> None:
    """``unlimited`` is a line too: it beats the template for its key."""
    rig.limits({"llm/*": 1, "llm/local": "unlimited"})
    assert rig.runs(*(rig.ask("llm/local") for _ in range(5)))


def test_without_settings_agents_have_three_slots(rig: Rig) -> None:
    """The built-in default bounds ``agent`` and its descendants together."""
    agents = [rig.ask("agent/opencode"), rig.ask("agent/claude"), rig.ask("agent/codex")]
    fourth = rig.ask("agent/gemini")
    assert rig.runs(*agents)
    assert rig.at(fourth) == "agent"


def test_the_default_yields_to_any_line(rig: Rig) -> None:
    """A line for ``agent`` replaces the default, ``unlimited`` included, and unset restores it."""
    rig.limit(agent=1)
    tickets = [rig.ask("agent") for _ in range(5)]
    assert rig.running(*tickets) == tickets[:1]
    rig.unlimit("agent")
    assert rig.runs(*tickets)
    rig.limit(agent=None)
    assert rig.state("agent").cap == 3
    assert rig.waits(rig.ask("agent"))


def test_a_template_over_the_root_beats_the_default(rig: Rig) -> None:
    """``*`` speaks of every root key, ``agent`` among them."""
    rig.limits({"*": 1})
    rig.ask("agent/opencode")
    assert rig.at(rig.ask("agent/opencode")) == "agent"
    rig.ask("llm/openai")
    assert rig.at(rig.ask("llm/openai")) == "llm"


def test_without_a_limit_everything_runs(rig: Rig) -> None:
    """Keys without a line are unlimited."""
    assert rig.runs(*(rig.ask("llm/openai", weight=1_000_000) for _ in range(5)))


def test_unlimited_keys_are_counted_and_shown(rig: Rig) -> None:
    """What runs without a limit is in the census like everything else."""
    rig.ask("llm/openai", weight=2)
    rig.ask("llm/openai")
    census = rig.store.census()
    states = {key: (state.used, state.cap) for key, state in census.states.items()}
    assert states == {"llm": (3, UNCAPPED), "llm/openai": (3, UNCAPPED)}
    assert len(census.leases) == 2


def test_keys_that_look_alike_do_not_count_together(rig: Rig) -> None:
    """Only whole segments make an ancestor: ``llm/open`` is none of ``llm/openai``."""
    rig.limits({"llm/open": 1, "LLM": 1})
    rig.ask("llm/open")
    assert rig.runs(rig.ask("llm/openai"), rig.ask("llm/open2"), rig.ask("llm/OPEN"))
    assert rig.state("llm/open").used == 1
    assert rig.state("LLM").used == 0


@pytest.mark.parametrize("key", ["llm/..", "llm/a b", "llm/ü-1", "llm/50%", "llm/'x'", "a" * 900])
def test_a_key_is_only_a_name(rig: Rig, key: str) -> None:
    """Odd but legal names limit just themselves."""
    rig.limits({key: 1})
    first, second = rig.ask(key), rig.ask(key)
    assert rig.runs(first)
    assert rig.at(second) == key
    rig.release(first)
    assert rig.runs(second)


def test_ten_tasks_on_one_model_peak_at_its_limit(rig: Rig) -> None:
    """Other tasks bring no other slots: a task is a label and never counted."""
    rig.limits({"llm/openai": 2})
    tickets = [rig.ask("llm/openai", task=f"issue-{number}") for number in range(10)]
    finished = []
    while running := rig.running(*tickets):
        assert len(running) <= 2
        rig.release(running[0])
        finished.append(running[0])
    assert finished == tickets


def test_one_task_may_hold_many_slots(rig: Rig) -> None:
    """The same task on every ticket neither joins nor excludes them."""
    rig.limits({"llm/openai": 2})
    tickets = [rig.ask("llm/openai", task="issue-16") for _ in range(3)]
    assert rig.running(*tickets) == tickets[:2]
    assert {lease.task for lease in rig.store.census().leases} == {"issue-16"}


def test_a_census_shows_who_runs_and_who_waits(rig: Rig) -> None:
    """Tickets come out of a census as they went in."""
    rig.limit(llm=2)
    rig.ask("llm/a", "llm/b", task="one", weight=2, priority=7)
    rig.ask("llm/a", task="two", priority=-3)
    census = rig.store.census()
    (lease,), (waiting,) = census.leases, census.waiting
    assert (lease.keys, lease.task, lease.weight, lease.priority) == (
        ("llm/a", "llm/b"), "one", 2, 7,
    )  # fmt: skip
    assert (waiting.keys, waiting.task, waiting.weight, waiting.priority) == (
        ("llm/a",), "two", 1, -3,
    )  # fmt: skip
    assert waiting.at == "llm"
    assert lease.holder in census.holders


@pytest.mark.parametrize("make_rig", ["memory", "sqlite"], indirect=True)
def test_idle_keys_are_forgotten_and_busy_ones_are_not(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many keys come and go, a store remembers few; limits apply to all of them."""
    monkeypatch.setattr(rig.house.many_keys, 20)
    rig.limits({"llm/*": 1})
    busy, waiting = rig.ask("llm/busy", by=0), rig.ask("llm/busy", by=0)
    for number in range(100):
        rig.release(rig.ask(f"llm/{number}", by=0))
    assert len(rig.store.census().states) < 60
    assert rig.state("llm").used == 1
    rig.release(busy)
    assert rig.runs(waiting)
    rig.ask("llm/7")
    assert rig.waits(rig.ask("llm/7"))

"""A book whose counts are gone is made anew from the tickets: nobody waits for its own parent.

A home loses them with its database; a store in memory when Ctrl-C strikes inside of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.contract.rig import Rig

PROVIDER = "llm/openai"


def _lose_the_counts(rig: Rig) -> None:
    rig.house.lose_counts(rig.holders)
    if rig.house.mortal:  # what was spent and what cools is lost with it
        rig.forget()
    rig.look()


def test_a_child_that_waits_further_on_borrows_again(rig: Rig) -> None:
    """On its way to where it was."""
    rig.limits({PROVIDER: 1, "llm/xai": 1})
    parent, other = rig.ask(PROVIDER), rig.ask("llm/xai")
    child = rig.ask(PROVIDER, "llm/xai", parent=parent)
    _lose_the_counts(rig)
    assert rig.at(child) == "llm/xai"
    rig.release(other)
    assert rig.runs(child)


def test_a_child_that_waits_for_a_budget_borrows_again(rig: Rig) -> None:
    """Whether the new book knows what was spent or not."""
    rig.limits({PROVIDER: {"slots": 1, "requests_per_minute": 1}})
    child = rig.ask(PROVIDER, parent=rig.ask(PROVIDER))
    assert rig.at(child) == PROVIDER
    _lose_the_counts(rig)
    rig.wait(62)
    assert rig.runs(child)


def test_a_child_that_waits_for_the_end_of_a_cool_down_borrows_again(rig: Rig) -> None:
    """In front of those who need room."""
    rig.limits({PROVIDER: 1})
    parent, stranger = rig.ask(PROVIDER), rig.ask(PROVIDER)
    rig.cool(PROVIDER, 20)
    child = rig.ask(PROVIDER, parent=parent)
    _lose_the_counts(rig)
    rig.wait(20)
    assert rig.runs(child)
    assert rig.waits(stranger)

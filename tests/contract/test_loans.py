"""Rule 11: a lease is lent to one child at a time, key by key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.contract.rig import Rig


def test_a_child_goes_ahead_on_its_parents_slot(rig: Rig) -> None:
    """What the parent holds is enough for the child, and counts once."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    child = rig.ask("agent", parent=parent)
    assert rig.runs(parent, child)
    assert rig.state("agent").used == 1
    assert rig.store.census().loans == [(parent.id, "agent", child.id)]
    rig.release(child)
    assert rig.state("agent").used == 1
    assert rig.store.census().loans == []


def test_a_loan_goes_key_by_key(rig: Rig) -> None:
    """What the parent does not hold, its child waits for as everyone does."""
    rig.limits({"agent": 1, "llm": 1})
    parent = rig.ask("agent")
    elsewhere = rig.ask("llm")
    child = rig.ask("agent/sub", "llm", parent=parent)
    assert rig.at(child) == "llm"
    assert rig.store.census().loans == [(parent.id, "agent", child.id)]
    assert rig.state("agent/sub").reserved == 0
    rig.release(elsewhere)
    assert rig.runs(child)
    assert (rig.state("llm").used, rig.state("agent").used) == (1, 1)


def test_a_child_that_follows_another_borrows_the_rest(rig: Rig) -> None:
    """A child that gets its first key from a stranger with the same keys takes only that one."""
    rig.limits({"a": 1, "z": 2})
    parent, stranger = rig.ask("z", by=0), rig.ask("a", "z", by=0)
    child = rig.ask("a", "z", by=0, parent=parent)
    assert rig.at(child) == "a"
    rig.release(stranger)
    assert rig.runs(child)
    assert rig.store.census().loans == [(parent.id, "z", child.id)]
    assert rig.state("z").used == 1


def test_a_child_is_ahead_of_those_who_wait(rig: Rig) -> None:
    """A loan needs no turn: it takes nothing from those in line."""
    rig.limit(agent=1)
    parent, stranger = rig.ask("agent"), rig.ask("agent", priority=100)
    assert rig.runs(rig.ask("agent", parent=parent))
    assert rig.waits(stranger)


def test_only_one_child_at_a_time(rig: Rig) -> None:
    """The second child queues, and has the loan when the first brings it back."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    first, second = (rig.ask("agent", parent=parent) for _ in range(2))
    assert rig.running(first, second) == [first]
    rig.release(first)
    assert rig.runs(second)
    assert rig.news() == {("granted", second.id)}
    assert rig.store.census().loans == [(parent.id, "agent", second.id)]


def test_a_second_child_uses_a_free_slot(rig: Rig) -> None:
    """Siblings queue as everyone does, which with room to spare is not at all."""
    rig.limit(agent=2)
    parent = rig.ask("agent")
    first, second, third = (rig.ask("agent", parent=parent) for _ in range(3))
    assert rig.runs(first, second)
    assert rig.state("agent").used == 2
    assert rig.waits(third)


def test_twenty_children_take_turns_in_one_slot(rig: Rig) -> None:
    """However many children a parent has, its slot carries one of them at any time."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    children = [rig.ask("agent", parent=parent) for _ in range(20)]
    for child in children:
        assert rig.running(*children) == [child]
        assert rig.state("agent").used == 1
        rig.release(child)
    assert rig.runs(parent)


def test_a_returned_loan_goes_to_siblings_by_rank(rig: Rig) -> None:
    """Among the children who wait for their parent's slot the best rank is next."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    running = rig.ask("agent", parent=parent)
    later, urgent = rig.ask("agent", parent=parent), rig.ask("agent", parent=parent, priority=5)
    rig.release(running)
    assert rig.running(later, urgent) == [urgent]


def test_a_returned_loan_is_not_for_strangers(rig: Rig) -> None:
    """A slot that comes back from a child is its parent's, not free."""
    rig.limit(agent=1)
    parent, stranger = rig.ask("agent"), rig.ask("agent")
    child = rig.ask("agent", parent=parent)
    rig.release(child)
    assert rig.waits(stranger)
    rig.release(parent)
    assert rig.runs(stranger)


def test_a_returned_loan_is_not_for_other_parents_children(rig: Rig) -> None:
    """Each parent's slot carries its own children only."""
    rig.limit(agent=2)
    parents = [rig.ask("agent"), rig.ask("agent")]
    mine, yours = (rig.ask("agent", parent=parent) for parent in parents)
    next_of_yours = rig.ask("agent", parent=parents[1])
    next_of_mine = rig.ask("agent", parent=parents[0])
    rig.release(mine)
    assert rig.running(next_of_yours, next_of_mine) == [next_of_mine]
    assert rig.runs(yours)


def test_two_parents_that_fill_a_key_both_get_their_children_through(rig: Rig) -> None:
    """Every slot held by someone who waits for a child is no deadlock."""
    rig.limit(agent=2)
    parents = [rig.ask("agent") for _ in range(2)]
    children = [rig.ask("agent", parent=parent) for parent in parents for _ in range(3)]
    finished = 0
    while running := rig.running(*children):
        assert len(running) <= 2
        rig.release(running[0])
        finished += 1
    assert finished == 6


def test_a_child_counts_itself_when_its_parent_ends_first(rig: Rig) -> None:
    """A running child keeps the slot; it is free when the child ends, and not before."""
    rig.limit(agent=1)
    parent, stranger = rig.ask("agent"), rig.ask("agent")
    child = rig.ask("agent", parent=parent)
    rig.release(parent)
    assert rig.runs(child)
    assert rig.waits(stranger)
    assert rig.state("agent").used == 1
    rig.release(child)
    assert rig.runs(stranger)


def test_a_light_child_of_a_heavy_parent_frees_the_rest(rig: Rig) -> None:
    """The child takes over its own weight only; what is left goes to the next in line."""
    rig.limit(agent=3)
    parent = rig.ask("agent", weight=3)
    child = rig.ask("agent", parent=parent)
    strangers = [rig.ask("agent") for _ in range(3)]
    rig.release(parent)
    assert rig.running(*strangers) == strangers[:2]
    assert rig.runs(child)


def test_a_waiting_child_keeps_what_it_borrowed_when_its_parent_ends(rig: Rig) -> None:
    """A loan in a waiting child's hands becomes a reservation of its own."""
    rig.limits({"a": 1, "b": 1})
    on_b, parent, stranger = rig.ask("b"), rig.ask("a"), rig.ask("a")
    child = rig.ask("a", "b", parent=parent)
    assert rig.at(child) == "b"
    rig.release(parent)
    assert rig.at(child) == "b"
    assert (rig.state("a").used, rig.state("a").reserved) == (0, 1)
    assert rig.waits(stranger)
    rig.release(on_b)
    assert rig.runs(child)


def test_a_waiting_child_asks_again_when_there_is_no_room_for_it_alone(rig: Rig) -> None:
    """When its parent ends on a key that is over its limit, a waiting child joins the line."""
    rig.limits({"a": 2, "b": 1})
    on_b, parent, other = rig.ask("b"), rig.ask("a"), rig.ask("a")
    child = rig.ask("a", "b", parent=parent)
    rig.limit(a=1)
    rig.release(parent)
    assert rig.at(child) == "a"
    rig.release(on_b)
    assert rig.waits(child)
    rig.release(other)
    assert rig.runs(child)


def test_a_loan_is_lent_on(rig: Rig) -> None:
    """A child in its parent's slot can lend it to a child of its own."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    child = rig.ask("agent", parent=parent)
    grandchild = rig.ask("agent", parent=child)
    assert rig.runs(parent, child, grandchild)
    assert rig.state("agent").used == 1
    rig.release(grandchild)
    rig.release(child)
    rig.release(parent)
    assert rig.state("agent").used == 0


def test_a_loan_outlives_the_one_in_the_middle(rig: Rig) -> None:
    """When the middle one of three ends, its child is on the eldest's slot."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    child = rig.ask("agent", parent=parent)
    grandchild, sibling = rig.ask("agent", parent=child), rig.ask("agent", parent=parent)
    rig.release(child)
    assert rig.store.census().loans == [(parent.id, "agent", grandchild.id)]
    assert rig.waits(sibling)
    rig.release(grandchild)
    assert rig.runs(sibling)
    rig.release(sibling)
    assert rig.store.census().loans == []
    assert rig.release(parent)


@pytest.mark.parametrize(
    "order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
)
def test_a_chain_of_loans_ends_well_in_any_order(rig: Rig, order: tuple[int, ...]) -> None:
    """Parent, child and grandchild use one slot until the last of them has ended."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    child = rig.ask("agent", parent=parent)
    chain = [parent, child, rig.ask("agent", parent=child)]
    stranger = rig.ask("agent")
    for number in order:
        assert rig.waits(stranger)
        assert rig.release(chain[number])
    assert rig.runs(stranger)
    assert rig.state("agent").used == 1


def test_a_grandchild_borrows_what_its_parent_does_not_hold(rig: Rig) -> None:
    """The nearest ancestor that holds a key lends it."""
    rig.limits({"agent": 1, "llm": 1})
    eldest = rig.ask("agent")
    middle = rig.ask("llm", parent=eldest)
    youngest = rig.ask("agent", "llm", parent=middle)
    assert rig.runs(eldest, middle, youngest)
    assert set(rig.store.census().loans) == {
        (eldest.id, "agent", youngest.id),
        (middle.id, "llm", youngest.id),
    }


def test_a_child_of_an_ended_parent_goes_ahead_on_its_grandparents_slot(rig: Rig) -> None:
    """Who names several ancestors borrows from the nearest that still runs."""
    rig.limit(agent=1)
    eldest = rig.ask("agent")
    middle = rig.ask("agent", parent=eldest)
    rig.release(middle)
    child = rig.ask("agent", parent=(middle, eldest))
    assert rig.runs(child)
    assert rig.store.census().loans == [(eldest.id, "agent", child.id)]
    assert rig.waits(rig.ask("agent", parent=(middle, eldest)))


def test_a_child_that_waits_gets_its_grandparents_slot_when_its_parent_ends(rig: Rig) -> None:
    """The one in the middle goes and brings its loan back; nobody waits for an ancestor."""
    rig.limit(agent=1)
    eldest = rig.ask("agent")
    middle = rig.ask("agent", parent=eldest)
    sibling, child = (rig.ask("agent", parent=middle) for _ in range(2))
    assert rig.waits(child)
    rig.release(middle)
    assert rig.waits(child)
    rig.release(sibling)
    assert rig.runs(child)
    assert rig.store.census().loans == [(eldest.id, "agent", child.id)]


def test_a_child_turns_to_its_grandparent_when_the_lender_before_it_ends(rig: Rig) -> None:
    """A lender in the middle that had lent its own slot hid another one, which is free."""
    rig.limit(agent=2)
    eldest = rig.ask("agent")
    middle = rig.ask("agent")
    sibling = rig.ask("agent", parent=(middle, eldest))
    child = rig.ask("agent", parent=(middle, eldest))
    assert rig.waits(child)
    rig.release(middle)
    assert rig.runs(sibling, child)
    assert rig.store.census().loans == [(eldest.id, "agent", child.id)]


def test_a_heavier_child_does_not_fit_its_parents_slot(rig: Rig) -> None:
    """A loan carries no more than the lender weighs."""
    rig.limit(agent=3)
    parent = rig.ask("agent")
    child = rig.ask("agent", weight=2, parent=parent)
    assert rig.runs(child)
    assert rig.state("agent").used == 3
    assert rig.store.census().loans == []


def test_a_child_heavier_than_the_limit_may_fit_its_parents_slot(rig: Rig) -> None:
    """After a limit was lowered a loan still carries what the limit would refuse."""
    rig.limit(agent=3)
    parent = rig.ask("agent", weight=3)
    rig.limit(agent=1)
    assert rig.runs(rig.ask("agent", weight=2, parent=parent))
    assert rig.refusal(rig.ask("agent", weight=2)) == ("too_heavy", "agent")


def test_a_ticket_that_only_a_loan_could_carry_is_refused_when_the_lender_ends(rig: Rig) -> None:
    """A child too heavy for the lowered limit is told so once no loan can come any more."""
    rig.limit(agent=3)
    parent = rig.ask("agent", weight=3)
    sibling, child = (rig.ask("agent", weight=2, parent=parent) for _ in range(2))
    behind = rig.ask("agent")
    rig.limit(agent=1)
    assert rig.waits(child)
    rig.release(parent)
    assert rig.gone(child)
    assert rig.news() == {("refused", child.id)}
    rig.release(sibling)
    assert rig.runs(behind)


def test_a_grandchild_counts_on_its_eldest_when_the_one_in_the_middle_ends(rig: Rig) -> None:
    """Too heavy for the limit, it waits on for the loan that its grandparent has out."""
    rig.limits({"agent": 3})
    eldest = rig.ask("agent", weight=3)
    middle = rig.ask("llm", parent=eldest)
    uncle = rig.ask("agent", weight=2, parent=eldest)
    grandchild = rig.ask("agent", weight=2, parent=middle)
    rig.limit(agent=1)
    rig.release(middle)
    assert rig.waits(grandchild)
    rig.release(uncle)
    assert rig.runs(grandchild)


def test_a_child_that_counts_on_a_loan_further_along_is_refused_with_its_lender(rig: Rig) -> None:
    """A lender with nothing lent out may be all that a heavy child elsewhere hopes for."""
    rig.limits({"x/a": 2, "y": 3})
    parent = rig.ask("y", weight=3, by=0)
    stranger = rig.ask("x/a", weight=2, by=1)
    child = rig.ask("x/a", "y", weight=2, by=2, parent=parent)
    rig.limit(y=1)
    assert rig.at(child) == "x/a"
    rig.release(parent)
    assert rig.gone(child)
    assert rig.news() == {("refused", child.id)}
    assert rig.release(stranger)


def test_a_waiting_borrower_too_heavy_for_the_limit_is_refused_with_its_lender(rig: Rig) -> None:
    """A loan that ends leaves nobody in a line that it can never reach the front of."""
    rig.limits({"a": 3, "b": 2})
    parent = rig.ask("a", weight=3)
    rig.ask("b", weight=2)
    child = rig.ask("a", "b", weight=2, parent=parent)
    rig.limit(a=1)
    assert rig.at(child) == "b"
    rig.release(parent)
    assert rig.gone(child)
    assert rig.news() == {("refused", child.id)}


def test_a_cancelled_child_brings_its_loan_back(rig: Rig) -> None:
    """A loan in a waiting child's hands goes to its sibling when the child is cancelled."""
    rig.limits({"a": 1, "b": 1})
    rig.ask("b")
    parent = rig.ask("a")
    child = rig.ask("a", "b", parent=parent)
    sibling = rig.ask("a", parent=parent)
    assert rig.waits(child, sibling)
    rig.cancel(child)
    assert rig.runs(sibling)
    assert rig.store.census().loans == [(parent.id, "a", sibling.id)]


def test_a_child_that_leaves_by_a_loan_uncovers_those_behind_it(rig: Rig) -> None:
    """A heavy child that got its parent's slot no longer holds up the line it stood in."""
    rig.limit(a=3)
    parent = rig.ask("a", weight=2)
    first = rig.ask("a", weight=2, parent=parent)
    second = rig.ask("a", weight=2, parent=parent)
    light = rig.ask("a")
    assert rig.waits(second, light)
    rig.release(first)
    assert rig.runs(second, light)


@pytest.mark.parametrize("way", ["limit", "cool-down"])
def test_who_is_called_back_may_borrow_what_was_lent_when_it_passed(rig: Rig, way: str) -> None:
    """It would wait for its own parent there."""
    rig.limits({"zzz": 1})
    parent, elsewhere = rig.ask("llm"), rig.ask("zzz")
    sibling, child = (rig.ask("llm", "zzz", parent=parent) for _ in range(2))
    rig.withdraw(sibling)
    if way == "cool-down":
        rig.cool("llm", 20)
    rig.limit(llm=1)
    rig.wait(20)
    assert rig.at(child) == "zzz"
    rig.release(elsewhere)
    assert rig.runs(child)


def test_who_will_not_wait_can_borrow(rig: Rig) -> None:
    """A child's loan is there or it is not; without it a hasty child leaves no trace."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    child = rig.ask("agent", parent=parent, wait=False)
    assert rig.runs(child)
    assert rig.refusal(rig.ask("agent", parent=parent, wait=False)) == ("full", "agent")
    assert rig.store.census().loans == [(parent.id, "agent", child.id)]


def test_a_revoked_parent_leaves_its_child_running(rig: Rig) -> None:
    """Taking a parent's lease back by hand takes nothing from its child."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    child = rig.ask("agent", parent=parent)
    rig.revoke(parent)
    assert rig.runs(child)
    assert rig.state("agent").used == 1


def test_a_parent_that_is_gone_lends_nothing(rig: Rig) -> None:
    """A child of an ended or unknown parent is a ticket like any other."""
    rig.limit(agent=1)
    parent = rig.ask("agent")
    rig.release(parent)
    rig.ask("agent")
    assert rig.waits(rig.ask("agent", parent=parent))

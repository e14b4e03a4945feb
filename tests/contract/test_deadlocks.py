"""Rule 11, the other half: a request that only its own leases block is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.tickets import Refused

if TYPE_CHECKING:
    from tests.contract.rig import Rig


def test_a_request_that_only_its_own_lease_blocks_is_refused(rig: Rig) -> None:
    """Inside a process nothing is lent by itself: waiting for oneself is refused, with names."""
    rig.limit(agent=1)
    lease = rig.ask("agent", by=0)
    nested = rig.ask("agent", by=0, within=(lease,))
    answer = rig.answers[nested.id]
    assert isinstance(answer, Refused)
    assert (answer.reason, answer.key, answer.held_by) == ("deadlock", "agent", (lease.id,))
    assert rig.gone(nested)
    assert rig.state("agent").waiting == 0


def test_several_own_leases_that_fill_a_key_are_a_deadlock(rig: Rig) -> None:
    """All leases that the caller is inside of count against it together."""
    rig.limit(agent=2)
    leases = (rig.ask("agent", by=0), rig.ask("agent", by=0))
    nested = rig.ask("agent/sub", by=0, within=leases)
    assert rig.refusal(nested) == ("deadlock", "agent")


def test_a_nested_request_that_others_hold_up_waits(rig: Rig) -> None:
    """As long as somebody else's end would help, a nested request may wait."""
    rig.limit(agent=2)
    lease, other = rig.ask("agent", by=0), rig.ask("agent", by=1)
    nested = rig.ask("agent", by=0, within=(lease,))
    assert rig.waits(nested)
    rig.release(other)
    assert rig.runs(nested)


def test_a_nested_request_that_fits_runs(rig: Rig) -> None:
    """Being inside a lease is no reason to refuse when there is room."""
    rig.limit(agent=2)
    lease = rig.ask("agent", by=0)
    assert rig.runs(rig.ask("agent", by=0, within=(lease,)))


def test_a_nested_request_for_other_keys_waits(rig: Rig) -> None:
    """A lease on one key is no deadlock on another that somebody else fills."""
    rig.limits({"agent": 1, "llm": 1})
    lease = rig.ask("agent", by=0)
    rig.ask("llm", by=1)
    assert rig.waits(rig.ask("llm", by=0, within=(lease,)))


def test_a_nested_deadlock_further_along_is_seen_at_once(rig: Rig) -> None:
    """A key that will be a deadlock later refuses though the ticket waits at another first."""
    rig.limits({"x/a": 1, "y": 1})
    rig.ask("x/a", by=1)
    lease = rig.ask("y", by=0)
    nested = rig.ask("x/a", "y", by=0, within=(lease,))
    assert rig.refusal(nested) == ("deadlock", "y")


def test_a_loan_that_is_out_to_a_sibling_is_no_deadlock(rig: Rig) -> None:
    """The sibling will bring the slot back, so waiting for it is fine."""
    rig.limit(agent=1)
    parent = rig.ask("agent", by=0)
    sibling = rig.ask("agent", by=1, parent=parent)
    child = rig.ask("agent", by=0, parent=parent, within=(parent,))
    assert rig.waits(child)
    rig.release(sibling)
    assert rig.runs(child)


def test_a_loan_that_the_caller_itself_has_out_is_a_deadlock(rig: Rig) -> None:
    """Who sits in its parent's slot and asks for it once more waits for itself."""
    rig.limit(agent=1)
    parent = rig.ask("agent", by=0)
    child = rig.ask("agent", by=1, parent=parent)
    nested = rig.ask("agent", by=1, parent=parent, within=(child,))
    assert rig.refusal(nested) == ("deadlock", "agent")


def test_a_nested_request_counts_its_leases_ancestors_too(rig: Rig) -> None:
    """A caller in its parent's slot is blocked by the parent's lease, which waits for it."""
    rig.limit(agent=1)
    parent = rig.ask("agent", by=0)
    child = rig.ask("agent", by=1, parent=parent)
    nested = rig.ask("agent", by=1, within=(child,))
    assert rig.refusal(nested) == ("deadlock", "agent")


def test_a_refused_nested_request_frees_what_it_had_collected(rig: Rig) -> None:
    """A deadlock that is refused leaves no reservation and no loan behind."""
    rig.limits({"x/a": 1, "y": 1})
    lease = rig.ask("y", by=0)
    assert rig.refusal(rig.ask("x/a", "y", by=0, within=(lease,))) == ("deadlock", "y")
    assert rig.state("x/a").reserved == 0
    assert rig.runs(rig.ask("x/a"))


def test_a_loan_that_lies_further_along_is_no_deadlock(rig: Rig) -> None:
    """A child that waits for a stranger first will find its parent's slot when it gets there."""
    rig.limits({"x/a": 1, "y": 1})
    parent, stranger = rig.ask("y", by=0), rig.ask("x/a", by=1)
    child = rig.ask("x/a", "y", by=2, parent=parent, within=(parent,))
    assert rig.at(child) == "x/a"
    rig.release(stranger)
    assert rig.runs(child)
    assert rig.store.census().loans == [(parent.id, "y", child.id)]


# -- circles of several callers -----------------------------------------------------------------


def test_the_request_that_closes_a_circle_is_refused(rig: Rig) -> None:
    """Two hold all slots and both ask for one more: the second of them would wait for ever."""
    rig.limit(api=2)
    first, second = rig.ask("api", by=0), rig.ask("api", by=1)
    waiting = rig.ask("api", by=0, within=(first,))
    assert rig.waits(waiting)
    closing = rig.ask("api", by=1, within=(second,))
    answer = rig.answers[closing.id]
    assert isinstance(answer, Refused)
    assert (answer.reason, answer.key) == ("deadlock", "api")
    assert set(answer.held_by) == {first.id, second.id}
    rig.release(second)
    assert rig.runs(waiting)


def test_a_circle_over_several_keys_is_refused(rig: Rig) -> None:
    """Each of three holds what the one before it waits for."""
    rig.limit(a=1, b=1, c=1)
    leases = [rig.ask(key) for key in ("a", "b", "c")]
    waiting = [rig.ask("b", within=(leases[0],)), rig.ask("c", within=(leases[1],))]
    assert rig.refusal(rig.ask("a", within=(leases[2],))) == ("deadlock", "a")
    rig.release(leases[2])
    assert rig.runs(waiting[1])


def test_no_circle_while_one_of_them_gives_up_by_itself(rig: Rig) -> None:
    """Who waits with a timeout will make room for the others."""
    rig.limit(api=2)
    first, second = rig.ask("api"), rig.ask("api")
    impatient = rig.ask("api", within=(first,), timed=True)
    patient = rig.ask("api", within=(second,))
    assert rig.waits(impatient, patient)
    rig.withdraw(impatient)
    rig.release(first)
    assert rig.runs(patient)


def test_a_request_with_a_timeout_is_refused_if_all_others_have_none(rig: Rig) -> None:
    """It would be granted neither before its timeout nor after."""
    rig.limit(api=2)
    first, second = rig.ask("api"), rig.ask("api")
    rig.ask("api", within=(first,))
    closing = rig.ask("api", within=(second,), timed=True)
    assert rig.refusal(closing) == ("deadlock", "api")


def test_no_circle_while_one_holder_runs(rig: Rig) -> None:
    """Four of five wait inside: the fifth will make room."""
    rig.limit(api=5)
    leases = [rig.ask("api") for _ in range(5)]
    nested = [rig.ask("api", within=(lease,)) for lease in leases[:4]]
    assert rig.waits(*nested)
    assert rig.refusal(rig.ask("api", within=(leases[4],))) == ("deadlock", "api")
    rig.release(leases[4])
    assert rig.running(*nested) == [nested[0]]


def test_a_task_that_inherited_its_surroundings_waits(rig: Rig) -> None:
    """The lease belongs to whoever started it, and may end at any time."""
    rig.limit(agent=1)
    lease = rig.ask("agent", by=0)
    child = rig.ask("agent", by=0, around=(lease,))
    assert rig.waits(child)
    assert next(iter(rig.store.census().waiting)).around == (lease.id,)
    rig.release(lease)
    assert rig.runs(child)


def test_a_circle_that_closes_further_along_is_refused_when_it_does(rig: Rig) -> None:
    """Somebody else's end lets a ticket go on to a key where it would wait for ever."""
    rig.limits({"x/a": 1, "y": 1, "z": 1})
    stranger, first, second = rig.ask("x/a"), rig.ask("y"), rig.ask("z")
    # It waits at x/a, then at y, which belongs to the first: who runs.
    late = rig.ask("x/a", "y", within=(second,))
    inner = rig.ask("z", within=(first,), timed=True)
    assert rig.at(late) == "x/a"
    rig.withdraw(inner)
    patient = rig.ask("z", within=(first,))
    assert rig.refusal(patient) == ("deadlock", "z")
    rig.release(stranger)
    assert rig.at(late) == "y"


def test_a_reservation_of_somebody_who_waits_is_part_of_a_circle(rig: Rig) -> None:
    """One has the model and waits for the agent's slot; the agent waits for the model."""
    rig.limits({"llm/m": 1, "r": 1})
    agent = rig.ask("r")
    both = rig.ask("llm/m", "r")
    assert rig.at(both) == "r"
    assert rig.refusal(rig.ask("llm/m", within=(agent,))) == ("deadlock", "llm/m")
    rig.release(agent)
    assert rig.runs(both)


def test_a_reservation_that_closes_a_circle_ends_the_wait_inside(rig: Rig) -> None:
    """A release lets one with a better rank have the model, and the agent waits for ever."""
    rig.limits({"llm/m": 1, "r": 1})
    agent, stranger = rig.ask("r"), rig.ask("llm/m")
    inside = rig.ask("llm/m", within=(agent,))
    before_it = rig.ask("llm/m", "r", priority=100)
    assert rig.waits(inside, before_it)
    rig.release(stranger)
    assert rig.at(before_it) == "r"
    assert rig.gone(inside)
    told = [decision for name, decision in rig.decisions() if name == "refused"]
    assert [(one.ticket_id, one.reason, one.key) for one in told if isinstance(one, Refused)] == [
        (inside.id, "deadlock", "llm/m")
    ]


def test_a_lowered_limit_that_closes_a_circle_ends_a_wait(rig: Rig) -> None:
    """With one slot less, the last to come waits for a slot that it has itself."""
    rig.limit(api=2)
    lease, stranger = rig.ask("api"), rig.ask("api")
    inside = rig.ask("api", within=(lease,))
    assert rig.waits(inside)
    rig.limit(api=1)
    assert rig.gone(inside)
    assert ("refused", inside.id) in rig.news()
    assert rig.runs(stranger)


def test_a_heavy_one_in_front_that_waits_for_the_caller_is_part_of_a_circle(rig: Rig) -> None:
    """Nobody passes it, and it fits only when the caller is done."""
    rig.limit(api=2)
    lease = rig.ask("api")
    heavy = rig.ask("api", weight=2)
    assert rig.refusal(rig.ask("api", within=(lease,))) == ("deadlock", "api")
    rig.release(lease)
    assert rig.runs(heavy)


def test_a_paused_key_is_no_circle(rig: Rig) -> None:
    """A person will open it again, and then there is room."""
    rig.limit(a=1, b=1)
    first, second = rig.ask("a"), rig.ask("b")
    rig.pause("b")
    rig.release(second)
    nested = rig.ask("b", within=(first,))
    assert rig.waits(nested)
    rig.resume("b")
    assert rig.runs(nested)


def test_a_loan_from_a_caller_that_waits_is_part_of_a_circle(rig: Rig) -> None:
    """A child on its parent's slot keeps it, whoever else could give it back."""
    rig.limit(a=1, b=1)
    parent, other = rig.ask("a"), rig.ask("b")
    child = rig.ask("a", parent=parent)
    assert rig.waits(rig.ask("b", within=(child,)))
    assert rig.refusal(rig.ask("a", within=(other,))) == ("deadlock", "a")


def test_somebody_behind_a_circle_is_not_the_one_refused(rig: Rig) -> None:
    """Who only waits for those in a circle goes on waiting when that is broken."""
    rig.limit(a=1, b=2, c=1)
    first, stranger, late = rig.ask("a"), rig.ask("b"), rig.ask("c")
    second = rig.ask("b")
    inside = rig.ask("b", within=(first,))
    assert rig.waits(inside)
    behind = rig.ask("a", within=(late,))
    part = rig.ask("a", within=(second,))
    assert rig.waits(behind, part)
    rig.release(stranger)
    assert rig.runs(inside)


def test_holders_that_die_break_a_circle(rig: Rig) -> None:
    """What a dead process held is free, and nobody is refused for it."""
    rig.limit(api=2)
    first, second = rig.ask("api", by=0), rig.ask("api", by=1)
    waiting = rig.ask("api", by=0, within=(first,))
    rig.release(second)
    assert rig.runs(waiting)


def test_who_waits_in_front_and_cannot_go_on_either_is_in_the_way(rig: Rig) -> None:
    """On a loop that a ticket blocks, whoever stands before it gets the slot and keeps it."""
    rig.limit(api=2)
    rig.ask("api"), rig.ask("api")
    first, second = rig.ask("api"), rig.ask("api")
    assert rig.waits(rig.ask("api", within=(first,)))
    assert rig.refusal(rig.ask("api", within=(first, second))) == ("deadlock", "api")


def test_a_heavy_one_anywhere_in_front_is_part_of_a_circle(rig: Rig) -> None:
    """The first in line will go on; the one behind it fits only when the caller is done."""
    rig.limit(api=2)
    lease = rig.ask("api")
    rig.ask("api")
    rig.ask("api")
    heavy = rig.ask("api", weight=2)
    assert rig.refusal(rig.ask("api", within=(lease,))) == ("deadlock", "api")
    assert rig.waits(heavy)


def test_a_heavy_one_that_comes_to_stand_in_front_ends_a_wait(rig: Rig) -> None:
    """It has a better rank, and fits only when the caller inside is done."""
    rig.limit(api=2)
    lease, stranger = rig.ask("api"), rig.ask("api")
    inside = rig.ask("api", within=(lease,))
    heavy = rig.ask("api", weight=2, priority=100)
    assert rig.gone(inside)
    assert ("refused", inside.id) in rig.news()
    rig.release(stranger)
    rig.release(lease)
    assert rig.runs(heavy)

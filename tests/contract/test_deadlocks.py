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

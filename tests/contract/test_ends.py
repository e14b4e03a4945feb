"""Rules 7 and 9: how a ticket ends, and that it does so once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headway.tickets import Granted, Revoked, Withdrawn

if TYPE_CHECKING:
    from tests.contract.rig import Rig


def test_who_will_not_wait_leaves_no_trace(rig: Rig) -> None:
    """A refused request changes nothing for anyone."""
    rig.limits({"a": 1, "b": 2})
    rig.ask("a")
    rig.ask("b", weight=2)
    waiting = rig.ask("a", "b")
    before = _counts(rig)
    refused = rig.ask("a", "b", wait=False, priority=100)
    assert rig.refusal(refused) == ("full", "a")
    assert rig.gone(refused)
    assert _counts(rig) == before
    assert rig.look().order == [waiting.id]
    assert rig.news() == set()


def test_who_will_not_wait_returns_what_it_took_on_the_way(rig: Rig) -> None:
    """A request that finds its second key full keeps nothing of the first."""
    rig.limit(a=1, b=1)
    rig.ask("b")
    assert rig.refusal(rig.ask("a", "b", wait=False)) == ("full", "b")
    assert (rig.state("a").used, rig.state("a").reserved) == (0, 0)
    assert rig.runs(rig.ask("a", wait=False))


def test_who_will_not_wait_does_not_jump_the_line(rig: Rig) -> None:
    """Room that somebody better is waiting for is not free to take."""
    rig.limit(llm=2)
    rig.ask("llm")
    rig.ask("llm", weight=2)
    assert rig.refusal(rig.ask("llm", wait=False)) == ("full", "llm")


def test_a_cancelled_ticket_is_gone_and_told(rig: Rig) -> None:
    """Cancel ends a waiting ticket at once; its owner hears of it and its neighbours move up."""
    rig.limit(llm=1)
    running, first, second = (rig.ask("llm") for _ in range(3))
    assert rig.cancel(first)
    assert rig.gone(first)
    assert rig.news() == {("withdrawn", first.id)}
    assert isinstance(first.verdict, Withdrawn)
    assert rig.owner(second).positions([second])[second.id] == 1
    rig.release(running)
    assert rig.runs(second)


def test_a_cancelled_ticket_never_starts(rig: Rig) -> None:
    """Whatever is freed after a cancel goes past the one who was cancelled."""
    rig.limit(llm=1)
    running, cancelled = rig.ask("llm"), rig.ask("llm")
    rig.cancel(cancelled)
    rig.release(running)
    assert rig.gone(cancelled)
    assert rig.state("llm").used == 0
    assert rig.news() == {("withdrawn", cancelled.id)}


def test_a_lease_cannot_be_cancelled(rig: Rig) -> None:
    """Cancel is for those who wait; what runs is left alone."""
    running = rig.ask("llm")
    assert not rig.cancel(running)
    assert rig.runs(running)


def test_a_cancel_is_told_once(rig: Rig) -> None:
    """A second cancel finds nothing to do."""
    rig.limit(llm=1)
    rig.ask("llm")
    waiting = rig.ask("llm")
    assert rig.cancel(waiting)
    assert not rig.cancel(waiting)
    assert rig.news() == {("withdrawn", waiting.id)}
    assert rig.news() == set()


def test_cancelling_what_does_not_exist_does_nothing(rig: Rig) -> None:
    """An unknown id is no error."""
    assert not rig.store.cancel("nobody-1")
    assert not rig.store.revoke("nobody-1", "by hand")


def test_a_withdrawn_ticket_leaves_the_line(rig: Rig) -> None:
    """Who gives up waiting is gone, and needs no verdict from others."""
    rig.limit(llm=1)
    rig.ask("llm")
    waiting = rig.ask("llm")
    assert rig.withdraw(waiting) is None
    assert rig.gone(waiting)
    assert rig.news() == set()
    assert rig.withdraw(waiting) is None


def test_a_withdrawal_after_a_cancel_learns_of_it(rig: Rig) -> None:
    """Cancelled first, timed out second: the one verdict is the cancel."""
    rig.limit(llm=1)
    rig.ask("llm")
    waiting = rig.ask("llm", by=1)
    assert rig.cancel(waiting)
    verdict = rig.withdraw(waiting)
    assert isinstance(verdict, Withdrawn)
    assert verdict.ticket_id == waiting.id


def test_a_cancel_after_a_withdrawal_finds_nothing(rig: Rig) -> None:
    """Timed out first, cancelled second: the cancel says that it came too late."""
    rig.limit(llm=1)
    rig.ask("llm")
    waiting = rig.ask("llm", by=1)
    assert rig.withdraw(waiting) is None
    assert not rig.cancel(waiting)
    assert rig.news() == set()


def test_a_withdrawal_after_the_grant_learns_of_it_and_keeps_it(rig: Rig) -> None:
    """Granted first, timed out second: the ticket is a lease and stays one."""
    rig.limit(llm=1)
    running, waiting = rig.ask("llm", by=0), rig.ask("llm", by=1)
    rig.release(running)
    verdict = rig.withdraw(waiting)
    assert isinstance(verdict, Granted)
    assert verdict.token == waiting.token
    assert waiting.at is None
    assert rig.runs(waiting)
    assert not rig.cancel(waiting)
    assert rig.release(waiting)
    assert rig.state("llm").used == 0


def test_a_withdrawal_after_a_refusal_learns_of_it(rig: Rig) -> None:
    """A limit lowered below a ticket decides it, also when its owner gives up just then."""
    rig.limit(llm=2)
    rig.ask("llm")
    heavy = rig.ask("llm", weight=2, by=1)
    rig.limit(llm=1)
    verdict = rig.withdraw(heavy)
    assert (type(verdict).__name__, getattr(verdict, "reason", None)) == ("Refused", "too_heavy")


def test_releasing_a_waiting_ticket_takes_it_out_of_line(rig: Rig) -> None:
    """A caller that is gone may give back without knowing how far its ticket got."""
    rig.limit(llm=1)
    rig.ask("llm")
    waiting = rig.ask("llm")
    assert not rig.release(waiting)
    assert rig.gone(waiting)


def test_releasing_before_the_news_of_the_grant_arrives_frees_the_slot(rig: Rig) -> None:
    """A lease whose owner has not heard of it yet is a lease and can be released."""
    rig.limit(llm=1)
    running, waiting = rig.ask("llm", by=0), rig.ask("llm", by=1)
    rig.release(running)
    assert rig.release(waiting)
    assert rig.state("llm").used == 0


def test_a_release_counts_once(rig: Rig) -> None:
    """Repeating a release is harmless."""
    rig.limit(llm=2)
    first, second = rig.ask("llm"), rig.ask("llm")
    assert rig.release(first)
    assert not rig.release(first)
    assert rig.state("llm").used == 1
    assert rig.runs(second)


def test_a_revoked_lease_is_taken_and_told(rig: Rig) -> None:
    """A lease taken by hand goes to the next in line, and its holder learns why."""
    rig.limit(llm=1)
    running, waiting = rig.ask("llm", by=1), rig.ask("llm", by=2)
    assert rig.revoke(running, "release --force")
    assert rig.runs(waiting)
    decisions = dict(rig.decisions())
    assert decisions.keys() == {"revoked", "granted"}
    revoked = decisions["revoked"]
    assert isinstance(revoked, Revoked)
    assert (revoked.ticket_id, revoked.reason) == (running.id, "release --force")
    assert isinstance(running.verdict, Revoked)


def test_a_lease_revoked_before_its_holder_heard_of_it_is_told_in_full(rig: Rig) -> None:
    """Who waits hears of the grant though it is over, and does not wait for ever."""
    rig.limit(llm=1)
    running, waiting = rig.ask("llm", by=0), rig.ask("llm", by=1)
    rig.release(running)
    rig.house.lose_messages(rig.owner(waiting))
    assert rig.revoke(waiting)
    assert rig.news() == {("granted", waiting.id), ("revoked", waiting.id)}
    assert waiting.at is None


def test_a_revoked_lease_is_not_released_again(rig: Rig) -> None:
    """Its holder's own release comes too late and takes nothing from the next one."""
    rig.limit(llm=1)
    running, waiting = rig.ask("llm"), rig.ask("llm")
    rig.revoke(running)
    assert not rig.release(running)
    assert rig.runs(waiting)
    assert rig.state("llm").used == 1


def test_a_waiting_ticket_cannot_be_revoked(rig: Rig) -> None:
    """Revoke is for leases; who waits keeps its place."""
    rig.limit(llm=1)
    rig.ask("llm")
    waiting = rig.ask("llm")
    assert not rig.revoke(waiting)
    assert rig.waits(waiting)


def test_tokens_only_grow(rig: Rig) -> None:
    """Every lease has a greater token than all before it, however it was granted."""
    rig.limit(llm=1)
    tickets = [rig.ask("llm", by=number % 3) for number in range(6)]
    tokens = []
    for ticket in tickets:
        rig.news()
        tokens.append(ticket.token)
        rig.release(ticket)
    tokens.append(rig.ask("other").token)
    assert tokens == sorted(set(tokens))
    assert tokens[0] > 0


def test_an_owner_finds_its_tickets(rig: Rig) -> None:
    """A holder knows its tickets from the request to the release, and no longer."""
    rig.limit(llm=1)
    running, waiting = rig.ask("llm", by=1), rig.ask("llm", by=1)
    refused = rig.ask("llm", by=1, wait=False)
    store = rig.holders[1]
    assert store.own_ticket(running.id) is running
    assert store.own_ticket(waiting.id) is waiting
    assert store.own_ticket(refused.id) is None
    rig.withdraw(waiting)
    rig.release(running)
    assert store.own_ticket(waiting.id) is None
    assert store.own_ticket(running.id) is None


def test_an_owner_still_knows_what_was_taken_from_it(rig: Rig) -> None:
    """A revoked lease is its owner's until released: somebody must be told of the loss."""
    rig.limit(llm=1)
    running = rig.ask("llm", by=1)
    rig.revoke(running)
    rig.news()
    assert rig.holders[1].own_ticket(running.id) is running
    rig.release(running)
    assert rig.holders[1].own_ticket(running.id) is None


@pytest.mark.parametrize("end", ["withdraw", "release"])
def test_after_its_owner_has_read_it_no_verdict_is_kept(rig: Rig, end: str) -> None:
    """A cancelled ticket leaves nothing behind once its owner knows."""
    rig.limit(llm=1)
    rig.ask("llm", by=0)
    waiting = rig.ask("llm", by=1)
    rig.cancel(waiting)
    rig.news()
    getattr(rig, end)(waiting)
    assert rig.owner(waiting).own_ticket(waiting.id) is None
    assert rig.house.verdicts(rig.owner(waiting)) == 0


def _counts(rig: Rig) -> dict[str, tuple[int, int, int]]:
    states = rig.store.census().states
    return {key: (state.used, state.reserved, state.waiting) for key, state in states.items()}

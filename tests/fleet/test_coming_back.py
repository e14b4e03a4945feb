"""Who comes back is told what was decided meanwhile, and nobody else is harmed by it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from headway.limits import Terms
from headway.stores.redis import RedisStore
from headway.tickets import Refused, Revoked, Ticket, Waiting, Withdrawn

if TYPE_CHECKING:
    from tests.fleet.away import Away


def test_who_was_cancelled_while_it_was_away_does_not_come_back(away: Away) -> None:
    """It has been told to whoever cancelled it that it will never start."""
    away.limit(k=1)
    running = away.ask("k", by=0)
    waiting = away.ask("k", by=1)
    away.cancel(waiting)

    away.lose_sight_of(1)
    away.holders[1].version()

    assert isinstance(waiting.verdict, Withdrawn)
    away.release(running)
    assert away.used("k") == 0


def test_who_became_too_heavy_while_it_was_away_is_refused(away: Away) -> None:
    """It would stand at the head of its line for ever."""
    away.limit(k=2)
    running = away.ask("k", by=0, weight=2)
    heavy = away.ask("k", by=1, weight=2)
    away.lose_sight_of(1)
    away.limit(k=1)
    light = away.ask("k", by=2)

    away.holders[1].version()

    assert isinstance(heavy.verdict, Refused)
    away.release(running)
    assert away.runs(light)


def test_who_became_too_heavy_is_refused_when_the_server_has_settled(away: Away) -> None:
    """Until then a lender may come back on whose slot it goes ahead."""
    away.limit(k=2)
    away.ask("k", by=0, weight=2)
    heavy = away.ask("k", by=1, weight=2)
    away.lose_sight_of(1)
    away.limit(k=1)
    away.start_server_again()
    away.holders[1].version()
    assert heavy.verdict is None

    away.house._settle()  # type: ignore[attr-defined]
    away.holders[1].version()

    assert isinstance(heavy.verdict, Refused)


def test_a_lease_that_was_taken_back_is_not_believed_after_a_restart(away: Away) -> None:
    """Whoever has its slot now is known to the server, which has its data."""
    away.limit(k=1)
    lost = away.ask("k", by=1)
    away.revoke(lost)
    away.ask("k", by=0)

    away.start_server_again()
    away.holders[1].version()

    assert isinstance(lost.verdict, Revoked)
    assert away.used("k") == 1


def test_who_was_not_heard_itself_takes_nobody_for_dead(away: Away) -> None:
    """The server slept, or its clock was put forward: the others had no chance either."""
    away.limit(k=1)
    running = away.ask("k", by=1)
    away.ask("k", by=0)

    away.silence(0, 1)
    away.store.tend()

    assert away.used("k") == 1
    away.holders[1].version()
    assert not away.holders[1].is_lost(running)


def test_who_was_heard_late_itself_takes_nobody_for_dead(away: Away) -> None:
    """The server slept for less than a lease: one who was heard earlier had no chance either."""
    away.limit(k=1)
    running = away.ask("k", by=1)
    away.ask("k", by=0)

    away.silence(0, until=away.clock() + 1e9 / 3)
    away.silence(1)
    away.store.tend()

    assert not away.holders[1].is_lost(running)


@pytest.mark.parametrize("heard_last", [-1e18, 1e9 / 3], ids=["long ago", "within a lease"])
def test_one_who_is_new_takes_nobody_for_dead_if_nobody_was_heard(
    away: Away, heard_last: float
) -> None:
    """It cannot know of itself that the server slept, or that its clock was put forward."""
    away.limit(k=1)
    running = away.ask("k", by=1)

    away.silence(0, 2, until=away.clock() + heard_last)
    away.silence(1)
    newcomer = away.house.open(Terms())
    away.holders.append(newcomer)
    newcomer.version()

    assert away.used("k") == 1
    away.holders[1].version()
    assert not away.holders[1].is_lost(running)


def test_one_who_is_new_spares_the_dead_once(away: Away) -> None:
    """Others like it may come and go before the time is over: the slot is not kept for ever."""
    away.limit(k=1)
    away.ask("k", by=1)
    everyone = range(len(away.holders))
    away.silence(*everyone)
    with closing(away.house.open(Terms())) as newcomer:
        newcomer.version()

    away.clock.move(2e9)
    newcomer = away.house.open(Terms())
    away.holders.append(newcomer)

    assert newcomer.census().states["k"].used == 0


def test_a_namespace_that_has_settled_stays_so(away: Away) -> None:
    """Also if the server's clock is put back to before that."""
    away.put("settles_at", away.clock() + 100)

    assert away.runs(away.ask("new"))


def test_a_namespace_settles_no_longer_because_the_clock_is_put_back(away: Away) -> None:
    """All who live are heard within one lease."""
    away.start_server_again()
    away.store.version()

    away.clock.move(-500)
    away.store.version()

    store = away.store
    assert isinstance(store, RedisStore)
    assert store._session.settling_seconds == 1e9


def test_after_a_restart_nobody_is_let_in_at_once(away: Away) -> None:
    """Also if there is room by what the server knows, and the usual way in is a short one."""
    away.limit(k=2)
    away.ask("k", by=0)
    away.start_server_again()

    newcomer = Ticket(away.store.new_id(), ("k",), ("k",))
    answer = away.store.request(newcomer, wait=True)

    assert isinstance(answer, Waiting)


def test_a_slot_is_not_handed_to_one_who_was_not_heard(away: Away) -> None:
    """Nobody has noticed that yet; the next one who lives has it in the same moment."""
    away.limit(k=1)
    running = away.ask("k", by=0)
    dead, alive = away.ask("k", by=1), away.ask("k", by=2)
    away.silence(1)

    away.store.release(running, 1.0)

    assert away.messages(1) == 0
    assert away.gone(dead)
    assert away.runs(alive)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_request_that_is_repeated_is_one(away: Away, slots: int) -> None:
    """Its first answer was lost: what it has it has once, and where it stands it stands once."""
    away.limit(k=slots)
    away.ask("k", by=0)
    first = away.ask("k", by=1)
    before = away.look().tokens

    again = Ticket(first.id, first.keys, first.path)
    answer = away.holders[1].request(again, wait=True)

    assert type(answer) is type(away.answers[first.id])
    assert (again.token, again.at) == (first.token, first.at)
    assert away.look().tokens == before  # and what is counted is what is there


def test_after_a_restart_nobody_is_taken_for_dead(away: Away) -> None:
    """While the server was away nobody could be heard, however long that was."""
    away.limit(k=1)
    running = away.ask("k", by=1)
    away.silence(1)
    away.start_server_again()

    away.store.version()

    assert away.runs(running)


def test_how_a_ticket_ended_is_told_again_if_that_answer_was_lost(away: Away) -> None:
    """Otherwise one that was cancelled would look like a lease that was taken back."""
    away.limit(k=1)
    away.ask("k", by=0)
    waiting = away.ask("k", by=1)
    away.cancel(waiting)
    session = away.holders[1]._session  # type: ignore[attr-defined]

    told = [session.ask(b"look", [waiting.id]) for _ in range(2)]

    assert told == [[[waiting.id, ["withdrawn"]]]] * 2


@pytest.mark.parametrize("end", ["close", "beat"])
def test_what_nobody_uses_any_more_goes_by_itself(away: Away, end: str) -> None:
    """All but the limits and a mark has its time, whether the last one says goodbye or not."""
    away.limit(k=1)
    away.ask("k", by=0)
    away.ask("k", by=1)
    away.cool("other")

    if end == "close":
        away.house.close(away.holders)
    else:
        away.clock.move(3600)
        away.store._session.beat()  # type: ignore[attr-defined]

    assert away.without_end() == {"meta", "terms", "clock"}  # of which the last is the test's


def test_a_namespace_is_forgotten_though_nobody_had_the_time_to_say_so(away: Away) -> None:
    """Whatever is kept for those who wait, borrow or cool down, but not the limits."""
    away.limit(k=1)
    lender = away.ask("k", by=0)
    away.ask("k", by=0, parent=lender)
    away.ask("k", by=0, parent=lender)
    away.ask("k", by=1)
    away.cool("z")

    assert away.without_end() == {"meta", "terms", "clock"}

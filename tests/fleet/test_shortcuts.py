"""The short ways on a server: they see all that the rules would see, and leave the rest to them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headway.stores.redis import RedisStore
from headway.tickets import Granted, Refused, Waiting

if TYPE_CHECKING:
    from tests.fleet.away import Away

_MANY = 4_200  # more than Lua passes on at once


def _use(away: Away, *keys: str) -> None:
    """Have the server know these keys: new ones take the long way."""
    for key in keys:
        away.release(away.ask(key, by=0))


def test_a_loan_is_not_forgotten_by_those_who_pass_by(away: Away) -> None:
    """What is lent goes on counting when its lender is given back."""
    away.limit(k=1, j=5)
    _use(away, "k", "j")
    lender = away.ask("k", by=0)
    borrower = away.ask("k", by=0, parent=lender)

    away.ask_unseen("j")
    away.store.release(lender, 1.0)

    assert isinstance(away.ask_unseen("k", wait=False)[1], Refused)
    away.store.release(borrower, 1.0)
    assert isinstance(away.ask_unseen("k", wait=False)[1], Granted)


def test_who_is_handed_a_slot_passes_nobody_further_on(away: Away) -> None:
    """Somebody heavier waits there for longer."""
    away.limit(x=1, y=2)
    first, _ = away.ask("x", by=0), away.ask("y", by=0)
    away.ask("y", by=1, weight=2)
    light = away.ask("x", "y", by=2)

    away.release(first)

    assert away.at(light) == "y"


def test_what_changed_on_a_short_way_is_seen_to_have_changed(away: Away) -> None:
    """Whoever watches looks again only then."""
    away.limit(k=2)
    _use(away, "k")
    before = away.store.version()

    ticket, _ = away.ask_unseen("k")
    between = away.store.version()
    away.store.release(ticket, 1.0)

    assert before < between < away.store.version()


def test_who_waits_for_a_time_and_for_room_wakes_up_in_time(away: Away) -> None:
    """Also if it came to wait for the room afterwards."""
    away.limit(k=1)
    _use(away, "z")
    away.ask("k", by=0)
    away.cool("z", 20.0)
    store = away.holders[1]
    assert isinstance(store, RedisStore)
    away.ask_unseen("z", by=1)

    assert isinstance(away.ask_unseen("k", by=1)[1], Waiting)

    assert store._listening.due is not None
    assert store._listening.due - time.monotonic() < 21


def test_who_waits_notices_that_others_fall_silent(away: Away) -> None:
    """It knows when the first of them would be taken for dead."""
    away.limit(k=1)
    away.ask("k", by=0)
    store = away.holders[1]
    assert isinstance(store, RedisStore)

    assert isinstance(away.ask_unseen("k", by=1)[1], Waiting)

    assert store._listening.due is not None


def test_who_was_taken_for_dead_comes_back_before_it_is_given_anything(away: Away) -> None:
    """Nobody would notice its end otherwise."""
    away.limit(k=1)
    _use(away, "k")
    away.ask_unseen("j", by=1)
    away.lose_sight_of(1)
    assert not away.is_known(1)

    away.ask_unseen("k", by=1)

    assert away.is_known(1)


def test_tickets_with_very_many_keys(away: Away) -> None:
    """They come and go like others, and are let in when somebody makes room."""
    many = [f"m{number}" for number in range(_MANY)]
    away.limit(k=1)
    for _ in range(2):
        ticket, answer = away.ask_unseen(*many)
        assert isinstance(answer, Granted)
        assert away.store.release(ticket, 1.0)
    first, _ = away.ask_unseen("k")
    heir, waiting = away.ask_unseen("k", *many)
    assert isinstance(waiting, Waiting)

    assert away.store.release(first, 1.0)

    assert heir.token
    assert (away.used("k"), away.used("m7")) == (1, 1)
    assert away.store.release(heir, 1.0)
    assert (away.used("k"), away.used("m7")) == (0, 0)

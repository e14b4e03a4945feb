"""Clocks that jump and pids that come again: neither is ever trusted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.kit import Crew

# A process whose wall clock, and the clock of its store, can be set from outside.
_TIME_TRAVELLER = """
from headway import config
from headway.stores import sqlite
offset, real_time, real_clock = [0.0], time.time, time.clock_gettime
time.time = lambda: real_time() + offset[0]
time.time_ns = lambda: int(time.time() * 1e9)
time.clock_gettime = lambda clock: real_clock(clock) + offset[0]
governor = headway.Governor()
governor._store._clock = lambda: real_clock(time.CLOCK_MONOTONIC) + offset[0]
while True:
    order = hear().split()
    if order[0] == "jump":
        offset[0] += float(order[1])
        say("jumped")
    else:
        with governor.slot("k", on_wait=queued) as lease:
            say("granted")
            hear()
            lease.check()
        say("left")
"""


@pytest.mark.parametrize("jump", ["-1e9", "1e9"])
def test_a_clock_that_jumps_changes_no_order_and_no_lease(crew: Crew, jump: str) -> None:
    """Years of difference between clocks neither end a lease nor let anyone jump the line."""
    crew.limits(k=1)
    holder, first, second, third = (crew.start(_TIME_TRAVELLER) for _ in range(4))
    holder.ask("take", "granted")
    first.ask("take", "waiting")
    # A second one whose clock is far off, and a third one with the right time.
    second.ask(f"jump {jump}", "jumped")
    second.ask("take", "waiting")
    third.ask("take", "waiting")

    assert crew.watcher().ask("leases", "leases") == "1"
    before = holder
    for waiter in (first, second, third):
        before.ask("leave", "left")
        waiter.expect("granted")
        before = waiter
    before.ask("leave", "left")


def test_a_clock_that_jumps_while_holding_and_waiting(crew: Crew) -> None:
    """A jump in the middle of a lease or a wait is not noticed by either."""
    crew.limits(k=1)
    travellers = [crew.start(_TIME_TRAVELLER) for _ in range(2)]
    for turn in range(6):
        holder, waiter = travellers[turn % 2], travellers[(turn + 1) % 2]
        if turn == 0:
            holder.ask("take", "granted")
        waiter.ask("take", "waiting")
        holder.tell("leave")
        holder.expect("left")
        waiter.expect("granted")
        holder.ask(f"jump {(-1e8, 1e8)[turn % 2]}", "jumped")
    assert crew.watcher().ask("audit", "audited") == "fine"


@pytest.mark.parametrize("when", ["before anyone waits", "while someone waits"])
def test_a_dead_holder_whose_pid_was_given_to_another(crew: Crew, when: str) -> None:
    """The card of a dead holder may name a living process: its lock says that it is dead."""
    crew.limits(k=1)
    # It dies by its own hand, and its card names this very process, which lives.
    holder = crew.start(
        f"""
        getpid = os.getpid
        os.getpid = lambda: {os.getpid()}
        governor = headway.Governor()
        with governor.slot("k"):
            os.getpid = getpid
            say("holding")
            hear()
            die()
        """
    )
    holder.expect("holding")
    cards = [path.read_text() for path in (crew.home / "live").glob("*.lock")]
    assert [card.split("\n")[0].lstrip("+-") for card in cards] == [str(os.getpid())]
    if when == "before anyone waits":
        holder.tell("die")
        holder.ended()
        crew.holding("k").ask("leave", "left")
        return
    # The waiter watches the wrong process, which does not end. Another one's look finds out.
    waiter = crew.waiter("k")
    holder.tell("die")
    holder.ended()
    assert crew.watcher().ask("leases", "leases") == "1"
    waiter.expect("granted")


_CARDS = {
    "empty": "",
    "no number": "x",
    "cut off": "12\n",
    "another's": f"{os.getpid()}\n0\n",
    "zeros": "\0" * 100,
    "endless": "9" * 5000,
}


@pytest.mark.parametrize("kind", _CARDS)
def test_a_card_that_was_half_written(crew: Crew, kind: str) -> None:
    """A lock file with a broken card, of a living holder or of a dead one, stops nobody."""
    card = _CARDS[kind]
    crew.limits(k=1)
    holder = crew.holding("k")
    for path in (crew.home / "live").glob("*.lock"):
        path.write_text(card)
    (crew.home / "live" / "zzzzzz.lock").write_text(card)

    waiter = crew.waiter("k")
    assert crew.watcher().ask("leases", "leases") == "1"
    holder.kill()

    waiter.expect("granted")

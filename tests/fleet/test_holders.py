"""Rule 6 across machines: who is not heard loses its leases, is told so, and harms nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.crash.kit import lead_to_line

if TYPE_CHECKING:
    from tests.fleet.conftest import Fleet

_HOLDS_UNTIL_LOST = """
governor = headway.Governor()
with governor.slot("k") as lease:
    say("holding", lease.token)
    hear()
    try:
        lease.check()
        say("still mine")
    except headway.LeaseLost:
        say("lost")
say("left")
hear()
"""


def test_two_homes_share_one_set_of_limits(fleet: Fleet) -> None:
    """As soon as one gives its slot back, the other one has it."""
    holder = fleet.holding("k")
    waiter = fleet.waiter("k")

    holder.ask("leave", "left")

    waiter.expect("granted")


def test_a_killed_holders_slot_goes_to_the_next_in_line(fleet: Fleet) -> None:
    """Others of its machine tell at once, long before the server would have to notice."""
    fleet.holding("other")  # the server has settled
    here = {"HEADWAY_STORE_LEASE_SECONDS": "3600", "MACHINE": fleet.machine()}
    holder = fleet.holding("k", **here)
    first, second = fleet.waiter("k", **here), fleet.waiter("k", **here)

    holder.kill()

    first.expect("granted")
    first.kill()
    second.expect("granted")


def test_a_machine_that_is_gone_loses_its_slots(fleet: Fleet) -> None:
    """When it was not heard for long enough; there is nobody who could tell."""
    holder = fleet.holding("k")
    waiter = fleet.waiter("k")

    holder.kill()

    waiter.expect("granted")


def test_one_that_comes_back_late_is_told_and_harms_nobody(fleet: Fleet) -> None:
    """It was asleep for too long; its slot is another's, with a later token."""
    sleeper = fleet.start(_HOLDS_UNTIL_LOST)
    old_token = int(sleeper.expect("holding"))
    waiter = fleet.fenced_waiter()
    sleeper.stop()
    assert int(waiter.expect("granted")) > old_token
    third = fleet.waiter("k")

    sleeper.wake()
    sleeper.tell("check")

    sleeper.expect("lost")
    sleeper.expect("left")
    assert third.line_within(0.5) is None
    waiter.ask("leave", "left")
    third.expect("granted")


def test_a_waiter_that_was_asleep_keeps_its_place(fleet: Fleet) -> None:
    """It was taken for dead; it comes back to where it stood."""
    holder, sleeper = fleet.holding("k"), fleet.waiter("k")
    watcher = fleet.watcher()
    sleeper.stop()
    while watcher.ask("waiting", "waiting") != "0":
        pass
    younger = fleet.waiter("k")

    sleeper.wake()
    while watcher.ask("waiting", "waiting") != "2":
        pass
    holder.ask("leave", "left")

    sleeper.expect("granted")
    sleeper.ask("leave", "left")
    lead_to_line(younger, "granted")

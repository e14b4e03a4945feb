"""A new ``slots.db`` in which not everyone alive has said yet what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.crash.kit import Child, Crew


def _by_release(_: Crew, other: Child) -> None:
    other.ask("leave", "left")


def _by_death(_: Crew, other: Child) -> None:
    other.kill()


def _by_a_pause_that_ends(crew: Crew, _: Child) -> None:
    change = "g = headway.Governor(); g.pause('k'); g.resume('k'); g.close(); say('done')"
    crew.start(change).expect("done")


@pytest.mark.parametrize("freed", [_by_release, _by_death, _by_a_pause_that_ends])
def test_what_becomes_free_waits_for_those_who_have_not_said_yet(
    crew: Crew, freed: Callable[[Crew, Child], None]
) -> None:
    """Room on a key is not given away while a live holder of it is not in the new file."""
    crew.limits(k=2)
    frozen, other = crew.holding("k"), crew.holding("k")
    waiters = [crew.waiter("k"), crew.waiter("k")]
    frozen.stop()
    (crew.home / "slots.db").unlink()
    for child in (*waiters, other):
        crew.wait_until_moved(child)

    freed(crew, other)
    frozen.wake()

    crew.wait_until_moved(frozen)
    assert int(crew.watcher().ask("leases", "leases")) <= 2


def test_a_holder_that_dies_before_it_has_said_what_it_holds_keeps_nobody_waiting(
    crew: Crew,
) -> None:
    """Its slot is free, and who waits is let in at once."""
    crew.limits(k=1)
    holder, waiter = crew.holding("k"), crew.waiter("k")
    holder.stop()
    (crew.home / "slots.db").unlink()
    crew.wait_until_moved(waiter)

    holder.kill()

    waiter.expect("granted")


def test_limits_given_in_code_outlive_the_file(crew: Crew) -> None:
    """Whoever makes the file anew does not know them; their giver brings them along."""
    giver = crew.start(
        """
        governor = headway.Governor(limits={"z": 1})
        with governor.slot("z"):
            say("holding")
            hear()
        """
    )
    giver.expect("holding")
    (crew.home / "slots.db").unlink()

    stranger = crew.start(
        """
        governor = headway.Governor()
        try:
            governor.slot("z", wait=False).__enter__()
        except headway.AtCapacity:
            say("refused")
        say("limit", governor.capacity("z").limit)
        """
    )

    stranger.expect("refused")
    assert stranger.expect("limit") == "1"


def test_limits_given_in_code_go_with_a_daemon(crew: Crew) -> None:
    """A forked child that outlives its parent is a giver as much as that was."""
    child = crew.start(
        """
        governor = headway.Governor(limits={"z": 1})
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == parent:
            time.sleep(0.001)
        say("limit", governor.capacity("z").limit)
        """
    )

    assert child.expect("limit") == "1"


def test_a_limit_given_in_code_that_was_taken_away_stays_away(crew: Crew) -> None:
    """A giver that only opens the same file again does not set it again."""
    giver = crew.start(
        """
        governor = headway.Governor(limits={"z": 1})
        say("given")
        hear()
        if os.fork() == 0:
            say("child", governor.capacity("z").limit)
            os._exit(0)
        os.wait()
        say("parent", governor.capacity("z").limit)
        """
    )
    giver.expect("given")
    crew.start("headway.Governor().unset_limit('z'); say('unset')").expect("unset")

    giver.tell("go on")

    assert giver.expect("child") == "unlimited"
    assert giver.expect("parent") == "unlimited"


@pytest.mark.parametrize("look", ["snapshot().leases", "capacity('k').used * 'x'"])
def test_a_look_waits_until_all_have_said_what_they_hold(crew: Crew, look: str) -> None:
    """Right after the file went, nobody is told that nobody holds anything."""
    crew.limits(k=2)
    crew.holding("k")
    crew.holding("k")
    (crew.home / "slots.db").unlink()

    looker = crew.start(f"say('seen', len(headway.Governor().{look}))")

    assert looker.expect("seen") == "2"


def test_a_look_does_not_wait_for_ever_and_says_who_is_missing(crew: Crew) -> None:
    """Once; after that the same process looks without waiting."""
    frozen = crew.holding("k")
    frozen.stop()
    (crew.home / "slots.db").unlink()

    looker = crew.start(
        """
        governor = headway.Governor()
        for _ in range(3):
            say("seen", len(governor.snapshot().leases))
        hear()
        """,
        HEADWAY_STORE_TIMEOUT="300ms",
    )

    assert [looker.expect("seen") for _ in range(3)] == ["0", "0", "0"]
    assert looker.logged().count(f"pid {frozen.pid} ") == 1
    assert "has not said yet what it holds" in looker.logged()

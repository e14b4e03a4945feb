"""Deaths around the moment in which a slot goes from one process to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.crash.actor import Board
from tests.crash.kit import lead_to_line

if TYPE_CHECKING:
    from tests.crash.kit import Crew

# A waiter that is ready to be granted, and is killed by its own hand in that moment.
_DIES_WITH_GRANT = """
from headway.stores.own_tickets import OwnTickets
governor = headway.Governor()
OwnTickets.decided = lambda *anything: die()
with governor.slot("k", on_wait=queued):
    say("granted")
"""


def test_a_killed_holders_slot_goes_to_the_next_in_line(crew: Crew) -> None:
    """The first in line gets a killed holder's slot, the second gets the first's."""
    crew.limits(k=1)
    holder = crew.holding("k")
    first, second = crew.waiter("k"), crew.waiter("k")

    holder.kill()
    first.expect("granted")
    first.kill()

    second.expect("granted")


def test_a_killed_waiter_leaves_no_ghost(crew: Crew) -> None:
    """A waiter that is killed in line is not shown, not counted and not waited for."""
    crew.limits(k=1)
    holder, watcher = crew.holding("k"), crew.watcher()
    first, second = crew.waiter("k"), crew.waiter("k")

    first.kill()

    assert watcher.ask("waiting", "waiting") == "1"
    holder.ask("leave", "left")
    second.expect("granted")
    assert watcher.ask("audit", "audited") == "fine"


def test_a_waiter_killed_before_its_wake_up_passes_the_slot_on(crew: Crew) -> None:
    """Who is granted by a release after its death never keeps the next one waiting."""
    crew.limits(k=1)
    holder = crew.holding("k")
    first, second = crew.waiter("k"), crew.waiter("k")

    first.kill()
    holder.ask("leave", "left")

    second.expect("granted")


@pytest.mark.parametrize("kinds", [["waiter", "holder"], ["holder", "waiter"]])
def test_the_next_in_line_dies_together_with_the_holder(crew: Crew, kinds: list[str]) -> None:
    """When the holder and those who would notice it are gone too, the next one still notices."""
    crew.limits(k=1)
    holder = crew.holding("k")
    waiters = [crew.waiter("k") for _ in range(3)]
    last = crew.waiter("k")

    # Frozen first, so that none of them can pass anything on before it dies.
    for child in (*waiters, holder):
        child.stop()
    for kind in kinds:
        for child in waiters if kind == "waiter" else [holder]:
            child.kill()

    last.expect("granted")


def test_a_holder_that_becomes_another_program_gives_back(crew: Crew) -> None:
    """``exec`` drops the lock but keeps the pid: the slot returns all the same."""
    crew.limits(k=1)
    holder = crew.start(
        """
        with headway.slot("k"):
            say("holding")
            hear()
            os.execv("/bin/cat", ["cat"])
        """
    )
    holder.expect("holding")
    waiter = crew.waiter("k")

    holder.tell("exec")

    waiter.expect("granted")
    assert holder.ask("still here", "still") == "here"


def test_a_waiter_killed_by_its_wake_up_passes_the_slot_on(crew: Crew) -> None:
    """Who dies on hearing of its grant never keeps the next one waiting."""
    crew.limits(k=1)
    holder = crew.holding("k")
    first = crew.start(_DIES_WITH_GRANT)
    first.expect("waiting")
    second = crew.waiter("k")

    holder.ask("leave", "left")

    second.expect("granted")
    assert first.ended() == -9


def test_a_frozen_waiter_killed_after_its_grant_passes_the_slot_on(crew: Crew) -> None:
    """A waiter that sleeps through its grant and is then killed gives the slot to the next."""
    crew.limits(k=1)
    holder, watcher = crew.holding("k"), crew.watcher()
    first, second = crew.waiter("k"), crew.waiter("k")

    first.stop()
    holder.ask("leave", "left")
    assert watcher.ask("waiting", "waiting") == "1"
    first.kill()

    second.expect("granted")


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_releaser_killed_around_its_wake_up_still_hands_over(crew: Crew, place: str) -> None:
    """A hand-over is committed before it is told: its teller's death does not lose it."""
    crew.limits(k=1)
    holder = crew.start(
        f"""
        from headway.stores.wakeups import Wakeups
        governor = headway.Governor()
        with governor.slot("k"):
            say("holding")
            hear()
            send = Wakeups.send
            def dying(*anything):
                if {place!r} == "after":
                    send(*anything)
                die()
            Wakeups.send = dying
        """
    )
    holder.expect("holding")
    first, second = crew.waiter("k"), crew.waiter("k")

    holder.tell()

    first.expect("granted")
    first.kill()
    second.expect("granted")


# One waits in line, again and again; who holds looks whether it is alone.
_CONTENDER = """
from headway import turnstile
from tests.crash.actor import Board
turnstile.NOTICE_SECONDS = 0.001
board, me = Board({board!r}), {me}
governor = headway.Governor()
while True:
    hear()
    with governor.slot("k", on_wait=queued):
        with board.inside(me, 1):
            say("won")
"""

# Forks victims that take the slot and die by SIGKILL when told to.
_VICTIMS = """
import tomllib, headway.stores.sqlite
from tests.crash.actor import Board
board = Board({board!r})
while True:
    hear()
    if not (victim := os.fork()):
        with headway.Governor().slot("k"):
            board.enter(0)
            say("holding")
            while True:
                signal.pause()
    hear()
    os.kill(victim, signal.SIGKILL)
    os.waitpid(victim, 0)
"""


def test_two_waiters_find_the_same_dead_holder(crew: Crew) -> None:
    """Of two who find one dead holder at limit 1, one wins at a time, and both in the end."""
    rounds = 1000
    crew.limits(k=1)
    path = str(crew.scratch / "board")
    board = Board.create(path, 3)
    contenders = [crew.start(_CONTENDER.format(board=path, me=me)) for me in (1, 2)]
    watcher = crew.watcher()
    victims = crew.start(_VICTIMS.format(board=path))
    for _ in range(rounds):
        victims.ask("go", "holding")
        for contender in contenders:
            contender.ask("go", "waiting")
        victims.tell("die")
        for contender in contenders:
            lead_to_line(contender, "won")
    assert [board.entries(me) for me in (1, 2)] == [rounds, rounds]
    assert watcher.ask("audit", "audited") == "fine"

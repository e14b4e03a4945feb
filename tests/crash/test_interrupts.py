"""Signals that raise in the caller at any moment: nothing stays behind, nothing gets stuck."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.kit import Crew

# Asks again and again while an alarm raises at a random moment of that.
_INTERRUPTED = """
import random
chance = random.Random({seed})
class Interrupted(BaseException):
    pass
def interrupt(number, frame):
    raise Interrupted
signal.signal(signal.SIGALRM, interrupt)
governor = headway.Governor()
struck = 0
def once():
    keys = chance.choice([["k"], ["k"], ["k/a", "m"], ["k", "m"]])
    longest = chance.choice([0.0001, 0.0005, 0.001, 0.004])
    signal.setitimer(signal.ITIMER_REAL, longest * chance.random())
    with governor.slot(*keys):
        for _ in range(50):
            pass
for turn in range({turns}):
    try:
        try:
            once()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        struck += 1
signal.setitimer(signal.ITIMER_REAL, 0)
say("struck", struck)
hear()
from tests.crash.audit import take_all
take_all(governor, {{"k": 2, "m": 1}})
say("took all")
hear()
"""


_MANY = pytest.param(20_000, id="many", marks=pytest.mark.soak)


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("turns", [pytest.param(1500, id="some"), _MANY])
def test_an_exception_at_any_moment_leaves_nothing_behind(
    crew: Crew, processes: int, turns: int
) -> None:
    """Whoever is struck while asking, waiting or giving back holds nothing afterwards."""
    crew.limits(k=2, k__a=1, m=1)
    children = [
        crew.start(_INTERRUPTED.format(seed=seed, turns=turns)) for seed in range(processes)
    ]
    for child in children:
        assert int(child.expect("struck")) > turns / 100

    for child in children:
        child.ask("take all", "took all")
    watcher = crew.watcher()
    assert watcher.ask("take-all k 2", "took") == "all"
    assert watcher.ask("audit", "audited") == "fine"
    assert watcher.ask("leases", "leases") == "0"
    assert watcher.ask("waiting", "waiting") == "0"


def test_an_exception_in_one_thread_costs_no_other_its_grant(crew: Crew) -> None:
    """A thread that asks beside one that is struck again and again gets every turn of its own."""
    crew.limits(k=1)
    child = crew.start(
        """
        import random, threading
        chance = random.Random(16)
        class Interrupted(BaseException):
            pass
        def interrupt(number, frame):
            raise Interrupted
        signal.signal(signal.SIGALRM, interrupt)
        governor = headway.Governor()
        struck, turns, done = 0, 0, threading.Event()
        def neighbour():
            global turns
            while not done.is_set():
                with governor.slot("k"):
                    time.sleep(0.0005)
                turns += 1
        rival = threading.Thread(target=neighbour, daemon=True)
        rival.start()
        def wait_for_turns(before):
            end = time.monotonic() + 5
            while turns == before:
                assert time.monotonic() < end, "the neighbour sleeps for ever"
                time.sleep(0.0001)
        for _ in range(1500):
            before, interrupted = turns, struck
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 2e-3))
                    for _ in range(2):
                        with governor.slot("k", timeout=5):
                            pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                struck += 1
                signal.setitimer(signal.ITIMER_REAL, 0)
            if struck != interrupted:
                wait_for_turns(before)
        done.set()
        rival.join(5)
        say("struck", struck if not rival.is_alive() else "hangs")
        hear()
        """
    )
    assert int(child.expect("struck")) > 100
    assert crew.watcher().ask("take-all k 1", "took") == "all"


def test_a_signal_handler_that_uses_the_store_itself(crew: Crew) -> None:
    """A handler that gives a slot back, or asks for one, in the middle of an operation is safe."""
    crew.limits(k=4)
    child = crew.start(
        """
        governor = headway.Governor()
        held, refused = [], 0
        def handler(number, frame):
            global refused
            try:
                if held:
                    held.pop().__exit__(None, None, None)
                else:
                    with governor.slot("k", wait=False):
                        pass
            except (headway.StoreUnavailable, headway.AtCapacity):
                refused += 1
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        for turn in range(3000):
            with governor.slot("k"):
                pass
            if turn % 10 == 0 and len(held) < 3:  # all four would be a wait for oneself
                slot = governor.slot("k", timeout=5)
                try:
                    slot.__enter__()
                    held.append(slot)
                except headway.QueueTimeout:
                    pass
        signal.setitimer(signal.ITIMER_REAL, 0)
        for slot in held:
            slot.__exit__(None, None, None)
        say("done", len(governor.snapshot().leases))
        hear()
        """
    )
    assert child.expect("done") == "0"
    assert crew.watcher().ask("take-all k 4", "took") == "all"

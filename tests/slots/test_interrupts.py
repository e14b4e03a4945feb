"""Ctrl-C and garbage strike between any two steps; no slot stays behind."""

from __future__ import annotations

import ctypes
import itertools
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.slots.interrupting import Strike
from tests.slots.support import (
    PATIENCE_SECONDS,
    Held,
    Worker,
    assert_clean,
    assert_counts_are_true,
    holding_tasks,
    is_clean,
    until,
    waiting_tasks,
)

from headway import Governor, HeadwayError, waiting

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

# Python cannot raise an interrupt that strikes while garbage is taken away; it prints it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

Scenario = Callable[[Governor], None]


def enter_and_leave(governor: Governor) -> None:
    """Nobody else is there."""
    with governor.slot("k/a", task="it"):
        pass


def enter_heavily(governor: Governor) -> None:
    """Several keys, one of them refused."""
    with governor.slot("k/a", "other", weight=2, wait=False):
        pass


def run_out_of_time(governor: Governor) -> None:
    """Somebody else has the slot."""
    with governor.slot("k", timeout=0.001, task="it"):
        pass


def lend(governor: Governor) -> None:
    """A child goes ahead on its parent's slot."""
    with governor.slot("k") as parent, governor.slot("k/b", parent=parent, wait=False):
        pass


def strike_everywhere(
    scenario: Callable[[], None],
    act: Callable[[], None],
    *,
    prepare: Callable[[], None] = lambda: None,
    is_well: Callable[[], object],
) -> None:
    """Run the scenario until no point is left to strike at; after each all must be well.

    The thread stays the same, as the main thread does after Ctrl-C.
    """
    strike = Strike(act)

    def run() -> int:
        for n in itertools.count(1):
            prepare()
            try:
                with strike.at(n):
                    scenario()
            except (KeyboardInterrupt, HeadwayError):
                pass
            if strike.where is None:
                return n
            until(is_well)
        raise AssertionError

    worker = Worker(run)
    worker.join(4 * PATIENCE_SECONDS)
    assert not worker.is_alive(), f"hangs after a strike in {strike.where}"
    assert worker.error is None, f"after a strike in {strike.where}: {worker.error!r}"
    assert worker.result() > 10


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("scenario", [enter_and_leave, enter_heavily, lend])
def test_an_interrupt_anywhere_leaves_no_slot_behind(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    """At every point of entering and leaving: the thread goes on, and the slot is free."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.002)
    governor = govern({"k": 2})

    strike_everywhere(lambda: scenario(governor), interrupt, is_well=lambda: is_clean(governor))

    assert_counts_are_true(governor)
    Worker(lambda: enter_and_leave(governor)).result()


def test_an_interrupt_anywhere_in_a_wait_leaves_no_waiter_behind(
    govern: Govern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every point of waiting and giving up: nobody stands in line afterwards."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.002)
    governor = govern({"k": 1})

    with Held(governor, "k", task="other"):
        strike_everywhere(
            lambda: run_out_of_time(governor),
            interrupt,
            is_well=lambda: not waiting_tasks(governor) and holding_tasks(governor) == ["other"],
        )
    assert_clean(governor)


@pytest.mark.parametrize("scenario", [enter_and_leave, enter_heavily, lend])
def test_garbage_collected_anywhere_gives_back_and_hangs_nobody(
    govern: Govern, monkeypatch: pytest.MonkeyPatch, scenario: Scenario
) -> None:
    """A forgotten lease that is collected in the middle of an operation is given back."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.002)
    governor = govern({"k": 2})
    forgotten: list[Any] = []

    def forget() -> None:
        forgotten.append(governor.slot("forgotten").__enter__())

    strike_everywhere(
        lambda: scenario(governor),
        forgotten.clear,
        prepare=forget,
        is_well=lambda: is_clean(governor),
    )

    forgotten.clear()
    assert_clean(governor)


def test_interrupts_at_random_moments_leave_no_slot_behind(
    govern: Govern, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that fight for two slots are struck over and over; the counts stay true."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.002)
    governor = govern({"k": 2})
    choose = random.Random(16)
    stop = threading.Event()

    def fight() -> None:
        with governor.slot("k/a", timeout="10s"):
            pass
        with governor.slot("k/b", "other", weight=2, timeout="10s"):
            pass

    def fight_until_struck(inside: threading.Event) -> None:
        try:
            inside.set()
            while not stop.is_set():
                fight()
        except KeyboardInterrupt:
            pass

    def fight_on() -> None:
        while not stop.is_set():
            fight()

    rivals = [Worker(fight_on) for _ in range(2)]
    for _ in range(40):
        inside = threading.Event()
        struck = Worker(partial(fight_until_struck, inside))
        inside.wait()
        threading.Event().wait(choose.random() * 0.005)
        assert struck.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(struck.ident), ctypes.py_object(KeyboardInterrupt)
        )
        struck.result()
    stop.set()
    for rival in rivals:
        rival.result()

    assert_counts_are_true(governor)
    assert_clean(governor)
    with governor.slot("k", weight=2, wait=False):
        pass

"""An interrupt in one thread never costs another thread what was decided for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.slots.interrupting import Strike
from tests.slots.support import (
    Held,
    Worker,
    assert_clean,
    assert_counts_are_true,
    is_waiting,
    ticket_of,
    until,
)

from headway import Cancelled, Governor, HeadwayError, turnstile, waiting

if TYPE_CHECKING:
    from tests.slots.conftest import Govern

# Python cannot raise an interrupt that strikes while garbage is taken away; it prints it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

Neighbour = Callable[[Governor], Worker[str]]


def thread(governor: Governor) -> Worker[str]:
    """A thread that waits for ``k``."""

    def work() -> str:
        with governor.slot("k", task="neighbour"):
            return "done"

    return Worker(work)


def task(governor: Governor) -> Worker[str]:
    """A task on an event loop of another thread that waits for ``k``."""

    async def work() -> str:
        async with governor.slot("k", task="neighbour"):
            return "done"

    return Worker(lambda: asyncio.run(work()))


def interrupt() -> None:
    """What Ctrl-C does."""
    raise KeyboardInterrupt


Once = Callable[[Strike, int], Callable[[], None]]


def strike_everywhere(once: Once) -> None:
    """Do it until no point is left to strike at; ``once`` answers what has to hold afterwards."""
    strike, missed, n = Strike(interrupt), 0, 0
    while missed < 5:  # now and then another thread does a part of it, and there are fewer points
        n += 1
        check = once(strike, n)
        missed = missed + 1 if strike.where is None else 0
        try:
            check()
        except BaseException as error:
            raise AssertionError(f"after a strike in {strike.where}") from error
    assert n > 15


def beside_a_holder(governor: Governor, once: Once) -> Once:
    """The same while another thread holds ``k``, until all that has to hold does."""

    def held_once(strike: Strike, n: int) -> Callable[[], None]:
        held = Held(governor, "k")
        check = once(strike, n)

        def check_and_let_go() -> None:
            with held:
                check()

        return check_and_let_go

    return held_once


@pytest.fixture
def governor(govern: Govern, monkeypatch: pytest.MonkeyPatch) -> Governor:
    """One slot on ``k``, and chores that are done without delay."""
    monkeypatch.setattr(waiting, "_TICK_SECONDS", 0.05)
    return govern({"k": 1})


@pytest.mark.parametrize("neighbour", [thread, task])
def test_an_interrupted_release_wakes_the_next_in_line(
    governor: Governor, neighbour: Neighbour
) -> None:
    """At whatever point of leaving the block it strikes, the waiting neighbour gets its turn."""

    def once(strike: Strike, n: int) -> Callable[[], None]:
        try:
            with governor.slot("k"):
                worker = neighbour(governor)
                until(lambda: is_waiting(governor, "neighbour"))
                strike.at(n).__enter__()
        except KeyboardInterrupt:
            pass
        strike.__exit__()

        def check() -> None:
            assert worker.result() == "done"

        return check

    strike_everywhere(once)
    assert_counts_are_true(governor)
    assert_clean(governor)


@pytest.mark.parametrize("neighbour", [thread, task])
def test_an_interrupted_wait_wakes_who_stood_behind(
    governor: Governor, neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever leaves the line at any point lets in the one who only waited for it."""
    monkeypatch.setattr(turnstile, "NOTICE_SECONDS", 0.005)
    governor.set_limit("k", 2)

    def once(strike: Strike, n: int) -> Callable[[], None]:
        started: list[Worker[str]] = []

        def join(_: object) -> None:
            started.append(neighbour(governor))
            until(lambda: is_waiting(governor, "neighbour"))
            strike.at(n).__enter__()

        try:
            with governor.slot("k", weight=2, timeout=0.015, on_wait=join):
                raise AssertionError("not granted")
        except (KeyboardInterrupt, HeadwayError):
            pass
        strike.__exit__()

        def check() -> None:
            assert [worker.result() for worker in started] == ["done"]

        return check

    strike_everywhere(beside_a_holder(governor, once))
    assert_counts_are_true(governor)
    assert_clean(governor)


@pytest.mark.parametrize("neighbour", [thread, task])
def test_an_interrupted_cancel_is_heard_by_who_was_cancelled(
    governor: Governor, neighbour: Neighbour
) -> None:
    """If the ticket was cancelled, its owner gets ``Cancelled``; if not, it can be cancelled."""

    def once(strike: Strike, n: int) -> Callable[[], None]:
        worker = neighbour(governor)
        until(lambda: is_waiting(governor, "neighbour"))
        ticket_id = ticket_of(governor, "neighbour")
        try:
            with strike.at(n):
                governor.cancel(ticket_id)
        except KeyboardInterrupt:
            pass

        def check() -> None:
            until(lambda: governor.cancel(ticket_id) or not worker.is_alive())
            with pytest.raises(Cancelled):
                worker.result()

        return check

    strike_everywhere(beside_a_holder(governor, once))
    assert_clean(governor)


def test_an_interrupted_limit_lets_in_whom_it_admits(governor: Governor) -> None:
    """If the limit was raised, those whom it admits are running."""

    def once(strike: Strike, n: int) -> Callable[[], None]:
        governor.set_limit("k", 1)
        worker = thread(governor)
        until(lambda: is_waiting(governor, "neighbour"))
        try:
            with strike.at(n):
                governor.set_limit("k", 2)
        except KeyboardInterrupt:
            pass

        def check() -> None:
            if is_waiting(governor, "neighbour"):
                governor.set_limit("k", 2)
            assert worker.result() == "done"

        return check

    strike_everywhere(beside_a_holder(governor, once))
    assert_clean(governor)


@pytest.mark.parametrize("url", ["memory", "sqlite"], indirect=True)
@pytest.mark.parametrize("neighbour", [thread, task])
def test_an_interrupted_close_sends_everyone_away(govern: Govern, neighbour: Neighbour) -> None:
    """Closing that was interrupted and repeated leaves nobody waiting."""

    def once(strike: Strike, n: int) -> Callable[[], None]:
        governor = govern({"k": 1})
        slot = governor.slot("k")
        slot.__enter__()
        workers = [neighbour(governor) for _ in range(2)]
        until(lambda: len(governor.snapshot().waiting) == len(workers))
        try:
            with strike.at(n):
                governor.close()
        except KeyboardInterrupt:
            governor.close()

        def check() -> None:
            for worker in workers:
                with pytest.raises(Cancelled):
                    worker.result()

        return check

    strike_everywhere(once)

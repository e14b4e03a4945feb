"""Cool-downs and budgets among processes: whoever watches the clock may be frozen or killed."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.crash.kit import Child, Crew

COOLING = """
governor = headway.Governor()
governor.cool_down("llm/openai", float(os.environ["COOLING"]), reason="429")
governor.set_limit("llm/openai", 9)
say("cooling")
hear()
"""


def _cool(crew: Crew, seconds: float) -> Child:
    child = crew.start(COOLING, COOLING=str(seconds))
    child.expect("cooling")
    return child


def _cooling_with(crew: Crew, *, waiting: int, seconds: float) -> list[Child]:
    """Processes that wait for nothing but the end of a cool-down."""
    crew.limits(llm__openai=1)
    crew.holding("llm/openai")
    waiters = [crew.waiter("llm/openai/gpt") for _ in range(waiting)]
    _cool(crew, seconds)
    return waiters


def test_a_cool_down_stops_every_process(crew: Crew) -> None:
    """Who set it may be gone: it is the home's."""
    crew.limits(k=1)
    _cool(crew, 300).kill()
    late = crew.waiter("llm/openai/gpt")
    assert late.line_within(0.3) is None
    resuming = crew.start(
        """
        headway.Governor().resume("llm/openai")
        say("resumed")
        """
    )
    resuming.expect("resumed")
    late.expect("granted")


def test_the_first_in_line_goes_first_and_then_the_rest(crew: Crew) -> None:
    """Each in a process of its own; the others wait for its end or its answer."""
    first, *others = _cooling_with(crew, waiting=3, seconds=0.3)
    first.expect("granted")
    for other in others:
        assert other.line_within(0.4) is None
    first.ask("leave", "left")
    for other in others:
        other.expect("granted")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_the_time_is_kept_without_the_first_in_line(crew: Crew, how: str) -> None:
    """Its process watches the clock for all; frozen or killed, another one does."""
    first, second = _cooling_with(crew, waiting=2, seconds=1.0)
    if how == "kill":
        first.kill()
        second.expect("granted")
        return
    first.stop()
    watcher = crew.watcher()
    deadline = time.monotonic() + 30
    while watcher.ask("leases", "leases") != "2":  # the one that had its slot before, and it
        assert time.monotonic() < deadline, "nobody kept the time"
    first.wake()
    first.expect("granted")
    first.ask("leave", "left")
    second.expect("granted")


def test_a_killed_probe_makes_way_for_the_next(crew: Crew) -> None:
    """One after the other, never two at once."""
    waiters = _cooling_with(crew, waiting=3, seconds=0.2)
    for probe, behind in zip(waiters, [*waiters[1:], None], strict=True):
        probe.expect("granted")
        if behind is not None:
            assert behind.line_within(0.2) is None
            probe.kill()


# Asks again and again, and says when it was let in; its minutes last as long as it is told.
SPENDING = """
import time
from headway.stores import book

book.WINDOW_SECONDS = float(os.environ["WINDOW"])
governor = headway.Governor()
say("ready")
hear()
while True:
    with governor.slot("llm/openai/gpt"):
        say("at", time.clock_gettime(time.CLOCK_BOOTTIME))
"""


def test_a_budget_holds_from_many_processes_and_over_the_restart_of_one(crew: Crew) -> None:
    """In any window, by the times that those say who were let in."""
    window, budget = 1.0, 5
    _hold_a_budget(crew, window=window, budget=budget, windows=4)


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_budget_holds_over_any_minute(crew: Crew) -> None:
    """The same with the minutes that they really have."""
    _hold_a_budget(crew, window=61.0, budget=20, windows=3)


def _hold_a_budget(crew: Crew, *, window: float, budget: int, windows: int) -> None:
    crew.home.mkdir(mode=0o700, parents=True)
    (crew.home / "config.toml").write_text(
        f'[limits]\n"llm/openai" = {{ requests_per_minute = {budget} }}\n'
    )
    spenders = [crew.start(SPENDING, WINDOW=str(window)) for _ in range(4)]
    for spender in spenders:
        spender.expect("ready")
    for spender in spenders:
        spender.tell("go")
    times: list[float] = []
    replaced = False
    deadline = time.monotonic() + 60 + 3 * window * windows
    while len(times) < budget * windows:
        assert time.monotonic() < deadline, f"only {len(times)} were let in"
        for spender in spenders:
            while (line := spender.line_within(0.01)) is not None:
                times.append(float(line.removeprefix("at ")))
        if len(times) >= budget and not replaced:
            replaced = True
            spenders[0].kill()
            times += [float(line.removeprefix("at ")) for line in spenders[0].unread().splitlines()]
            spenders[0] = crew.start(SPENDING, WINDOW=str(window))
            spenders[0].expect("ready")
            spenders[0].tell("go")
    times.sort()
    spans = [later - first for first, later in zip(times, times[budget:], strict=False)]
    # What is let in at one moment is said a little later: the margin of the window is for that.
    assert min(spans) > window - 0.5, f"{budget + 1} requests in {min(spans):.3f} s"
    assert os.path.exists(crew.home / "slots.db")

"""Estimates of waits: they count down, know programs apart, and are right in simulated queues."""

from __future__ import annotations

import random
from statistics import median
from typing import TYPE_CHECKING

import pytest

from headway import finished, forecasts
from headway.finished import Finished, Holds
from headway.forecasts import Forecast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def nothing(_: str) -> Sequence[float]:
    """What is known of programs in a home where none has ended yet."""
    return ()


def test_an_estimate_counts_down() -> None:
    """What has passed of the present hold is not waited for again."""
    starts = [
        Forecast(1, [(age, 1, "")], usual_seconds=100.0, holds=nothing).next_start("")
        for age in (0.0, 40.0, 90.0)
    ]

    assert starts == [100.0, 60.0, 20.0]


def test_places_further_back_wait_for_those_in_front() -> None:
    """Two slots: every second place adds one hold."""
    running = [(10.0, 1, ""), (70.0, 1, "")]
    line = Forecast(2, running, usual_seconds=100.0, holds=nothing)

    assert [line.next_start("") for _ in range(4)] == [30.0, 90.0, 130.0, 190.0]


def test_a_program_is_judged_by_its_own_past() -> None:
    """And one that has run for longer than most by those that did as well."""
    past = {"slow": [100.0, 600.0, 700.0], "fast": [5.0, 6.0, 7.0], "": [6.0, 100.0]}
    line = Forecast(
        1, [(200.0, 1, "slow")], usual_seconds=50.0, holds=lambda program: past.get(program, ())
    )

    assert [line.next_start(name) for name in ("fast", "slow")] == [500.0, 506.0]


def test_a_range_is_told_while_little_is_known() -> None:
    """One number only from enough holds on; none if nothing is known at all."""
    assert forecasts.spread(0) is None
    assert forecasts.spread(1) == (0.5, 0.5, 2.0)
    assert forecasts.spread(forecasts.FEW - 1) == (0.1, 0.9, 1.0)
    assert forecasts.spread(forecasts.FEW) is None


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_the_median_error_in_simulated_queues_is_under_a_quarter(slots: int) -> None:
    """Two programs, of which one takes ten times as long, in random order.

    So it is over the whole line. What the very first waits for is a single hold, and how long one
    takes is known to nobody.
    """
    chance = random.Random(slots)
    usual = {"agent": 600.0, "tests": 60.0}

    def length(program: str) -> float:
        return usual[program] * chance.lognormvariate(0.0, 0.3)

    past = {program: [length(program) for _ in range(50)] for program in usual}
    known = {**past, "": [*past["agent"], *past["tests"]]}
    errors, errors_by_mean = [], []
    mean = sum(known[""]) / len(known[""])
    for _ in range(300):
        # Those who run have done so for some part of the time that they will take.
        running: list[tuple[float, int, str]] = []
        ends: list[float] = []
        while len(running) < slots:
            program = chance.choice(list(usual))
            whole = length(program)
            age = chance.random() * 600.0
            if age < whole:
                running.append((age, 1, program))
                ends.append(whole - age)
        line = Forecast(
            slots, running, usual_seconds=None, holds=lambda program: known.get(program, ())
        )
        for place in range(1, 3 * slots + 1):
            program = chance.choice(list(usual))
            expected = line.next_start(program)
            actual = min(ends)
            ends.remove(actual)
            ends.append(actual + length(program))
            errors.append(abs(expected - actual) / actual)
            errors_by_mean.append(abs(mean * place / slots - actual) / actual)

    assert median(errors) < 0.25
    assert median(errors) < 0.75 * median(errors_by_mean)


def test_the_past_is_read_from_the_log_of_finished_commands(tmp_path: Path) -> None:
    """For each key and everything above it, by program, and again when more has ended."""
    home = str(tmp_path)
    holds = Holds(home)
    holds.refresh()
    assert holds.of("agent", "") == ()

    for number, command in enumerate(["headway run cat -n", "headway run /bin/sleep 9"]):
        finished.record(
            home, Finished(f"a-{number}", 1.0, 2.0 + number, 0, ("agent/x",), "a\tb", command)
        )
        holds.refresh()

    assert holds.of("agent", "cat") == [2.0]
    assert holds.of("agent/x", "sleep") == [3.0]
    assert holds.of("agent", "") == [3.0, 2.0]
    assert [one.task for one in finished.read(home)] == ["a b", "a b"]


def test_a_full_log_is_put_aside_and_a_broken_line_passed_over(tmp_path: Path) -> None:
    """The two together are bounded."""
    home = str(tmp_path)
    for number in range(3000):
        finished.record(home, Finished(f"a-{number}", 1.0, 2.0, 0, ("agent",), None, "c" * 80))
    with open(tmp_path / finished.FILE_NAME, "a", encoding="utf-8") as file:
        file.write("half a li")

    assert finished.read(home)[0].id == "a-2999"
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 300_000

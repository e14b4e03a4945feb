"""Watchdogs of one attempt: off unless set, and each warns before it bites."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from headway import config, family
from headway.watchdogs import Bite, Chosen, Watchdog

if TYPE_CHECKING:
    from pathlib import Path

DAY = 1_700_000_000.0


class World:
    """The time, and what the processes of the attempt have computed and written."""

    def __init__(self) -> None:
        self.now, self.cpu_seconds, self.written = 50.0, 0.5, 0


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """All that a watchdog can see."""
    world = World()
    monkeypatch.setattr(time, "monotonic", lambda: world.now)
    monkeypatch.setattr(time, "time", lambda: DAY + world.now)
    return world


class Guarded:
    """An attempt with a watchdog that looks as often as it wants to."""

    def __init__(self, world: World, home: Path, *options: Any, **settings: str) -> None:
        environ = {f"HEADWAY_WATCHDOG_{name.upper()}": value for name, value in settings.items()}
        self._world = world
        chosen = Chosen(config.load(str(home), environ), dict(options))
        self.dog = Watchdog(chosen, cpu_seconds=lambda: world.cpu_seconds)
        self.warnings: list[tuple[float, str]] = []
        self.bite: Bite | None = None
        self.began = world.now

    def run(self, seconds: float, *, cpu: float = 0.0, output: int = 0) -> None:
        """Let time pass; each second so much is computed and written."""
        pace = self.dog.looks_every_seconds or 1.0
        until = self._world.now + seconds
        while self._world.now < until - 1e-9 and self.bite is None:
            self._world.now += pace
            self._world.cpu_seconds += cpu * pace
            if output:
                self._world.written += max(1, round(output * pace))
                self.dog.heard()
            warnings, self.bite = self.dog.look(self._world.written)
            passed = round(self._world.now - self.began, 6)
            self.warnings += [(passed, warning) for warning in warnings]

    @property
    def bitten_after(self) -> float:
        """When it bit."""
        assert self.bite is not None
        return round(self._world.now - self.began, 6)


def test_nothing_is_watched_unless_it_is_set(world: World, home: Path) -> None:
    """An attempt may be silent, slow and loud for as long as it likes."""
    attempt = Guarded(world, home)
    assert attempt.dog.looks_every_seconds is None
    attempt.run(1e6)
    world.written = 10**14
    attempt.run(1)

    assert (attempt.warnings, attempt.bite) == ([], None)


def test_max_runtime_warns_and_bites(world: World, home: Path) -> None:
    """Whatever the attempt does meanwhile; its record has setting, value and last activity."""
    attempt = Guarded(world, home, max_runtime="100s")
    attempt.run(90, cpu=1, output=10)
    active_at = DAY + world.now
    attempt.run(90, cpu=1)

    ((warned, text),) = attempt.warnings
    assert warned == pytest.approx(80, abs=1.5)
    assert text == "max_runtime (100 s) ends this in 20 s"
    assert attempt.bitten_after == pytest.approx(100, abs=1.5)
    assert attempt.bite == ("max_runtime", "watchdog.max_runtime", "100 s", active_at)
    assert attempt.bite.reason == (
        "killed by the watchdog max_runtime: watchdog.max_runtime = 100 s,"
        " last activity 10 s before"
    )


def test_max_output_warns_and_bites(world: World, home: Path) -> None:
    """At the limit it may be, above it not."""
    attempt = Guarded(world, home, max_output="1KB")
    for world.written, warnings in ((799, 0), (800, 1), (1000, 1)):
        attempt.run(1)
        assert len(attempt.warnings) == warnings
        assert attempt.bite is None
    world.written = 1001
    attempt.run(1)

    assert attempt.warnings[0][1] == "max_output will end this: 800B of 1KB are written"
    assert attempt.bite is not None
    assert attempt.bite[:3] == ("max_output", "watchdog.max_output", "1KB")


def test_idle_is_what_neither_writes_nor_computes(world: World, home: Path) -> None:
    """It is warned of at half of its time, and then ended."""
    attempt = Guarded(world, home, idle_kill="100s")
    attempt.run(300, cpu=0.01)
    attempt.run(300, output=5)
    assert (attempt.warnings, attempt.bite) == ([], None)
    active_at = DAY + world.now
    attempt.run(200)

    ((warned, text),) = attempt.warnings
    assert warned == pytest.approx(650, abs=6)
    assert text.startswith("no output and no CPU time for 5")
    assert text.endswith("; idle_kill ends it at 100 s")
    assert attempt.bitten_after == pytest.approx(700, abs=6)
    assert attempt.bite is not None
    assert attempt.bite[:3] == ("idle_kill", "watchdog.idle_kill", "100 s")
    assert attempt.bite.last_activity_at == pytest.approx(active_at, abs=6)


@pytest.mark.parametrize("sign", ["cpu", "output"])
def test_a_sign_of_life_starts_the_time_anew(world: World, home: Path, sign: str) -> None:
    """Also after a warning, and then there is another one."""
    attempt = Guarded(world, home, idle_warn="20s", idle_kill="100s")
    attempt.run(90)
    assert len(attempt.warnings) == 1
    attempt.run(2, **{sign: 1})
    attempt.run(90)

    assert attempt.bite is None
    assert [round(warned, -1) for warned, _ in attempt.warnings] == [20, 110]
    attempt.run(20)
    assert attempt.bite is not None


def test_a_process_that_ended_is_no_sign_of_life(world: World, home: Path) -> None:
    """What it had computed is not counted any more: less is not more."""
    attempt = Guarded(world, home, idle_kill="100s")
    world.cpu_seconds = 50.0
    attempt.run(10)
    for _ in range(5):
        world.cpu_seconds -= 5.0
        attempt.run(15)
    attempt.run(50)

    assert attempt.bite is not None
    assert attempt.bitten_after <= 120


def test_a_warning_alone_never_bites(world: World, home: Path) -> None:
    """``idle_warn`` without ``idle_kill`` says so once, and that is all."""
    attempt = Guarded(world, home, idle_warn="10s")
    attempt.run(10_000)

    ((_, text),) = attempt.warnings
    assert text.startswith("no output and no CPU time for 1")
    assert "idle_kill" not in text
    assert attempt.bite is None


def test_an_option_of_the_job_beats_the_setting_and_is_named(world: World, home: Path) -> None:
    """In both directions, and ``off`` takes one away."""
    own = Guarded(world, home, ("max_runtime_seconds", 10.0), max_runtime="100s")
    own.run(50)
    assert own.bitten_after == pytest.approx(10, abs=1)
    assert own.bite is not None
    assert own.bite[:3] == ("max_runtime", "--max-runtime", "10 s")

    off = Guarded(world, home, ("max_runtime_seconds", None), max_runtime="100s")
    off.run(500)
    assert off.bite is None

    for name, option in (
        ("idle_kill_seconds", "--idle-kill"),
        ("max_output_bytes", "--max-output"),
    ):
        world.written = 0
        other = Guarded(world, home, (name, 20.0), max_runtime="100s")
        other.run(10, cpu=1)
        world.written = 21
        other.run(50)
        assert other.bite is not None
        assert other.bite.setting == option


def test_one_setting_does_not_look_like_another(world: World, home: Path) -> None:
    """A job's own ``--idle-warn`` is not what ended it."""
    attempt = Guarded(world, home, ("idle_warn_seconds", 5.0), idle_kill="20s")
    attempt.run(50)

    assert attempt.bite is not None
    assert attempt.bite.setting == "watchdog.idle_kill"


@pytest.mark.parametrize("limit", ["400ms", "1s", "3m", "10h"])
def test_it_looks_often_enough_for_its_limit(world: World, home: Path, limit: str) -> None:
    """A twentieth of a short one, and at least every second."""
    for name in ("max_runtime", "idle_kill", "idle_warn"):
        pace = Guarded(world, home, **{name: limit}).dog.looks_every_seconds
        seconds = getattr(config.load(str(home), _variable(name, limit)), f"{name}_seconds")
        assert pace is not None
        assert 0 < pace <= min(1.0, seconds / 20)


def _variable(name: str, value: str) -> dict[str, str]:
    return {f"HEADWAY_WATCHDOG_{name.upper()}": value}


def test_the_first_to_run_out_bites_and_no_other(world: World, home: Path) -> None:
    """There is one reason."""
    attempt = Guarded(world, home, max_runtime="100s", idle_kill="30s", max_output="10MB")
    attempt.run(500)

    assert attempt.bite is not None
    assert attempt.bite.mechanism == "idle_kill"
    assert "max_runtime" not in " ".join(text for _, text in attempt.warnings)


@pytest.mark.parametrize("name", ["max_runtime", "idle_kill", "max_output"])
def test_who_was_asleep_is_warned_before_it_bites(world: World, home: Path, name: str) -> None:
    """The limit was passed between two looks: the warning is still written first."""
    attempt = Guarded(world, home, **{name: "1KB" if name == "max_output" else "100s"})
    attempt.run(1)
    world.now += 1_000
    world.written = 10**6
    attempt.run(100)

    assert attempt.bite is not None
    assert attempt.bite.mechanism == name
    assert len(attempt.warnings) == 1


def test_who_was_stopped_with_its_watchdog_is_not_idle(world: World, home: Path) -> None:
    """It gets the chance to go on before it is called dead."""
    attempt = Guarded(world, home, idle_kill="100s")
    attempt.run(10, cpu=1)
    world.now += 10_000
    attempt.run(1)
    assert attempt.bite is None
    attempt.run(300, cpu=1)

    assert attempt.bite is None


def test_the_processor_time_is_that_of_the_whole_family(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the children that have ended; one that ends meanwhile is passed over."""
    import psutil  # noqa: PLC0415

    class Times:
        user, system, children_user, children_system = 1.0, 2.0, 4.0, 8.0

    class Process:
        def __init__(self, *, is_gone: bool) -> None:
            self._is_gone = is_gone

        def cpu_times(self) -> type[Times]:
            if self._is_gone:
                raise psutil.NoSuchProcess(1)
            return Times

    relatives = [Process(is_gone=False), Process(is_gone=True), Process(is_gone=False)]
    monkeypatch.setattr("headway.family.members", lambda _: relatives)

    assert family.cpu_seconds() == 30.0

"""Watchdogs of one running command: each warns before it acts, and says why it did."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

from headway import durations, family, setting_table, sizes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headway.config import Settings

# A watchdog without a warning of its own gives it at this part of its limit.
_WARN_AT = 0.8
_LOOK_SECONDS = 1.0
# Of a limit, so exactly is it kept.
_LOOKS = 20
# What is usual: a tool call with the model's turn before it, and a task of middling size.
_CALL_SECONDS = 2.8
_USUAL_SECONDS = 1800.0
_SHORT_SECONDS = 120.0
_FEW_REPEATED = 5
# By the names that people know, what each is called among the settings.
FIELDS = {
    name.removeprefix("watchdog."): setting.field
    for name, setting in setting_table.SETTINGS.items()
    if name.startswith("watchdog.")
}


def as_option(name: str) -> str:
    """How the command line writes one."""
    return f"--{name.replace('_', '-')}"


class Bite(NamedTuple):
    """A watchdog ends the command."""

    mechanism: str
    setting: str
    value: str
    last_activity_at: float

    @property
    def reason(self) -> str:
        ago = time.time() - self.last_activity_at
        return (
            f"killed by the watchdog {self.mechanism}: {self.setting} = {self.value},"
            f" last activity {ago:.0f} s before"
        )


class Chosen:
    """What counts for one command: what was set for it alone, and else the settings.

    ``options`` are those of its own, by the names of the settings that they replace, and
    ``spelled`` says how its caller writes one.
    """

    def __init__(
        self,
        settings: Settings,
        options: Mapping[str, object],
        spelled: Callable[[str], str] = as_option,
    ) -> None:
        self._settings, self._options, self._spelled = settings, options, spelled

    def value(self, name: str) -> Any:
        """The value of a watchdog; none if it is off."""
        field = FIELDS[name]
        return self._options.get(field, getattr(self._settings, field))

    def setting(self, name: str) -> str:
        """Where people find it."""
        return self._spelled(name) if FIELDS[name] in self._options else f"watchdog.{name}"

    def doubts(self) -> list[str]:
        """Values that would soon end an agent's usual work, each with what it would last for."""
        found = [(name, self.value(name)) for name in FIELDS]
        whys = [(name, _doubt(name, value)) for name, value in found if value is not None]
        return [f"{self.setting(name)} may end usual work soon: {why}" for name, why in whys if why]


def _doubt(name: str, value: float) -> str | None:
    if name == "max_tool_calls" and value * _CALL_SECONDS < _USUAL_SECONDS:
        lasts = durations.in_words(value * _CALL_SECONDS)
        return f"{value} tool calls last about {lasts} at {_CALL_SECONDS} s each"
    if name == "max_repeated_calls" and value < _FEW_REPEATED:
        return f"an agent that waits for something makes the same call {value} times in a row"
    if name == "max_runtime" and value < _SHORT_SECONDS:
        calls = max(1, round(value / _CALL_SECONDS))
        return f"{durations.in_words(value)} last for about {calls} tool call{'s' * (calls > 1)}"
    if name == "idle_kill" and value < _SHORT_SECONDS:
        return f"models think for {durations.in_words(value)} without a word"
    return None


class Watchdog:
    """Looks after one running command; ``cpu_seconds`` is what its processes have used so far."""

    def __init__(
        self, chosen: Chosen, *, cpu_seconds: Callable[[], float] = family.cpu_seconds
    ) -> None:
        self._chosen, self._measure_cpu = chosen, cpu_seconds
        self._max_runtime: float | None = chosen.value("max_runtime")
        self._max_output: int | None = chosen.value("max_output")
        self._idle_kill: float | None = chosen.value("idle_kill")
        idle_warn: float | None = chosen.value("idle_warn")
        if idle_warn is None and self._idle_kill is not None:
            idle_warn = self._idle_kill / 2
        self._idle_warn = idle_warn
        now = time.monotonic()
        self._started, self._active, self._next_idle_look = now, now, now
        self._active_at = time.time()
        self._cpu_seconds = 0.0
        self._warned: set[str] = set()

    @property
    def looks_every_seconds(self) -> float | None:
        """How often it wants to look; never if nothing is watched."""
        limits = [one for one in (self._max_runtime, self._idle_warn, self._idle_kill) if one]
        if not limits and self._max_output is None:
            return None
        return min([_LOOK_SECONDS, *(limit / _LOOKS for limit in limits)])

    def heard(self) -> None:
        """There was output."""
        self._active, self._active_at = time.monotonic(), time.time()
        self._warned.discard("idle")

    def look(self, written: int) -> tuple[list[str], Bite | None]:
        """What to warn of now, and what to end the attempt for."""
        warnings: list[str] = []
        running = time.monotonic() - self._started
        bite = (
            self._runtime(running, warnings)
            or self._output(written, warnings)
            or self._idleness(warnings)
        )
        return warnings, bite

    def _runtime(self, running: float, warnings: list[str]) -> Bite | None:
        limit = self._max_runtime
        if limit is None:
            return None
        if running >= _WARN_AT * limit:
            left = max(0.0, limit - running)
            self._warn(
                "max_runtime", f"max_runtime ({limit:g} s) ends this in {left:.0f} s", warnings
            )
        return self._bite("max_runtime", f"{limit:g} s") if running >= limit else None

    def _output(self, written: int, warnings: list[str]) -> Bite | None:
        limit = self._max_output
        if limit is None:
            return None
        if written >= _WARN_AT * limit:
            shown = f"{sizes.shown(written)} of {sizes.shown(int(limit))}"
            self._warn("max_output", f"max_output will end this: {shown} are written", warnings)
        return self._bite("max_output", sizes.shown(int(limit))) if written > limit else None

    def _idleness(self, warnings: list[str]) -> Bite | None:
        """Idle is what neither writes nor computes: silence alone is no sign of trouble."""
        if self._idle_warn is None and self._idle_kill is None:
            return None
        now = time.monotonic()
        quiet = now - self._active
        if now < self._next_idle_look:
            return None
        limit = min(limit for limit in (self._idle_warn, self._idle_kill) if limit)
        self._next_idle_look = now + limit / _LOOKS
        before, self._cpu_seconds = self._cpu_seconds, self._measure_cpu()
        if self._cpu_seconds > before:
            self.heard()
            return None
        # Not without a warning at an earlier look: if we were stopped, so was the command.
        if self._idle_kill is not None and quiet >= self._idle_kill and "idle" in self._warned:
            return self._bite("idle_kill", f"{self._idle_kill:g} s")
        if self._idle_warn is not None and quiet >= self._idle_warn:
            then = (
                "" if self._idle_kill is None else f"; idle_kill ends it at {self._idle_kill:g} s"
            )
            self._warn("idle", f"no output and no CPU time for {quiet:.0f} s{then}", warnings)
        return None

    def _warn(self, watchdog: str, text: str, warnings: list[str]) -> None:
        if watchdog not in self._warned:
            self._warned.add(watchdog)
            warnings.append(text)

    def _bite(self, name: str, value: str) -> Bite:
        return Bite(name, self._chosen.setting(name), value, self._active_at)

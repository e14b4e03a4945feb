"""What looks after a running agent: clocks, idleness, and how it uses its tools."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headway import family
from headway.watchdogs import Bite, Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headway.config import Settings
    from headway.harness.events import ToolCall


class Watch:
    """All watchdogs of one attempt; each is off unless it was set."""

    def __init__(
        self,
        settings: Settings,
        options: Mapping[str, object],
        spelled: Callable[[str], str],
    ) -> None:
        self._settings, self._options, self._spelled = settings, options, spelled
        self._most_calls = self._chosen("max_tool_calls")
        self._most_repeated = self._chosen("max_repeated_calls")
        self._calls = self._repeated = 0
        self._last: object = None
        self._bite: Bite | None = None
        # The process whose descendants are looked at.
        self.tree: int | None = None
        self._dog = Watchdog(
            settings, options, spelled=spelled, cpu_seconds=lambda: family.cpu_seconds(self.tree)
        )

    def _chosen(self, name: str) -> int | None:
        value = self._options.get(name, getattr(self._settings, name))
        assert value is None or isinstance(value, int)
        return value

    @property
    def looks_every_seconds(self) -> float | None:
        return self._dog.looks_every_seconds

    def heard(self) -> None:
        """There was output."""
        self._dog.heard()

    def used(self, call: ToolCall) -> None:
        """The agent uses a tool."""
        same = (call.tool, repr(call.arguments))
        self._calls += 1
        self._repeated = self._repeated + 1 if same == self._last else 1
        self._last = same
        for name, count, most in (
            ("max_tool_calls", self._calls, self._most_calls),
            ("max_repeated_calls", self._repeated, self._most_repeated),
        ):
            if most is not None and count > most and self._bite is None:
                own = name in self._options
                setting = self._spelled(name) if own else f"watchdog.{name}"
                self._bite = Bite(name, setting, str(most), time.time())

    def look(self, written: int) -> tuple[list[str], Bite | None]:
        """What to warn of now, and what to end the attempt for."""
        warnings, bite = self._dog.look(written)
        return warnings, self._bite or bite

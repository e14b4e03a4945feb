"""What looks after a running agent: clocks, idleness, and how it uses its tools."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from headway import family
from headway.watchdogs import Bite, Watchdog

if TYPE_CHECKING:
    from headway.harness.events import ToolCall
    from headway.watchdogs import Chosen


class Watch:
    """All watchdogs of one attempt; each is off unless it was set."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen = chosen
        self._most_calls: int | None = chosen.value("max_tool_calls")
        self._most_repeated: int | None = chosen.value("max_repeated_calls")
        self._calls = self._repeated = 0
        self._last: object = None
        self._bite: Bite | None = None
        # The process whose descendants are looked at.
        self.tree: int | None = None
        self._dog = Watchdog(chosen, cpu_seconds=lambda: family.cpu_seconds(self.tree))

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
                self._bite = Bite(name, self._chosen.setting(name), str(most), time.time())

    def look(self, written: int) -> tuple[list[str], Bite | None]:
        """What to warn of now, and what to end the attempt for."""
        warnings, bite = self._dog.look(written)
        return warnings, self._bite or bite

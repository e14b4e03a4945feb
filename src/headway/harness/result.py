"""How a task ended, and what it brought."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from headway.harness.events import ToolCall, Usage
    from headway.watchdogs import Bite

Status = Literal["succeeded", "failed", "truncated", "timed_out", "cancelled", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of one task.

    ``succeeded`` is only what the program itself called complete, with an answer and exit
    code 0. ``truncated``: it had begun to answer, and the end is missing. ``timed_out``: no
    slot within ``timeout``, or ended by a watchdog's clock. ``refused``: there never will be
    a slot, or none now. In all of them ``text`` is what there was of an answer.
    """

    status: Status
    reason: str | None
    text: str
    task: str | None
    model: str | None
    session_id: str | None
    usage: Usage
    tool_calls: tuple[ToolCall, ...]
    exit_code: int | None
    attempts: int
    waited_seconds: float
    run_seconds: float
    ended_by: Bite | None = None
    is_rate_limited: bool = False

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.status == "succeeded"

"""What happens while an agent works, in one small vocabulary for all programs."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from headway.harness.result import Result


@dataclass(frozen=True, slots=True)
class Usage:
    """What the provider counted; nothing where the program does not say."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            sum(costs) if costs else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentEvent:
    """Something that happened to one task."""

    kind: ClassVar[str] = "event"

    task: str | None
    at: float = field(default_factory=time.time)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"event": self.kind, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued(AgentEvent):
    """It waits for its turn. Told when the wait gets noticeable, and when it has moved up.

    The reason is that of the governor's queue (``full``, ``paused`` …), or ``max_concurrent``.
    """

    kind = "queued"

    key: str
    position: int
    reason: str
    estimated_wait_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(AgentEvent):
    """It has its slots, and its program runs."""

    kind = "started"

    pid: int
    model: str | None
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(AgentEvent):
    """The agent said something. Joined, the texts since the last use of a tool are the answer."""

    kind = "text"

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(AgentEvent):
    """The agent uses a tool."""

    kind = "tool_call"

    id: str
    tool: str
    arguments: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(AgentEvent):
    """What the tool answered; its end is cut off if it is long."""

    kind = "tool_result"

    id: str
    tool: str
    output: str
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReported(AgentEvent):
    """The program said what was used; add them up for the whole."""

    kind = "usage"

    usage: Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying(AgentEvent):
    """The program repeats a request, or we repeat the whole task, perhaps on another model."""

    kind = "retrying"

    by: str
    reason: str
    status: int | None
    delay_seconds: float | None
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warned(AgentEvent):
    """A watchdog is about to act, or something of the output was left out."""

    kind = "warned"

    warning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished(AgentEvent):
    """It is over, its slots are free, and nothing of it runs any more."""

    kind = "finished"

    result: Result

    def as_dict(self) -> dict[str, Any]:
        facts = super(Finished, self).as_dict()
        bite = self.result.ended_by
        facts["result"]["ended_by"] = None if bite is None else bite._asdict()
        return facts

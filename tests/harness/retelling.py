"""Feeds a program's output through its parser, as an attempt does, without any process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.harness.kit import HARNESSES

from headway.harness.attempt import Outcome
from headway.harness.story import Story
from headway.harness.verdict import verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.harness.events import AgentEvent, ToolCall
    from headway.harness.result import Status

_KEPT = {name: kind(executable=name) for name, kind in HARNESSES.items()}


@dataclass
class Told:
    """What came of it."""

    story: Story
    status: Status
    reason: str | None
    events: list[AgentEvent] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    limits: list[float | None] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        """The events, in order."""
        return [event.kind for event in self.events]

    @property
    def essence(self) -> tuple[object, ...]:
        """All that a caller gets, but for the time."""
        story = self.story
        calls = [(call.id, call.tool, call.arguments) for call in self.calls]
        kept = (story.text, story.session_id, story.usage, story.is_rate_limited, story.noise)
        return (self.status, self.reason, kept, calls, self.limits, self.kinds)


def retold(
    program: str, chunks: Iterable[bytes], *, exit_code: int | None = 0, errors: str = ""
) -> Told:
    """The story of this output, and the verdict on it."""
    told = Told.__new__(Told)
    told.events, told.calls, told.limits = [], [], []
    story = Story(None, tell=told.events.append, used=told.calls.append, limited=told.limits.append)
    listener = _KEPT[program].listener(story)
    for chunk in chunks:
        listener.hear(chunk)
    listener.end()
    outcome = Outcome(exit_code=exit_code, errors=errors)
    told.story = story
    told.status, told.reason = verdict(program, story, outcome)
    return told

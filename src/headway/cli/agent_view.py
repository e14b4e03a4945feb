"""What ``headway agent`` tells people while an agent works: a line for each thing that happens."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from headway.cli import output
from headway.harness import events
from headway.views import in_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.harness.events import AgentEvent

_COLUMNS = 100
# Who waits longer is told of it.
_NOTICEABLE_SECONDS = 0.1
# Of a tool's arguments, what says most about the call.
_TELLING = ("command", "file_path", "filePath", "path", "pattern", "query", "url", "description")


class View:
    """Shows the events of one task on stderr."""

    def __init__(self) -> None:
        self._said = ""
        self._console = output.console(sys.stderr)
        self._ways: dict[type[AgentEvent], Callable[[Any], None]] = {
            events.Queued: self._queued,
            events.Started: self._started,
            events.ToolCall: self._tool_call,
            events.ToolResult: self._tool_result,
            events.Retrying: self._retrying,
            events.Warned: self._warned,
            events.Finished: self._finished,
        }

    def show(self, event: AgentEvent) -> None:
        """One thing that happened."""
        if isinstance(event, events.Text):
            self._said += event.text
            return
        if isinstance(event, events.Finished):
            self._said = ""  # it is the answer, or what there is of it, and printed as such
        way = self._ways.get(type(event))
        if way is not None:
            self._flush()
            way(event)

    def _flush(self) -> None:
        """What the agent said until now, in one line."""
        if self._said.strip():
            self._line("·", self._said, "dim")
        self._said = ""

    def _line(self, sign: str, text: str, style: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        columns = self._console.width if self._console.is_terminal else _COLUMNS
        shown = output.shorten_end(f"  {sign} {output.clean(text)}", columns)
        self._console.print(Text(shown, style))

    @staticmethod
    def _queued(event: events.Queued) -> None:
        about = event.estimated_wait_seconds
        wait = "" if about is None else f", about {output.length(about)}"
        reason = in_words(event.reason)
        output.talk(f"waiting for {event.key}, which is {reason}: place {event.position}{wait}")

    @staticmethod
    def _started(event: events.Started) -> None:
        model = f" with {output.clean(event.model)}" if event.model else ""
        output.talk(f"started{model} (pid {event.pid})")

    def _tool_call(self, event: events.ToolCall) -> None:
        self._line("→", f"{event.tool}  {_gist(event.arguments)}", "cyan")

    def _tool_result(self, event: events.ToolResult) -> None:
        if event.is_error:
            self._line("✗", event.output or "failed", "red")

    def _retrying(self, event: events.Retrying) -> None:
        delay = event.delay_seconds
        when = "" if delay is None else f" in {output.length(delay)}"
        model = f" with {event.model}" if event.model else ""
        status = str(event.status or "")
        why = event.reason if status in event.reason else f"{status}, {event.reason}"
        self._line("↻", f"tries again{when}{model}: {why}", "yellow")

    def _warned(self, event: events.Warned) -> None:
        self._line("!", event.warning, "yellow")

    @staticmethod
    def _finished(event: events.Finished) -> None:
        result, usage = event.result, event.result.usage
        ended: str = result.status
        if result.run_seconds:
            ended += f" after {output.length(result.run_seconds)}"
        elif result.status != "refused" and result.waited_seconds >= _NOTICEABLE_SECONDS:
            ended += f" after {output.length(result.waited_seconds)} in the queue"
        facts = [f"{ended}: {output.clean(result.reason)}" if result.reason else ended]
        if result.tool_calls:
            facts.append(output.count(len(result.tool_calls), "tool call"))
        if usage.input_tokens or usage.output_tokens:
            facts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
        if usage.cost_usd:
            facts.append(f"${usage.cost_usd:.4f}")
        if result.session_id:
            facts.append(f"session {output.clean(result.session_id)}")
        output.talk(" · ".join(facts))


def _gist(arguments: object) -> str:
    if isinstance(arguments, dict):
        for name in _TELLING:
            if isinstance(arguments.get(name), str):
                return str(arguments[name])
    return "" if arguments is None else str(arguments)

"""What ``headway agent`` tells people while an agent works: a line for each thing that happens."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from headway.cli import output
from headway.harness import events

if TYPE_CHECKING:
    from headway.harness.events import AgentEvent
    from headway.harness.result import Result

_COLUMNS = 100
# Of a tool's arguments, what says most about the call.
_TELLING = ("command", "file_path", "filePath", "path", "pattern", "query", "url", "description")


class View:
    """Shows the events of one task on stderr."""

    def __init__(self) -> None:
        self._said = ""
        stderr = output.console(sys.stderr)
        self._console, self._is_wide = stderr, not stderr.is_terminal

    def show(self, event: AgentEvent) -> None:
        """One thing that happened."""
        if isinstance(event, events.Text):
            self._said += event.text
            return
        if isinstance(event, events.Finished) and event.result.ok:
            self._said = ""  # it is the answer, which is printed as such
        self._flush()
        if isinstance(event, events.Queued):
            about = event.estimated_wait_seconds
            wait = "" if about is None else f", about {output.length(about)}"
            output.talk(
                f"waiting for {event.key}, which is {event.reason}: place {event.position}{wait}"
            )
        elif isinstance(event, events.Started):
            model = f" with {output.clean(event.model)}" if event.model else ""
            output.talk(f"started{model} (pid {event.pid})")
        elif isinstance(event, events.ToolCall):
            self._line("→", f"{event.tool}  {_gist(event.arguments)}", "cyan")
        elif isinstance(event, events.ToolResult):
            if event.is_error:
                self._line("✗", event.output or "failed", "red")
        elif isinstance(event, events.Retrying):
            delay = event.delay_seconds
            when = "" if delay is None else f" in {output.length(delay)}"
            model = f" with {event.model}" if event.model else ""
            self._line("↻", f"tries again{when}{model}: {event.reason}", "yellow")
        elif isinstance(event, events.Warned):
            self._line("!", event.warning, "yellow")
        elif isinstance(event, events.Finished):
            self._finish(event.result)

    def _flush(self) -> None:
        """What the agent said until now, in one line."""
        if self._said.strip():
            self._line("·", self._said, "dim")
        self._said = ""

    def _line(self, sign: str, text: str, style: str) -> None:
        from rich.text import Text  # noqa: PLC0415

        columns = _COLUMNS if self._is_wide else os.get_terminal_size(sys.stderr.fileno()).columns
        shown = output.shorten_end(f"  {sign} {output.clean(text)}", columns or _COLUMNS)
        self._console.print(Text(shown, style))

    @staticmethod
    def _finish(result: Result) -> None:
        usage = result.usage
        facts = [f"{result.status} after {output.length(result.run_seconds)}"]
        if result.reason:
            facts[0] += f": {output.clean(result.reason)}"
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

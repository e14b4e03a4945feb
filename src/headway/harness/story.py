"""What one attempt has told so far: put together from the program's events, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.harness import events
from headway.harness.events import Usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.harness.events import AgentEvent, ToolCall

_MAX_TEXT_CHARS = 16 << 20
_MAX_TOOL_CALLS = 1000
_MAX_ARGUMENT_CHARS = 10_000
_MAX_OUTPUT_CHARS = 100_000
_MAX_NAME_CHARS = 1000
_MAX_LEVELS = 50
_TOO_MANY_REQUESTS = 429


class Story:
    """Programs' files tell it what a line means; it tells the caller, and keeps what counts."""

    def __init__(
        self,
        task: str | None,
        *,
        tell: Callable[[AgentEvent], None],
        used: Callable[[ToolCall], None],
        limited: Callable[[float | None], None],
        resumed_id: str | None = None,
    ) -> None:
        self._task, self._tell, self._used, self._limited = task, tell, used, limited
        self.session_id: str | None = None
        self._resumed_id = resumed_id
        self.usage = Usage()
        self.tool_calls: list[ToolCall] = []
        # How the program itself says that it ended: nothing yet, or complete, or with an error.
        self.is_complete = False
        # Whether it has no events of its own: then only its exit code tells.
        self.is_plain = False
        self.error: str | None = None
        self.is_cut = False
        self.has_begun = False
        self.is_rate_limited = False
        # What was printed that is no event, and what of the output was not taken in.
        self.noise = self.left_out = ""
        self._pieces: list[str] = []
        self._chars = 0
        self._is_new_part = False
        self._earlier = ""
        self._answer: str | None = None
        self._tools: dict[str, str] = {}

    @property
    def text(self) -> str:
        """The answer: what was said after the last use of a tool, or last of all."""
        if self._answer is not None:
            return self._answer
        return "".join(self._pieces) or self._earlier

    @property
    def lost_session(self) -> str | None:
        """The session that was to be continued, if the program reported another one."""
        wanted, reported = self._resumed_id, self.session_id
        is_other = wanted and reported and wanted.lower() != reported.lower()
        return wanted if is_other else None

    def begins(self, session_id: str) -> None:
        """The program has a session."""
        self.has_begun = True
        self.session_id = session_id or self.session_id

    def says(self, text: str, *, is_piece: bool = False) -> None:
        """The agent said this: a part of its own, or one more piece of the present one."""
        if not text:
            return
        self.has_begun = True
        if self._pieces and (self._is_new_part or not is_piece):
            text = f"\n\n{text}"
        self._tell(events.Text(task=self._task, text=text))
        self._is_new_part = not is_piece
        room = _MAX_TEXT_CHARS - self._chars
        if len(text) > room:
            text, self.is_cut = text[:room], True
        self._pieces.append(text)
        self._chars += len(text)

    def uses(self, tool: str, arguments: Any, call_id: str) -> None:
        """The agent uses a tool: what it said before was not the answer."""
        self.has_begun = True
        self._earlier = "".join(self._pieces) or self._earlier
        self._pieces, self._chars, self._is_new_part = [], 0, False
        tool, call_id = tool[:_MAX_NAME_CHARS], call_id[:_MAX_NAME_CHARS]
        if _is_deep(arguments):
            arguments = "too deeply nested to be shown"
        call = events.ToolCall(task=self._task, id=call_id, tool=tool, arguments=arguments)
        self._tools[call_id] = tool
        if len(self._tools) > _MAX_TOOL_CALLS:
            del self._tools[next(iter(self._tools))]
        self._tell(call)
        self._used(call)
        if len(self.tool_calls) < _MAX_TOOL_CALLS:
            self.tool_calls.append(_shortened(call))

    def gets(self, call_id: str, output: str, *, is_error: bool = False) -> None:
        """The tool answered."""
        call_id = call_id[:_MAX_NAME_CHARS]
        self._tell(
            events.ToolResult(
                task=self._task,
                id=call_id,
                tool=self._tools.pop(call_id, ""),
                output=output[:_MAX_OUTPUT_CHARS],
                is_error=is_error,
            )
        )

    def spends(self, usage: Usage, *, is_total: bool = False) -> None:
        """The program says what was used: since it said so last, or in all."""
        self.usage = usage if is_total else self.usage + usage
        self._tell(events.UsageReported(task=self._task, usage=usage))

    def retries(
        self, reason: str, *, status: int | None = None, delay_seconds: float | None = None
    ) -> None:
        """The program repeats a request by itself."""
        self.has_begun = True
        self._take_note(status, delay_seconds)
        self._tell(
            events.Retrying(
                task=self._task,
                by="program",
                reason=reason,
                status=status,
                delay_seconds=delay_seconds,
                model=None,
            )
        )

    def goes_on(self) -> None:
        """What looked like the end was not."""
        self.is_complete, self.error = False, None

    def completes(self, answer: str | None = None) -> None:
        """The program says that all is done, perhaps with the answer as a whole."""
        self.is_complete, self.error = True, None
        if answer:
            self._answer = answer[:_MAX_TEXT_CHARS]
            self.is_cut = self.is_cut or len(answer) > _MAX_TEXT_CHARS

    def fails(
        self,
        error: str,
        *,
        status: int | None = None,
        is_cut: bool = False,
        delay_seconds: float | None = None,
    ) -> None:
        """The program says that it could not do it."""
        self.has_begun = True
        self.is_complete, self.error, self.is_cut = False, error, self.is_cut or is_cut
        self._take_note(status, delay_seconds)

    def _take_note(self, status: int | None, delay_seconds: float | None) -> None:
        if status == _TOO_MANY_REQUESTS:
            self.is_rate_limited = True
            self._limited(delay_seconds)

    def leaves_out(self, what: str) -> None:
        """Something of the output was too much to be taken in."""
        self.left_out = what
        self.warns(what)

    def warns(self, warning: str) -> None:
        """Something that the caller should know."""
        self._tell(events.Warned(task=self._task, warning=warning))


def _is_deep(value: Any, level: int = 0) -> bool:
    """Nobody writes such arguments, and Python could not even print them."""
    if level > _MAX_LEVELS:
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_is_deep(one, level + 1) for one in inner)


def _shortened(call: ToolCall) -> ToolCall:
    """As the result keeps it: without what an agent may have written into a file."""
    shown = str(call.arguments)
    if len(shown) <= _MAX_ARGUMENT_CHARS:
        return call
    return events.ToolCall(
        task=call.task,
        at=call.at,
        id=call.id,
        tool=call.tool,
        arguments=f"{shown[:_MAX_ARGUMENT_CHARS]}…",
    )

"""What a client asked for and what it gets, told in words of no dialect."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, overload

Json = dict[str, Any]
_Source = TypeVar("_Source")
_Made = TypeVar("_Made")

# The shell tools of the clients that we know, and how each takes its command.
_SHELLS = {
    "bash": "command",
    "Bash": "command",
    "run_shell_command": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "shell": "command",
}
_LARGE = 16_384


class Lazily(Sequence[_Made]):
    """Items that are made when they are asked for: a huge answer is never there as a whole."""

    def __init__(self, sources: Sequence[_Source], make: Callable[[_Source], _Made]) -> None:
        self._sources, self._make = sources, make

    def __len__(self) -> int:
        return len(self._sources)

    @overload
    def __getitem__(self, at: int) -> _Made: ...
    @overload
    def __getitem__(self, at: slice) -> Lazily[_Made]: ...
    def __getitem__(self, at: int | slice) -> _Made | Lazily[_Made]:
        if isinstance(at, slice):
            return Lazily(self._sources[at], self._make)
        return self._make(self._sources[at])


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to a model."""

    dialect: str
    path: str
    model: str
    streams: bool
    prompt: str  # the last thing that the user said
    offered: tuple[str, ...]  # names of tools
    results: int  # of tools, since the prompt
    results_before: int  # of tools, in the whole conversation
    is_title: bool  # opencode asks for one beside its work


@dataclass(frozen=True, slots=True)
class Say:
    """An answer in words."""

    text: str

    @property
    def pieces(self) -> Sequence[str]:
        """The text as it is streamed: word by word, or in large pieces if it is large."""
        if len(self.text) > _LARGE:
            starts = range(0, len(self.text), _LARGE)
            return Lazily(starts, lambda at: self.text[at : at + _LARGE])
        return re.findall(r"\S+\s*|\s+", self.text)


@dataclass(frozen=True, slots=True)
class Call:
    """A wish to run a command in the client's shell tool."""

    number: int
    tool: str
    arguments: Json

    @property
    def arguments_text(self) -> str:
        return json.dumps(self.arguments)


Answer = Say | Call


def shell_call(ask: Ask, command: str) -> Call:
    """The command, as the client's own shell tool wants it."""
    tool = next((name for name in ask.offered if name in _SHELLS), "bash")
    value: Any = ["bash", "-c", command] if tool == "shell" else command
    arguments = {_SHELLS[tool]: value}
    if _SHELLS[tool] == "command" and tool not in {"shell", "shell_command"}:
        arguments["description"] = "runs a command"
    return Call(ask.results_before + 1, tool, arguments)


def usage(ask: Ask, answer: Answer) -> tuple[int, int]:
    """Tokens in and out: words, for want of anything truer."""
    spent = len(answer.pieces) if isinstance(answer, Say) else 7
    return len(ask.prompt.split()), spent


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer as bytes: what comes first, the text, and all that tells the client it is over."""

    opening: bytes
    deltas: Sequence[bytes]
    closing: bytes


def sse(*events: Json, named: bool = False) -> bytes:
    """Server-sent events; named ones carry their type in a line of its own."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        lines.append(f"{name}data: {json.dumps(event, ensure_ascii=False)}\n\n")
    return "".join(lines).encode()


class Dialect(Protocol):
    """How one provider spells requests, answers and errors."""

    name: str

    def read(self, path: str, body: Json) -> Ask: ...
    def whole(self, ask: Ask, answer: Answer) -> Any: ...
    def stream(self, ask: Ask, answer: Answer) -> Stream: ...
    def error(self, status: int, message: str, retry_delay: str) -> Json: ...


def asked(
    dialect: str,
    path: str,
    body: Json,
    turns: list[tuple[str, str]],
    offered: list[str],
    *,
    is_title: bool = False,
) -> Ask:
    """The request that these turns of a conversation make."""
    prompt, results, before = _last_prompt(turns)
    return Ask(
        dialect=dialect,
        path=path,
        model=body["model"],
        streams=body.get("stream", False),
        prompt=prompt,
        offered=tuple(offered),
        results=results,
        results_before=before,
        is_title=is_title,
    )


def _last_prompt(turns: list[tuple[str, str]]) -> tuple[str, int, int]:
    """Of turns ("user", text) and ("result", ""): the prompt, results since it, results in all.

    What a client wraps in <tags> by itself was not said by the user.
    """
    prompt, since, total = "", 0, 0
    for who, text in turns:
        if who == "result":
            since, total = since + 1, total + 1
        elif who == "user" and text.strip() and not _is_wrapping(text):
            prompt, since = unquoted(text), 0
    return prompt, since, total


def _is_wrapping(text: str) -> bool:
    text = text.strip()
    return text.startswith("<") and text.endswith(">")


def unquoted(text: str) -> str:
    """The prompt without the quotes that opencode puts around an argument with blanks."""
    text = text.rstrip("\n")
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"')
    return text

"""Streams of every dialect, as bytes, with the place where each begins to say that it is over."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.llm.asks import Ask, Call, Dialect, Say
from tests.llm.chat import Chat
from tests.llm.gemini import Gemini
from tests.llm.messages import Messages
from tests.llm.responses import Responses

EVENTS = "text/event-stream; charset=utf-8"
LIST = "application/json; charset=UTF-8"
PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "gemini": "/v1beta/models/fake-1:streamGenerateContent",
    "gemini list": "/v1beta/models/fake-1:streamGenerateContent",
}
_SPEAKERS: dict[str, Dialect] = {
    "chat": Chat(),
    "responses": Responses(),
    "messages": Messages(),
    "gemini": Gemini(),
}
# What the event begins with that says that it is over; in some it is the first of the closing.
_LAST = {
    "chat": b"",
    "responses": b"\n\nevent: response.completed",
    "messages": b"\n\nevent: message_stop",
    "gemini": b"",
}


@dataclass(frozen=True)
class Recorded:
    """A whole stream; ``last`` is where its last event begins."""

    path: str
    content_type: str
    raw: bytes
    last: int

    @property
    def over(self) -> int:
        """From so many bytes on, the last event has been told."""
        if self.content_type == LIST:
            return len(self.raw.rstrip())
        event = self.raw.find(b"data:", self.last)
        return self.raw.find(b"\n", event)


def recorded(dialect: str, answer: str | Call = "a few words of an answer") -> Recorded:
    """The stream with which this dialect gives an answer."""
    said = Say(answer) if isinstance(answer, str) else answer
    if dialect == "gemini list":
        return _list(said)
    ask = Ask(dialect, PATHS[dialect], "fake-1", True, "prompt", (), 0, 0, False)
    stream = _SPEAKERS[dialect].stream(ask, said)
    before = stream.opening + b"".join(stream.deltas)
    mark = _LAST[dialect]
    at = len(before) + stream.closing.index(mark) + len(mark) - len(mark.lstrip())
    return Recorded(PATHS[dialect], EVENTS, before + stream.closing, at)


def _list(answer: Say | Call) -> Recorded:
    events = recorded("gemini", answer.text if isinstance(answer, Say) else answer)
    lines = events.raw.decode().split("\n\n")[:-1]
    pieces = [json.dumps(json.loads(line[6:]), indent=2, ensure_ascii=False) for line in lines]
    raw = ("[" + "\n,\r\n".join(pieces) + "\n]").encode()
    return Recorded(PATHS["gemini list"], LIST, raw, len(raw) - 1)


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()

"""A plain client for every dialect, on nothing but http.client."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.llm.server import Server

DIALECTS = ("chat", "responses", "messages", "gemini")
_LAST = {
    "chat": "data: [DONE]",
    "responses": "response.completed",
    "messages": "message_stop",
    "gemini": '"finishReason": "STOP"',
}


@dataclass(frozen=True)
class Got:
    """A response: what the model said, and what it asked for."""

    dialect: str
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def is_whole(self) -> bool:
        """Whether the stream told of its own end, or the body can be read."""
        if self._is_stream:
            return _LAST[self.dialect] in self.raw.decode()
        try:
            return bool(self.json)
        except ValueError:
            return False

    @property
    def _is_stream(self) -> bool:
        return self.raw.startswith((b"data:", b"event:"))

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def events(self) -> list[Any]:
        lines = self.raw.decode().splitlines()
        datas = [line[6:] for line in lines if line.startswith("data: ")]
        return [json.loads(each) for each in datas if each != "[DONE]"]

    @property
    def text(self) -> str:
        """All that was said, streamed or not."""
        if not self._is_stream:
            return str(_TEXTS[self.dialect](self.json))
        return "".join(_DELTAS[self.dialect](event) for event in self.events)


@dataclass(frozen=True)
class Client:
    """Asks one server in one dialect."""

    server: Server
    dialect: str
    model: str = "fake-1"
    prefix: str = ""
    streams: bool = True

    def ask(self, prompt: str, results: int = 0) -> Got:
        """The whole response; ``results`` of tools are told to have come since the prompt."""
        connection, response = self.begin(prompt, results)
        raw = response.read()
        connection.close()
        return Got(self.dialect, response.status, dict(response.getheaders()), raw)

    def send(self, prompt: str, results: int = 0) -> http.client.HTTPConnection:
        """Send a request and do not wait for its response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        path, body = self._request(prompt, results)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", self.prefix + path, json.dumps(body), headers)
        return connection

    def begin(
        self, prompt: str, results: int = 0
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request and return when its headers have come."""
        connection = self.send(prompt, results)
        return connection, connection.getresponse()

    def _request(self, prompt: str, results: int) -> tuple[str, dict[str, Any]]:
        common = {"model": self.model, "stream": self.streams}
        said = {"role": "user", "content": prompt}
        if self.dialect == "chat":
            tools = [{"type": "function", "function": {"name": "bash"}}]
            done = [{"role": "tool", "content": "done"}] * results
            return "/v1/chat/completions", {**common, "messages": [said, *done], "tools": tools}
        if self.dialect == "responses":
            outputs = [{"type": "function_call_output", "output": "done"}] * results
            tools = [{"type": "function", "name": "exec_command"}]
            return "/v1/responses", {**common, "input": [said, *outputs], "tools": tools}
        if self.dialect == "messages":
            block = {"type": "tool_result", "content": "done"}
            turns = [{"role": "user", "content": [block]}] * results
            body = {**common, "messages": [said, *turns], "tools": [{"name": "Bash"}]}
            return "/v1/messages?beta=true", body
        parts: list[Any] = [{"text": prompt}, *[{"functionResponse": {}}] * results]
        contents = [{"role": "user", "parts": parts}]
        verb = "streamGenerateContent?alt=sse" if self.streams else "generateContent"
        declared = [{"functionDeclarations": [{"name": "run_shell_command"}]}]
        return f"/v1beta/models/{self.model}:{verb}", {"contents": contents, "tools": declared}


def calls(got: Got) -> list[tuple[str, Any]]:
    """The tools that were asked for: name and arguments."""
    answer = got.json
    if got.dialect == "chat":
        made = answer["choices"][0]["message"].get("tool_calls", ())
        functions = [call["function"] for call in made]
        return [(each["name"], json.loads(each["arguments"])) for each in functions]
    if got.dialect == "responses":
        items = [item for item in answer["output"] if item["type"] == "function_call"]
        return [(item["name"], json.loads(item["arguments"])) for item in items]
    if got.dialect == "messages":
        blocks = [block for block in answer["content"] if block["type"] == "tool_use"]
        return [(block["name"], block["input"]) for block in blocks]
    parts = answer["candidates"][0]["content"]["parts"]
    wanted = [part["functionCall"] for part in parts if "functionCall" in part]
    return [(each["name"], each["args"]) for each in wanted]


def _gemini_text(answer: Any) -> str:
    parts = answer["candidates"][0]["content"]["parts"]
    return "".join(part.get("text", "") for part in parts)


_TEXTS: dict[str, Any] = {
    "chat": lambda answer: answer["choices"][0]["message"]["content"],
    "responses": lambda answer: answer["output"][0]["content"][0]["text"],
    "messages": lambda answer: "".join(block["text"] for block in answer["content"]),
    "gemini": _gemini_text,
}


def _chat_delta(event: Any) -> str:
    return "".join(choice["delta"].get("content", "") for choice in event["choices"])


_DELTAS: dict[str, Any] = {
    "chat": _chat_delta,
    "responses": lambda event: event["delta"] if "output_text.delta" in event["type"] else "",
    "messages": lambda event: event.get("delta", {}).get("text", ""),
    "gemini": _gemini_text,
}

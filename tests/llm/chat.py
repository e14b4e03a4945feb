"""The dialect of OpenAI's chat completions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.llm.asks import Answer, Ask, Call, Json, Lazily, Say, Stream, asked, sse, usage

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = {
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


def text_of(content: Any) -> str:
    """The text of a message, whether it came as a string or in parts."""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or ())


class Chat:
    """Chat completions, streamed or not."""

    name = "chat"

    def read(self, path: str, body: Json) -> Ask:
        turns = []
        for message in body["messages"]:
            role = "result" if message["role"] == "tool" else message["role"]
            turns.append((role, text_of(message.get("content"))))
        offered = [tool["function"]["name"] for tool in body.get("tools", ())]
        is_title = any(who == "system" and "title generator" in text for who, text in turns)
        return asked(self.name, path, body, turns, offered, is_title=is_title)

    def whole(self, ask: Ask, answer: Answer) -> Json:
        message: Json = {"role": "assistant", "content": None}
        if isinstance(answer, Call):
            message["tool_calls"] = [self._call(answer)]
        else:
            message["content"] = answer.text
        choice = {"index": 0, "message": message, "finish_reason": _reason(answer)}
        return {
            **self._head(ask, "chat.completion"),
            "choices": [choice],
            "usage": _usage(ask, answer),
        }

    def stream(self, ask: Ask, answer: Answer) -> Stream:
        if isinstance(answer, Say):
            deltas: Sequence[bytes] = Lazily(
                answer.pieces, lambda piece: self._chunk(ask, {"content": piece})
            )
        else:
            calls = [{"index": 0, **self._call(answer)}]
            deltas = [self._chunk(ask, {"tool_calls": calls})]
        used = {
            **self._head(ask, "chat.completion.chunk"),
            "choices": [],
            "usage": _usage(ask, answer),
        }
        return Stream(
            opening=self._chunk(ask, {"role": "assistant", "content": ""}),
            deltas=deltas,
            closing=self._chunk(ask, {}, _reason(answer)) + sse(used) + b"data: [DONE]\n\n",
        )

    def error(self, status: int, message: str, retry_delay: str) -> Json:
        del retry_delay
        kind, code = KINDS.get(status, ("server_error", "server_error"))
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def _chunk(self, ask: Ask, delta: Json, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return sse({**self._head(ask, "chat.completion.chunk"), "choices": [choice]})

    def _head(self, ask: Ask, kind: str) -> Json:
        return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": ask.model}

    def _call(self, answer: Call) -> Json:
        function = {"name": answer.tool, "arguments": answer.arguments_text}
        return {"id": f"call_{answer.number}", "type": "function", "function": function}


def _reason(answer: Answer) -> str:
    return "tool_calls" if isinstance(answer, Call) else "stop"


def _usage(ask: Ask, answer: Answer) -> Json:
    taken, given = usage(ask, answer)
    return {"prompt_tokens": taken, "completion_tokens": given, "total_tokens": taken + given}

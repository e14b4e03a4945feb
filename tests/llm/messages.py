"""The dialect of Anthropic's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.llm.asks import Answer, Ask, Call, Json, Lazily, Stream, asked, sse, usage

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


class Messages:
    """Messages, streamed or not."""

    name = "messages"

    def read(self, path: str, body: Json) -> Ask:
        turns = [turn for message in body["messages"] for turn in _turns(message)]
        system = body.get("system", "")
        offered = [tool["name"] for tool in body.get("tools", ())]
        is_title = "title generator" in str(system)
        return asked(self.name, path, body, turns, offered, is_title=is_title)

    def whole(self, ask: Ask, answer: Answer) -> Json:
        return {
            **_message(ask),
            "content": _content(answer),
            "stop_reason": _reason(answer),
            "usage": _usage(*usage(ask, answer)),
        }

    def stream(self, ask: Ask, answer: Answer) -> Stream:
        taken, given = usage(ask, answer)
        events: list[Json] = [
            {"type": "message_start", "message": {**_message(ask), "usage": _usage(taken, 1)}}
        ]
        if isinstance(answer, Call):
            block = {**_content(answer)[0], "input": {}}
            events.append({"type": "content_block_start", "index": 0, "content_block": block})
            arguments = {"type": "input_json_delta", "partial_json": answer.arguments_text}
            deltas: Sequence[bytes] = [_delta(arguments)]
        else:
            if answer.text:
                block = {"type": "text", "text": ""}
                events.append({"type": "content_block_start", "index": 0, "content_block": block})
            deltas = Lazily(
                answer.pieces, lambda piece: _delta({"type": "text_delta", "text": piece})
            )
        end = {"stop_reason": _reason(answer), "stop_sequence": None}
        closing: list[Json] = [
            {"type": "message_delta", "delta": end, "usage": {"output_tokens": given}},
            {"type": "message_stop"},
        ]
        if deltas:
            closing.insert(0, {"type": "content_block_stop", "index": 0})
        return Stream(sse(*events, named=True), deltas, sse(*closing, named=True))

    def error(self, status: int, message: str, retry_delay: str) -> Json:
        del retry_delay
        kind = _KINDS.get(status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def _turns(message: Json) -> list[tuple[str, str]]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [
        ("result", "") if block["type"] == "tool_result" else (message["role"], block["text"])
        for block in blocks
        if block["type"] in {"text", "tool_result"}
    ]


def _message(ask: Ask) -> Json:
    return {
        "id": f"msg_{ask.results_before + 1}",
        "type": "message",
        "role": "assistant",
        "model": ask.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _content(answer: Answer) -> list[Json]:
    if isinstance(answer, Call):
        number, tool = f"toolu_{answer.number}", answer.tool
        return [{"type": "tool_use", "id": number, "name": tool, "input": answer.arguments}]
    return [{"type": "text", "text": answer.text}] if answer.text else []


def _delta(delta: Any) -> bytes:
    return sse({"type": "content_block_delta", "index": 0, "delta": delta}, named=True)


def _reason(answer: Answer) -> str:
    return "tool_use" if isinstance(answer, Call) else "end_turn"


def _usage(taken: int, given: int) -> Json:
    cache = {"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    return {"input_tokens": taken, **cache, "output_tokens": given}

"""The dialect of OpenAI's responses, as Codex speaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.llm.asks import Answer, Ask, Call, Json, Lazily, Stream, asked, sse, usage
from tests.llm.chat import KINDS, text_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class Responses:
    """Responses, streamed or not."""

    name = "responses"

    def read(self, path: str, body: Json) -> Ask:
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        turns = []
        for item in items:
            is_result = item.get("type", "").endswith("_call_output")
            turns.append(("result", "") if is_result else _said(item))
        offered = [tool.get("name", tool["type"]) for tool in body.get("tools", ())]
        return asked(self.name, path, body, turns, offered)

    def whole(self, ask: Ask, answer: Answer) -> Json:
        return _response(ask, answer, "completed", [_item(answer, "completed")])

    def stream(self, ask: Ask, answer: Answer) -> Stream:
        begun = {**_item(answer, "in_progress")}
        if isinstance(answer, Call):
            begun["arguments"] = ""
            arguments = _delta("response.function_call_arguments", answer.arguments_text)
            deltas: Sequence[bytes] = [arguments]
        else:
            begun["content"] = []
            deltas = Lazily(answer.pieces, lambda piece: _delta("response.output_text", piece))
        started = _response(ask, answer, "in_progress", [])
        done = _item(answer, "completed")
        finished = _response(ask, answer, "completed", [done])
        return Stream(
            opening=sse(
                {"type": "response.created", "response": started},
                {"type": "response.output_item.added", "output_index": 0, "item": begun},
                named=True,
            ),
            deltas=deltas,
            closing=sse(
                {"type": "response.output_item.done", "output_index": 0, "item": done},
                {"type": "response.completed", "response": finished},
                named=True,
            ),
        )

    def error(self, status: int, message: str, retry_delay: str) -> Json:
        del retry_delay
        kind, code = KINDS.get(status, ("server_error", "server_error"))
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _said(item: Json) -> tuple[str, str]:
    return item.get("role", ""), text_of(item.get("content"))


def _item(answer: Answer, status: str) -> Json:
    if isinstance(answer, Call):
        return {
            "id": f"fc_{answer.number}",
            "type": "function_call",
            "status": status,
            "call_id": f"call_{answer.number}",
            "name": answer.tool,
            "arguments": answer.arguments_text,
        }
    part = {"type": "output_text", "text": answer.text, "annotations": []}
    return {
        "id": "msg_1",
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": [part],
    }


def _delta(kind: str, piece: str) -> bytes:
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return sse({"type": f"{kind}.delta", **place, "delta": piece}, named=True)


def _response(ask: Ask, answer: Answer, status: str, output: list[Any]) -> Json:
    taken, given = usage(ask, answer)
    used = {
        "input_tokens": taken,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": given,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": taken + given,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "model": ask.model,
        "output": output,
        "usage": used if status == "completed" else None,
    }

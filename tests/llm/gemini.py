"""The dialect of Gemini's generateContent."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.llm.asks import Answer, Ask, Call, Json, Lazily, Say, Stream, asked, sse, usage

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATH = re.compile(r"/models/(?P<model>[^/:]+):(?P<verb>\w+)$")
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class Gemini:
    """generateContent and streamGenerateContent; model and streaming are told by the path."""

    name = "gemini"

    def read(self, path: str, body: Json) -> Ask:
        meant = _PATH.search(path)
        assert meant, path
        turns = [turn for content in body["contents"] for turn in _turns(content)]
        tools = body.get("tools", ())
        declared = [each for tool in tools for each in tool.get("functionDeclarations", ())]
        said = {"model": meant["model"], "stream": meant["verb"] == "streamGenerateContent"}
        return asked(self.name, path, said, turns, [each["name"] for each in declared])

    def whole(self, ask: Ask, answer: Answer) -> Json:
        return self._chunk(ask, _parts(answer), over=answer)

    def stream(self, ask: Ask, answer: Answer) -> Stream:
        pieces: Sequence[Answer] = [answer]
        if isinstance(answer, Say):
            pieces = Lazily(answer.pieces, Say)
        return Stream(
            opening=b"",
            deltas=Lazily(pieces, lambda piece: sse(self._chunk(ask, _parts(piece)))),
            closing=sse(self._chunk(ask, [{"text": ""}], over=answer)),
        )

    def error(self, status: int, message: str, retry_delay: str) -> Json:
        error: Json = {"code": status, "message": message, "status": _STATUSES.get(status, "")}
        if retry_delay:
            kind = "type.googleapis.com/google.rpc.RetryInfo"
            error["details"] = [{"@type": kind, "retryDelay": retry_delay}]
        return {"error": error}

    def _chunk(self, ask: Ask, parts: list[Json], over: Answer | None = None) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        chunk: Json = {"candidates": [candidate], "modelVersion": ask.model, "responseId": "r1"}
        if over is not None:
            candidate["finishReason"] = "STOP"
            taken, given = usage(ask, over)
            chunk["usageMetadata"] = {
                "promptTokenCount": taken,
                "candidatesTokenCount": given,
                "totalTokenCount": taken + given,
            }
        return chunk


def _turns(content: Json) -> list[tuple[str, str]]:
    turns = []
    for part in content["parts"]:
        if "functionResponse" in part:
            turns.append(("result", ""))
        elif "text" in part:
            turns.append((content.get("role", "user"), part["text"]))
    return turns


def _parts(answer: Answer) -> list[Any]:
    if isinstance(answer, Call):
        return [{"functionCall": {"name": answer.tool, "args": answer.arguments}}]
    return [{"text": answer.text}]

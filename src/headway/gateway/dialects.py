"""What the API of each kind of provider looks like from the gateway: streams, waits, errors."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.gateway.refusals import Refusal

_STREAMS = re.compile(rb'"stream"\s*:\s*true\b')
# JSON may have as many of them in front as one likes.
_BLANK = b"\n"


class Dialect:
    """One kind of API.

    A client that waits is sent nothing for ``patience_seconds``, then ``filler`` again and again.
    The longer nothing is sent, the longer the upstream can answer with a status of its own; so
    it is as long as the least patient of the real clients allows. Without a filler there is
    nothing that would keep them waiting, or no need.
    """

    __slots__ = ("_asks", "_error", "_event", "_filler", "name", "patience_seconds")

    def __init__(
        self,
        name: str,
        *,
        asks_for_stream: Callable[[str, bytes], bool],
        error: Callable[[Refusal], dict[str, object]],
        event: bytes,
        patience_seconds: float,
        filler: bytes = b"",
    ) -> None:
        self.name, self._asks, self._error, self._event = name, asks_for_stream, error, event
        self.patience_seconds, self._filler = patience_seconds, filler

    def is_stream(self, path: str, body: bytes) -> bool:
        """Whether a request asks for its answer bit by bit."""
        return self._asks(path, body)

    def filler(self, *, is_stream: bool) -> bytes:
        """What keeps a client waiting; nothing, if nothing would."""
        return self._filler if is_stream else _BLANK

    def error_body(self, refusal: Refusal) -> bytes:
        """A refusal as the provider's own clients understand it."""
        return json.dumps(self._error(refusal)).encode()

    def error_event(self, body: bytes) -> bytes:
        """The same in a stream that has begun."""
        return self._event + b"data: " + b" ".join(body.splitlines()) + b"\n\n"


def _openai(refusal: Refusal) -> dict[str, object]:
    kind = refusal.kind
    return {"error": {"message": refusal.message, "type": kind, "param": None, "code": kind}}


def _anthropic(refusal: Refusal) -> dict[str, object]:
    return {"type": "error", "error": {"type": refusal.kind, "message": refusal.message}}


def _gemini(refusal: Refusal) -> dict[str, object]:
    about = "type.googleapis.com/google.rpc."
    details = [{"@type": f"{about}ErrorInfo", "reason": refusal.kind, "domain": "headway"}]
    if refusal.retry_seconds is not None:
        delay = f"{refusal.retry_seconds:g}s"
        details.append({"@type": f"{about}RetryInfo", "retryDelay": delay})
    status = "RESOURCE_EXHAUSTED" if refusal.status == 429 else "UNAVAILABLE"  # noqa: PLR2004
    told = {"code": refusal.status, "message": refusal.message, "status": status}
    return {"error": {**told, "details": details}}


def _in_body(path: str, body: bytes) -> bool:
    del path
    return _STREAMS.search(body) is not None


def _in_path(path: str, body: bytes) -> bool:
    del body
    return ":stream" in path and "alt=sse" in path


# opencode gives up after 300 seconds without headers, and takes comments for a sign of life.
CHAT = Dialect(
    "chat",
    asks_for_stream=_in_body,
    error=_openai,
    event=b"",
    patience_seconds=240.0,
    filler=b": waiting for a slot\n\n",
)
# Codex waits without end for headers, and for nothing but real events after them.
RESPONSES = Dialect(
    "responses", asks_for_stream=_in_body, error=_openai, event=b"", patience_seconds=240.0
)
# Claude Code gives up after 300 seconds, whatever is sent, and asks again; other clients take this.
MESSAGES = Dialect(
    "messages",
    asks_for_stream=_in_body,
    error=_anthropic,
    event=b"event: error\n",
    patience_seconds=310.0,
    filler=b'event: ping\ndata: {"type": "ping"}\n\n',
)
# Gemini CLI gives up after 60 seconds without headers, and takes a comment for garbage.
GEMINI = Dialect(
    "gemini",
    asks_for_stream=_in_path,
    error=_gemini,
    event=b"",
    patience_seconds=40.0,
    filler=_BLANK,
)
_BY_PATH = (
    (re.compile(r"/messages(?:/|\?|$)"), MESSAGES),
    (re.compile(r"/responses(?:/|\?|$)"), RESPONSES),
    (re.compile(r":\w*[Gg]enerateContent|/v1(?:beta|alpha)\w*/"), GEMINI),
)
_BY_NAME = {"anthropic": MESSAGES, "gemini": GEMINI}


def dialect_of(upstream: str, path: str) -> Dialect:
    """The dialect of a request, by its path or else by its upstream."""
    for pattern, dialect in _BY_PATH:
        if pattern.search(path):
            return dialect
    return _BY_NAME.get(upstream, CHAT)

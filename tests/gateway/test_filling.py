"""While a request waits long, its client is kept waiting in the way that its kind understands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headway.gateway import dialects, waiting_room

if TYPE_CHECKING:
    from tests.gateway.kit import Running
    from tests.llm.server import Server

_FILLERS = {
    "/openai/v1/chat/completions": b": waiting for a slot\n\n",
    "/anthropic/v1/messages": b'event: ping\ndata: {"type": "ping"}\n\n',
    "/gemini/v1beta/models/gpt:streamGenerateContent?alt=sse": b"\n",
}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that lose patience in no time."""
    for each in (dialects.CHAT, dialects.MESSAGES, dialects.GEMINI, dialects.RESPONSES):
        monkeypatch.setattr(each, "patience_seconds", 0.01)
    monkeypatch.setattr(waiting_room, "_AGAIN_SECONDS", 0.01)


def _body(text: str, *, stream: bool = True) -> bytes:
    message = {"role": "user", "content": text, "parts": [{"text": text}]}
    asked = {"model": "gpt", "stream": stream, "messages": [message], "contents": [message]}
    return json.dumps(asked | {"max_tokens": 9, "input": text}).encode()


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("path", _FILLERS)
def test_a_stream_is_begun_and_kept_going(gateway: Running, server: Server, path: str) -> None:
    """Then the provider's answer follows in it, whole."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        client = gateway.connect()
        client.post(path, _body("[say: hello]"), accept_encoding="gzip")
        head = client.until(b"\r\n\r\n")
        for _ in range(3):
            assert _FILLERS[path] in client.until(_FILLERS[path])

    assert b"text/event-stream" in head
    rest = client.until(b"0\r\n\r\n")
    assert b"hello" in rest
    (record,) = server.requests()
    assert "accept-encoding" not in {name.lower() for name in record.headers}


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("path", _FILLERS)
def test_a_late_refusal_is_told_inside(gateway: Running, path: str) -> None:
    """An answer has begun, so its status cannot be told any more."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        client = gateway.connect()
        client.post(path, _body("[status: 400]"))
        client.until(b"\r\n\r\n")

    rest = client.until(b"0\r\n\r\n")

    assert b"data: {" in rest
    assert b"planned 400" in rest


@pytest.mark.usefixtures("hasty")
def test_whoever_waits_for_events_alone_is_sent_nothing(gateway: Running) -> None:
    """Codex: headers would only start its clock."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        client = gateway.connect()
        client.post("/openai/v1/responses", _body("[status: 429]"))
        gateway.until(lambda: gateway.waiting() == 1, "the wait")

    assert client.until(b"\r\n").startswith(b"HTTP/1.1 429 ")


@pytest.mark.usefixtures("hasty")
def test_an_answer_that_is_no_stream_is_kept_going_with_blanks(gateway: Running) -> None:
    """JSON may begin with any number of them."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        client = gateway.connect()
        client.post("/openai/v1/chat/completions", _body("[say: hello]", stream=False))
        assert b"application/json" in client.until(b"\r\n\r\n")
        client.until(b"1\r\n\n\r\n1\r\n\n\r\n")

    assert b"hello" in client.until(b"0\r\n\r\n")

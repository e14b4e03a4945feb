"""While a request waits long, its client is kept waiting in the way that its kind understands."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.gateway.kit import running

from headway.gateway import dialects, waiting_room
from headway.gateway.dialects import dialect_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.kit import Running, Wire
    from tests.gateway.scripted import Scripted
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
        filler = b"%x\r\n%b\r\n" % (len(_FILLERS[path]), _FILLERS[path])
        for _ in range(3):
            assert client.take(len(filler)) == filler

    assert b"text/event-stream" in head
    assert b"\r\nx-headway-waiting: 1\r\n" in head
    rest = client.until(b"0\r\n\r\n")
    assert b"hello" in rest
    gateway.until(lambda: gateway.entries, "the log")
    assert gateway.entries[0]["kept_waiting"] is True
    (record,) = server.requests()
    sent = {name.lower(): value for name, value in record.headers.items()}
    assert sent["accept-encoding"] == "identity"


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

    assert (b"event: error\ndata: {" if "anthropic" in path else b"\r\ndata: {") in rest
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
@pytest.mark.parametrize(
    "path", ["/openai/v1/chat/completions", "/gemini/v1beta/models/gpt:streamGenerateContent"]
)
def test_an_answer_that_is_no_stream_is_kept_going_with_blanks(gateway: Running, path: str) -> None:
    """JSON may begin with any number of them; Gemini streams only if asked for events."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        client = gateway.connect()
        client.post(path, _body("[say: hello]", stream=False))
        assert b"application/json" in client.until(b"\r\n\r\n")
        client.until(b"1\r\n\n\r\n1\r\n\n\r\n")

    assert b"hello" in client.until(b"0\r\n\r\n")


def _late(plain: Running, upstream: Scripted, *, stream: bool) -> tuple[Wire, Wire]:
    """A client whose answer was begun before its request came to the upstream."""
    plain.governor.set_limit("llm", 1)
    with plain.governor.slot("llm"):
        client = plain.connect()
        client.post("/openai/v1/chat/completions", _body("x", stream=stream))
        client.until(b"\r\n\r\n")
    provider = upstream.accept()
    provider.message()
    return client, provider


def _chunks(body: bytes) -> bytes:
    """What is in them."""
    return b"".join(re.findall(rb"(?s)[0-9a-f]+\r\n(.*?)\r\n", body))


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("stream", [True, False])
def test_a_late_error_of_many_lines_can_be_read(
    plain: Running, upstream: Scripted, *, stream: bool
) -> None:
    """In a stream it is one event, however its lines end, otherwise the body as it came."""
    error = b'{\r  "error":\n\r  "late"\n}'
    client, provider = _late(plain, upstream, stream=stream)
    provider.send(b"HTTP/1.1 500 No\r\nContent-Length: %d\r\n\r\n%b" % (len(error), error))

    told = _chunks(client.until(b"\r\n0\r\n\r\n"))

    if stream:
        told = told[told.index(b"data: ") + 6 :]
        assert told.endswith(b"\n\n")
        assert not {b"\r", b"\n"} & {bytes([each]) for each in told[:-2]}
    assert json.loads(told) == {"error": "late"}


@pytest.mark.usefixtures("hasty")
def test_a_late_queue_timeout_is_told_inside(home: Path, upstream: Scripted) -> None:
    """As an event, because a stream has begun."""
    environ = {"HEADWAY_GATEWAY_QUEUE_TIMEOUT": "300ms"}
    with running(home, {"anthropic": upstream.url}, environ) as gateway:
        gateway.governor.set_limit("llm", 1)
        with gateway.governor.slot("llm"):
            client = gateway.connect()
            client.post("/anthropic/v1/messages", _body("x"))
            assert b" 200 " in client.until(b"\r\n\r\n")

            told = client.until(b"\r\n0\r\n\r\n")

    assert b'event: error\ndata: {"type": "error"' in told
    assert b'"type": "headway_queue_timeout"' in told


@pytest.mark.usefixtures("hasty")
def test_nothing_is_sent_once_it_has_its_turn(plain: Running, upstream: Scripted) -> None:
    """However long the upstream takes then; its status is passed on."""
    plain.governor.set_limit("llm", 1)
    first, second = plain.connect(), plain.connect()
    first.post("/openai/v1/chat/completions", _body("x"))
    provider = upstream.accept()
    provider.message()
    second.post("/openai/v1/chat/completions", _body("x"))
    second.until(b": waiting for a slot\n\n")

    provider.send(b"HTTP/1.1 418 Slow\r\nContent-Length: 0\r\n\r\n")

    assert first.until(b"\r\n").startswith(b"HTTP/1.1 418 ")
    provider.message()
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
    provider.send(b"done")
    assert b"done" in second.until(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("upstream", "path", "name"),
    [
        ("mine", "/v1/messages?beta=true", "messages"),
        ("mine", "/v1/responses", "responses"),
        ("mine", "/v1beta/models/gpt:generateContent", "gemini"),
        ("mine", "/v1/chat/completions", "chat"),
        ("anthropic", "/v1/complete", "messages"),
        ("gemini", "/upload", "gemini"),
        ("gemini", "/openai/responses", "responses"),
    ],
)
def test_a_dialect_is_known_by_its_path_or_else_by_its_upstream(
    upstream: str, path: str, name: str
) -> None:
    """Many providers speak that of another."""
    assert dialect_of(upstream, path).name == name


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("stream", [True, False])
def test_a_late_status_without_a_body_is_told_too(
    plain: Running, upstream: Scripted, *, stream: bool
) -> None:
    """Otherwise it would be an empty answer, and a good one by its status."""
    client, provider = _late(plain, upstream, stream=stream)
    provider.send(b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")

    told = _chunks(client.until(b"\r\n0\r\n\r\n"))

    error = json.loads(told[told.index(b"{") :])["error"]
    assert error["type"] == "headway_upstream_failed"
    assert "503" in error["message"]

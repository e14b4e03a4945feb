"""What the log tells of a request, and what it keeps to itself."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.gateway import kit
from tests.gateway.scripted import ASK
from tests.transport.kit import Heard

from headway.gateway import access_log
from headway.gateway.heads import RequestHead

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted

_STREAM = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def test_it_tells_who_what_and_how_long(plain: Running, upstream: Scripted) -> None:
    """Not what comes after a question mark: some send their key there."""
    plain.governor.set_limit("llm", 1)
    with plain.governor.slot("llm"):
        client = plain.connect()
        client.post("/t/me/openai/v1/x?key=secret", ASK, authorization="secret")
        plain.until(lambda: plain.waiting() == 1, "the wait")
    provider = upstream.accept()
    provider.message()
    provider.send(b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello")
    client.message()
    plain.until(lambda: plain.entries, "the log")

    (told,) = plain.entries
    assert told["waited_ms"] > 0
    assert told["waited_ms"] <= told["first_byte_ms"] <= told["total_ms"]
    named = ("status", "key", "task", "method", "path", "bytes", "tokens_in", "outcome")
    assert {name: told[name] for name in named} == {
        "status": 201,
        "key": "llm/openai/gpt",
        "task": "me",
        "method": "POST",
        "path": "/t/me/openai/v1/x",
        "bytes": 5,
        "tokens_in": None,
        "outcome": "ok",
    }
    assert "secret" not in str(told)


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ({"input_tokens": 70, "output_tokens": 1}, {"output_tokens": 9}),
        ({}, {"prompt_tokens": 70, "completion_tokens": 9}),
        ({"promptTokenCount": 70}, {"promptTokenCount": 70, "candidatesTokenCount": 9}),
    ],
)
def test_it_tells_the_tokens_of_a_long_stream(
    plain: Running, upstream: Scripted, first: dict[str, int], last: dict[str, int]
) -> None:
    """Some tell them at its beginning, some at its end, some as they go."""
    client, provider = upstream.asked(plain, "/openai/v1/chat/completions")
    provider.send(_STREAM)
    texts = [b"x" * 9000 for _ in range(6)]
    usage = [json.dumps(each).encode() for each in (first, last)]
    for piece in (usage[0] + texts[0], *texts, texts[0] + usage[1]):
        provider.send(_chunk(piece))
        client.until(_chunk(piece)[-100:])
    provider.send(b"0\r\n\r\n")
    plain.until(lambda: plain.entries, "the log")

    assert (plain.entries[0]["tokens_in"], plain.entries[0]["tokens_out"]) == (70, 9)


_CUT = _chunk(b'data: {"choices": []}\n\n')
_REFUSED = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "outcome", "is_truncated"),
    [
        (_STREAM + _CUT + b"0\r\n\r\n", "truncated", True),
        (_STREAM + _CUT + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n", "ok", False),
        (_STREAM + _CUT, "upstream failed: it hung up, in its answer", True),
        (_REFUSED, "refused upstream", False),
    ],
)
def test_it_tells_how_an_answer_ended(
    plain: Running, upstream: Scripted, answer: bytes, outcome: str, *, is_truncated: bool
) -> None:
    """A stream without its last event is cut, however politely, and whoever listens hears it."""
    heard = Heard(plain.governor)
    client, provider = upstream.asked(plain, "/openai/v1/chat/completions")
    provider.send(answer)
    client.until(b"\r\n\r\n")
    provider.close()
    plain.until(lambda: plain.entries, "the log")

    assert plain.entries[0]["outcome"] == outcome
    assert ("truncated" in heard.kinds()) is is_truncated


@pytest.fixture
def _as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kit, "entry", lambda exchange: {"line": access_log.as_text(exchange)})


def _line(gateway: Running, upstream: Scripted, path: str, answer: bytes) -> str:
    client = gateway.connect()
    client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer))
    assert client.message()[1] == answer
    gateway.until(lambda: gateway.entries, "the line")
    return str(gateway.entries[0]["line"])


@pytest.mark.usefixtures("_as_text")
def test_a_line_is_one_line(plain: Running, upstream: Scripted) -> None:
    """A task is what a client says it is; it cannot forge lines, nor steer a terminal."""
    line = _line(plain, upstream, "/t/a%0d%0ab%1b[31m/openai/v1/models", b"{}")

    assert line.isprintable()
    assert re.search(r" a\?\?b\?\[31m +GET ", line)


@pytest.mark.usefixtures("_as_text")
def test_a_number_of_tokens_that_is_none(plain: Running, upstream: Scripted) -> None:
    """Does not cost the client its connection."""
    answer = b'{"output_tokens": ' + b"9" * 5000 + b"}"

    assert _line(plain, upstream, "/openai/v1/models", answer).endswith(" ok")


_TOKEN = "0123456789abcdef"  # noqa: S105 - it guards nothing


@pytest.mark.parametrize(
    ("request_bytes", "status", "path", "why"),
    [
        (b"GET /k/wrong-one/x?secret HTTP/1.1\r\nHost: localhost\r\n\r\n", 403, "/x", "is wrong"),
        (b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n", 403, "/x", "a token is needed"),
        (b"GET /k/%b/v1/x HTTP/1.1\r\nHost: x\r\n\r\n", 404, "/v1/x", "names no upstream"),
        (b"GET /k/%b/k/%b/k/%b/x HTTP/1.1\r\nHost: x\r\n\r\n", 404, "/x", "names no upstream"),
        (
            (
                b"POST /k/%b/openai/x HTTP/1.1\r\nHost: x\r\nx-headway-priority: 1000\r\n"
                b"Content-Length: 2\r\n\r\n{}"
            ),
            400,
            "/openai/x",
            "priority must be",
        ),
        (
            (
                b"GET /k/%b/t/me/openai/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
                b"Upgrade: websocket\r\n\r\n"
            ),
            426,
            "/t/me/openai/x",
            "no websockets",
        ),
        (b"POST /k/%b/x HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400, "/x", "no HTTP request"),
        (b"\x16\x03\x01\x02", 400, None, "no HTTP request"),
    ],
)
def test_it_tells_who_was_turned_away(
    home: Path, request_bytes: bytes, status: int, path: str | None, why: str
) -> None:
    """And why, so that whoever sets up a tool can see it; without the token, right or wrong."""
    with kit.running(home, {}, {"HEADWAY_GATEWAY_TOKEN": _TOKEN}) as gateway:
        client = gateway.connect()
        client.send(request_bytes.replace(b"%b", _TOKEN.encode()))
        client.until(b"\r\n\r\n")
        gateway.until(lambda: gateway.entries, "the log")
        (told,) = gateway.entries

    assert (told["status"], told["path"]) == (status, path)
    assert told["outcome"].startswith("turned away: ")
    assert why in told["outcome"]
    assert told["task"] == ("me" if path and "/t/" in path else None)
    assert not any(word in str(told) for word in (_TOKEN, "wrong-one", "secret"))


@pytest.mark.usefixtures("_as_text")
def test_even_nonsense_has_its_line(plain: Running) -> None:
    """Without what it has not."""
    client = plain.connect()
    client.send(b"\x16\x03\x01\x02")
    client.until(b"\r\n\r\n")
    plain.until(lambda: plain.entries, "the line")

    line = plain.entries[0]["line"]
    assert re.match(r"\d\d:\d\d:\d\d +400 +0 ms +- +\d+ ms +0 +- +- +- +- - +turned away", line)


def test_values_stand_under_their_names() -> None:
    """Each column of the log begins where its name does."""
    head = RequestHead()
    head.method, head.target = b"POST", b"/openai/v1/x?key=secret"
    line = access_log.as_text(access_log.TurnedAway(head, "issue-16", 403, "no token"))

    for name, value in {
        "STATUS": "403",
        "BYTES": "0",
        "KEY": "-",
        "TASK": "issue-16",
        "REQUEST": "POST /openai/v1/x",
        "OUTCOME": "turned away: no token",
    }.items():
        assert line[access_log.HEADER.index(name) :].startswith(value), name


def test_a_log_that_cannot_be_written_ends_nothing(
    plain: Running, upstream: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once, and every client keeps its connection."""

    def fail(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kit, "entry", fail)
    client = plain.connect()
    client.post("/openai/x", ASK)
    provider = upstream.accept()
    for _ in range(2):
        provider.message()
        provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        assert client.message()[1] == b"{}"
        client.post("/openai/x", ASK)

"""Whatever clients and upstreams send or fail to send, nothing hangs and no slot stays behind."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
from tests.gateway.kit import running

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted

_ASK = b'{"model": "gpt", "messages": []}'
_POST = b"POST /openai/x HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET\r\n\r\n", 400),
        (_POST + b"Content-Length: x\r\n\r\n", 400),
        (_POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * 200_000, 431),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET http://elsewhere/openai HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET /nowhere/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (_POST + b"x-headway-priority: many\r\nContent-Length: 2\r\n\r\n{}", 400),
    ],
)
def test_what_is_no_proper_request_is_refused(
    plain: Running, request_bytes: bytes, status: int
) -> None:
    """With a status that says so, and nothing of it goes on."""
    client = plain.connect()
    client.send(request_bytes)

    assert client.until(b"\r\n").startswith(b"HTTP/1.1 %d " % status)


def test_a_body_may_be_too_large(home: Path, upstream: Scripted) -> None:
    """It is refused before it is all there."""
    environ = {"HEADWAY_GATEWAY_MAX_BODY": "1KB"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        client = gateway.connect()
        client.send(_POST + b"Content-Length: 9999\r\n\r\n")
        client.send(b"a" * 2000)

        assert client.until(b"\r\n").startswith(b"HTTP/1.1 413 ")


def test_slow_clients_are_hung_up_on(home: Path, upstream: Scripted) -> None:
    """One that does not finish its request, and one that does not take its answer."""
    environ = {"HEADWAY_GATEWAY_CLIENT_PATIENCE": "1s"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        silent, trickling = gateway.connect(), gateway.connect()
        trickling.send(_POST + b"Content-Length: 9\r\n\r\nabc")
        deaf = gateway.connect()
        deaf.post("/openai/x", _ASK)
        provider = upstream.accept()
        provider.until(b"\r\n\r\n")
        provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")

        with pytest.raises(ConnectionError):
            provider.send(b"x" * 100_000_000)

        assert trickling.rest().startswith(b"HTTP/1.1 408 ")
        assert silent.rest() == b""
        gateway.until(lambda: gateway.held() == 0, "the end of the lease")


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (b"", "hung up"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "no HTTP"),
    ],
)
def test_an_upstream_that_does_not_answer(
    plain: Running, upstream: Scripted, answer: bytes, what: str
) -> None:
    """Is told by a status of the gateway's own."""
    client = plain.connect()
    client.post("/openai/v1/chat/completions", _ASK)
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.take(len(_ASK))
    provider.send(answer)
    provider.close()

    head = client.until(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 502 ")
    assert b"x-headway-error: headway_upstream_failed" in head
    plain.until(lambda: plain.held() == 0 and plain.entries, "the end of the lease")
    assert what in plain.entries[0]["outcome"]


@pytest.mark.parametrize("framing", [b"Content-Length: 10", b"Transfer-Encoding: chunked"])
def test_an_answer_that_is_cut_is_seen_to_be(
    plain: Running, upstream: Scripted, framing: bytes
) -> None:
    """The client gets what came, and no end."""
    client = plain.connect()
    client.post("/openai/v1/chat/completions", _ASK)
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.take(len(_ASK))
    provider.send(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing)
    provider.send(b"3\r\nabc\r\n")
    client.until(b"abc")
    provider.close()

    assert not client.rest().endswith(b"0\r\n\r\n")
    plain.until(lambda: plain.held() == 0, "the end of the lease")


def test_an_upstream_that_cannot_be_reached(home: Path) -> None:
    """Says so, and where."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running(home, {"openai": f"http://127.0.0.1:{port}"}) as gateway:
        client = gateway.connect()
        client.post("/openai/v1/chat/completions", _ASK)

        assert client.until(b"\r\n").startswith(b"HTTP/1.1 502 ")
        assert b"cannot be reached" in client.until(b"}}")


def test_an_upstream_that_stalls_is_given_up(home: Path, upstream: Scripted) -> None:
    """After a time that can be set."""
    environ = {"HEADWAY_GATEWAY_UPSTREAM_PATIENCE": "1s"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        client = gateway.connect()
        client.post("/openai/v1/chat/completions", _ASK)
        upstream.accept().until(b"\r\n\r\n")

        assert client.until(b"\r\n").startswith(b"HTTP/1.1 502 ")
        assert b"nothing came from it for 1 s" in client.until(b"}}")

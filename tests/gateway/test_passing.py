"""Requests and answers go through byte for byte, as they come."""

from __future__ import annotations

import asyncio
import gzip
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.gateway.kit import Wire

from headway.gateway.clients import Client

if TYPE_CHECKING:
    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted

_ASK = b'{"model": "gpt", "messages": []}'


def _answered(gateway: Running, upstream: Scripted, answer: bytes) -> Wire:
    """A client that has sent a request, which was answered with these bytes."""
    client = gateway.connect()
    client.post("/openai/v1/chat/completions", _ASK)
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.take(len(_ASK))
    provider.send(answer)
    return client


def test_a_request_is_passed_on_as_it_came(plain: Running, upstream: Scripted) -> None:
    """The path after the prefix, every header in its order and spelling, and the body."""
    client = plain.connect()
    body = b'{"model":"gpt","x":"\xc3\xa9"}'
    client.send(
        b"POST /openai/v1/chat/completions?a=b&c HTTP/1.1\r\nHost: localhost:1\r\n"
        b"AUTHORIZATION: Bearer secret\r\nX-Twice: 1\r\nx-twice: 2\r\nAccept-Encoding: br\r\n"
        b"Connection: keep-alive, X-Hop\r\nX-Hop: no\r\nx-headway-task: mine\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    provider = upstream.accept()

    head = provider.until(b"\r\n\r\n")

    port = upstream.url.rpartition(":")[2].partition("/")[0].encode()
    assert head == (
        b"POST /base/v1/chat/completions?a=b&c HTTP/1.1\r\nHost: 127.0.0.1:%b\r\n"
        b"AUTHORIZATION: Bearer secret\r\nX-Twice: 1\r\nx-twice: 2\r\nAccept-Encoding: br\r\n"
        b"Content-Length: %d\r\n\r\n" % (port, len(body))
    )
    assert provider.take(len(body)) == body


def test_an_answer_is_passed_on_as_it_came(plain: Running, upstream: Scripted) -> None:
    """Status and its words, every header, and the bytes of a body that nobody unpacks."""
    packed = gzip.compress(b"hello")
    client = _answered(
        plain,
        upstream,
        b"HTTP/1.1 418 I am a Teapot\r\nX-A: 1\r\nx-a: 2\r\nContent-Encoding: gzip\r\n"
        b"Set-Cookie: a=b\r\nSet-Cookie: c=d\r\nContent-Length: %d\r\n\r\n%b"
        % (len(packed), packed),
    )

    head = client.until(b"\r\n\r\n").split(b"\r\n")

    assert head[:7] == [
        b"HTTP/1.1 418 I am a Teapot",
        b"X-A: 1",
        b"x-a: 2",
        b"Content-Encoding: gzip",
        b"Set-Cookie: a=b",
        b"Set-Cookie: c=d",
        b"Content-Length: %d" % len(packed),
    ]
    assert [line.partition(b":")[0] for line in head[7:9]] == [
        b"x-headway-waited-ms",
        b"x-headway-ticket",
    ]
    assert client.take(len(packed)) == packed


def test_pieces_come_as_they_are_sent_and_trailers_after_them(
    plain: Running, upstream: Scripted
) -> None:
    """Each is there before the next one is sent."""
    client = plain.connect()
    client.post("/openai/v1/chat/completions", _ASK)
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-End\r\n\r\n")
    assert b"\r\nTrailer: X-End\r\n" in client.until(b"\r\n\r\n")

    for piece in (b"data: one\n\n", b"data: two\n\n"):
        provider.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        assert client.until(b"\n\n\r\n") == b"%x\r\n%b\r\n" % (len(piece), piece)
    provider.send(b"0\r\nX-End: yes\r\n\r\n")

    assert client.until(b"\r\n\r\n") == b"0\r\nX-End: yes\r\n\r\n"


def test_a_connection_serves_one_request_after_another(plain: Running, upstream: Scripted) -> None:
    """On either side, also if the client sends the next one early."""
    client = plain.connect()
    client.post("/openai/one", _ASK)
    client.post("/openai/two", _ASK)
    provider = upstream.accept()
    for name in (b"one", b"two"):
        assert provider.until(b"\r\n\r\n").startswith(b"POST /base/%b " % name)
        provider.take(len(_ASK))
        provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n" + name)

        client.until(b"\r\n\r\n")
        assert client.take(3) == name


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
    ],
)
def test_answers_without_a_body(
    plain: Running, upstream: Scripted, method: str, answer: bytes
) -> None:
    """They end with their head, and the connection goes on."""
    client, providers = plain.connect(), list[Wire]()
    for _ in range(2):
        client.send(f"{method} /openai/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        if method == "HEAD" or not providers:  # nobody can be sure where that ends
            providers.append(upstream.accept())
        providers[-1].until(b"\r\n\r\n")
        providers[-1].send(answer)

        first_line = answer.rpartition(b"HTTP/1.1")[2].partition(b"\r\n")[0]
        assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1" + first_line)


def test_a_body_that_ends_with_the_connection(plain: Running, upstream: Scripted) -> None:
    """Its end is told to the client in the way of the client's HTTP."""
    client = plain.connect()
    client.post("/openai/v1/chat/completions", _ASK)
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.take(len(_ASK))
    provider.send(b"HTTP/1.1 200 OK\r\nX-A: 1\r\n\r\nall of it")
    provider.close()

    assert b"Transfer-Encoding: chunked" in client.until(b"\r\n\r\n")
    assert client.until(b"0\r\n\r\n") == b"9\r\nall of it\r\n0\r\n\r\n"


def test_an_old_client_is_hung_up_on_at_the_end(plain: Running, upstream: Scripted) -> None:
    """HTTP/1.0 has no chunks."""
    client = plain.connect()
    client.send(b"GET /openai/x HTTP/1.0\r\nHost: localhost\r\n\r\n")
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")

    head, _, body = client.rest().partition(b"\r\n\r\n")

    assert b"chunked" not in head
    assert body == b"abc"


def test_a_client_may_ask_whether_to_go_on(plain: Running, upstream: Scripted) -> None:
    """``Expect: 100-continue``, as curl sends it with a large body."""
    client = plain.connect()
    client.send(
        b"POST /openai/x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        b"Content-Length: 3\r\n\r\n"
    )

    assert client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"abc")
    provider = upstream.accept()
    assert b"Expect" not in provider.until(b"\r\n\r\n")
    assert provider.take(3) == b"abc"


def test_whoever_wants_another_protocol_gets_this_one(plain: Running, upstream: Scripted) -> None:
    """Codex tries websockets first; the upstream is asked without, and its answer passed on."""
    client = plain.connect()
    client.send(
        b"GET /openai/v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    provider = upstream.accept()
    head = provider.until(b"\r\n\r\n")
    provider.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    assert b"Upgrade" not in head
    assert client.rest().startswith(b"HTTP/1.1 404 Not Found\r\n")


def test_a_request_in_chunks_stays_one(plain: Running, upstream: Scripted) -> None:
    """With its trailers."""
    client = plain.connect()
    client.send(
        b"POST /openai/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\nab\r\n1\r\nc\r\n0\r\nX-T: 1\r\n\r\n"
    )
    provider = upstream.accept()

    assert b"Transfer-Encoding: chunked" in provider.until(b"\r\n\r\n")
    assert provider.until(b"\r\n\r\n") == b"3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n"


def test_ten_megabytes_go_through(plain: Running, upstream: Scripted) -> None:
    """In both directions, past a client that does not read at first."""
    ask = b'{"model": "gpt", "x": "' + b"a" * 10_000_000 + b'"}'
    answer = bytes(range(256)) * 40_000
    client = plain.connect()
    client.post("/openai/x", ask)
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    assert provider.take(len(ask)) == ask
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(provider.send, answer)
        client.until(b"\r\n\r\n")
        assert client.take(len(answer)) == answer
        sending.result()


def test_an_upstream_need_not_wait_for_a_slow_client(
    plain: Running, upstream: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its answer is whole, its connection serves the next one."""
    connection_made = Client.connection_made

    def narrow(client: Client, transport: asyncio.BaseTransport) -> None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=1000)
        connection_made(client, transport)

    monkeypatch.setattr(Client, "connection_made", narrow)
    slow, next_one = plain.connect(narrow=True), plain.connect()
    slow.post("/openai/x", _ASK)
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.take(len(_ASK))
    size = 60_000
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, b"x" * size))
    plain.until(lambda: plain.entries, "its end")

    next_one.post("/openai/x", _ASK)
    provider.until(b"\r\n\r\n")
    provider.take(len(_ASK))
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")

    next_one.until(b"\r\n\r\n")
    assert next_one.take(4) == b"next"
    slow.until(b"\r\n\r\n")
    assert slow.take(size) == b"x" * size

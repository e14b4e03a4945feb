"""Requests and answers go through byte for byte, as they come."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.gateway.kit import Wire
from tests.gateway.scripted import ASK

if TYPE_CHECKING:
    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted


def _answered(gateway: Running, upstream: Scripted, answer: bytes) -> Wire:
    """A client that has sent a request, which was answered with these bytes."""
    client, provider = upstream.asked(gateway, "/openai/v1/chat/completions")
    provider.send(answer)
    return client


def test_a_request_is_passed_on_as_it_came(plain: Running, upstream: Scripted) -> None:
    """The path after the prefix, every header in its order and spelling, and the body."""
    client = plain.connect()
    body = b'{"model":"gpt","x":"\xc3\xa9"}'
    client.send(
        b"POST /openai/v1/chat/completions?a=b&c HTTP/1.1\r\nHost: localhost:1\r\n"
        b"AUTHORIZATION: Bearer secret\r\nX-Twice: 1\r\nx-twice: 2\r\nAccept-Encoding: br\r\n"
        b"Connection: X-Hop\r\nConnection: keep-alive\r\nX-Hop: no\r\nx-headway-task: mine\r\n"
        b"TE: trailers\r\nProxy-Authorization: no\r\nKeep-Alive: timeout=5\r\n"
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
    client.post("/openai/v1/chat/completions", ASK)
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
    client.post("/openai/one", ASK)
    client.post("/openai/two", ASK)
    provider = upstream.accept()
    for name in (b"one", b"two", b"three"):
        assert provider.message()[0].startswith(b"POST /base/%b " % name)
        if name == b"two":  # which is under way by now
            client.post("/openai/three", ASK)
        provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(name), name))

        assert client.message()[1] == name


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
    client, provider = upstream.asked(plain, "/openai/v1/chat/completions")
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
    """The upstream is asked without, and its answer passed on."""
    client = plain.connect()
    client.send(
        b"GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\n"
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n\r\n"
    )
    provider = upstream.accept()
    head = provider.until(b"\r\n\r\n")
    provider.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    assert b"Upgrade" not in head
    assert b"HTTP2" not in head
    assert client.rest().startswith(b"HTTP/1.1 404 Not Found\r\n")


def test_websockets_are_refused_with_what_makes_codex_go_on_without(plain: Running) -> None:
    """At 426 it asks in the ordinary way at once; anything else it tries again and again."""
    client = plain.connect()
    client.send(
        b"GET /openai/v1/responses HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )

    assert client.rest().startswith(b"HTTP/1.1 426 Upgrade Required\r\n")


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


def test_a_wish_for_another_protocol_does_not_cost_the_body(
    plain: Running, upstream: Scripted
) -> None:
    """Java's client asks for HTTP/2 with its first request, whatever that is."""
    client = plain.connect()
    client.send(
        b"POST /openai/x HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\nHost: localhost\r\n"
        b"HTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\nContent-Length: %d\r\n\r\n" % len(ASK)
    )
    client.send(ASK)
    provider = upstream.accept()
    head, body = provider.message()
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    assert b"HTTP2-Settings" not in head
    assert body == ASK
    assert client.rest().endswith(b"\r\n\r\n{}")


def test_an_encoding_under_the_chunks_is_still_named(plain: Running, upstream: Scripted) -> None:
    """The bytes are passed on in it."""
    client = plain.connect()
    client.send(
        b"POST /openai/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\n\r\n"
    )

    head = upstream.accept().until(b"\r\n\r\n")

    assert b"\r\nTransfer-Encoding: gzip, chunked\r\n" in head


def test_ten_megabytes_go_through(plain: Running, upstream: Scripted) -> None:
    """In both directions, past a client that does not read at first."""
    ask = b'{"model": "gpt", "x": "' + b"a" * 10_000_000 + b'"}'
    answer = bytes(range(256)) * 40_000
    client = plain.connect()
    client.post("/openai/x", ask)
    provider = upstream.accept()
    assert provider.message()[1] == ask
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer))

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(provider.send, answer)
        assert client.message()[1] == answer
        sending.result()


@pytest.mark.usefixtures("narrow_clients")
def test_an_upstream_need_not_wait_for_a_slow_client(plain: Running, upstream: Scripted) -> None:
    """Once its answer is whole, its connection serves the next one."""
    slow, next_one = plain.connect(narrow=True), plain.connect()
    slow.post("/openai/x", ASK)
    provider = upstream.accept()
    provider.message()
    size = 60_000
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, b"x" * size))
    plain.until(lambda: plain.entries, "its end")

    next_one.post("/openai/x", ASK)
    provider.message()
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext")

    assert next_one.message()[1] == b"next"
    assert slow.message()[1] == b"x" * size


def test_an_old_client_may_stay_where_the_length_is_told(
    plain: Running, upstream: Scripted
) -> None:
    """As long as it is told so; without a length it is hung up on all the same."""
    client = plain.connect()
    ask = b"GET /openai/x HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n"
    client.send(ask)
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc")
    assert b"\r\nConnection: keep-alive\r\n" in client.message()[0]

    client.send(ask)
    provider.until(b"\r\n\r\n")
    provider.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ndef\r\n0\r\n\r\n")

    head, _, body = client.rest().partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in head
    assert body == b"def"


def test_the_gateways_own_answers_to_head_have_no_body(plain: Running) -> None:
    """What is next on the connection is the next answer."""
    client = plain.connect()
    for method in (b"HEAD", b"GET"):
        client.send(method + b" /healthz?x HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert client.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")

    head, body = client.message()

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert json.loads(body)["headway"]["status"] == "ok"

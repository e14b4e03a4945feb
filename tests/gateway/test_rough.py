"""Whatever clients and upstreams send or fail to send, nothing hangs and no slot stays behind."""

from __future__ import annotations

import contextlib
import errno
import socket
import threading
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from tests.gateway.kit import running
from tests.gateway.scripted import ASK, WHOLE

from headway import aio
from headway.gateway.exchange import Exchange
from headway.gateway.reasons import reason_of
from headway.gateway.routing import Routes

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted

    from headway.llm.calls import Call

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
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 80_000 + b"\r\n\r\n", 431),
        (_POST + b"X: " + b"a" * 80_000 + b"\r\nContent-Length: 2\r\n\r\n{}", 431),
        (_POST + b"Expect: 100-continue\r\nContent-Length: 999999999999\r\n\r\n", 413),
        (b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
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


def test_the_bodies_of_all_requests_are_bounded_together(home: Path, upstream: Scripted) -> None:
    """A request that does not fit beside those under way is refused for now, and fits later."""
    environ = {"HEADWAY_GATEWAY_MAX_BODY": "1KB", "HEADWAY_GATEWAY_MAX_BODIES": "2KB"}
    body = b"x" * 900
    with running(home, {"openai": upstream.url}, environ) as gateway:
        first, second, third = (gateway.connect() for _ in range(3))
        first.post("/openai/x", body)
        second.send(_POST + b"Content-Length: 900\r\n\r\n" + body[:899])
        provider = upstream.accept()
        provider.message()

        third.post("/openai/x", body)

        refused = third.rest()
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after" in refused.lower()
        assert b"gateway.max_bodies" in refused
        provider.send(WHOLE)
        first.message()
        second.close()
        third.close()
        gateway.until(lambda: gateway.connections() == 1, "the end of the other connections")
        for _ in range(3):
            first.post("/openai/x", body)
            provider.message()
            provider.send(WHOLE)
            assert first.message()[0].startswith(b"HTTP/1.1 200 ")


def test_small_chunks_cost_what_they_contain(home: Path) -> None:
    """Not an object each."""
    chunks = b"2\r\nab\r\n" * 200_000
    with running(home, {}) as gateway:
        client = gateway.connect()
        client.send(
            b"POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        tracemalloc.start()
        try:
            client.send(chunks)
            client.send(b"0\r\n\r\n")
            assert client.message()[0].startswith(b"HTTP/1.1 200 ")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak < 5_000_000  # 400 KB of body, twice, and what is read at a time


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_request_that_trickles_in_is_refused(home: Path, part: str) -> None:
    """Each byte is in time, but the whole of it is not."""
    environ = {"HEADWAY_GATEWAY_CLIENT_PATIENCE": "1s" if part == "head" else "200ms"}
    start = _POST + (b"" if part == "head" else b"Content-Length: 9999\r\n\r\n")
    with running(home, {}, environ) as gateway:
        client = gateway.connect()
        client.send(start)
        stop = threading.Event()

        def trickle() -> None:
            with contextlib.suppress(OSError):
                while not stop.wait(0.05):
                    client.send(b"a")

        trickling = threading.Thread(target=trickle)
        trickling.start()
        try:
            assert client.until(b"\r\n").startswith(b"HTTP/1.1 408 ")
        finally:
            stop.set()
            trickling.join()


def test_slow_clients_are_hung_up_on(home: Path, upstream: Scripted) -> None:
    """One that does not finish its request, and one that does not take its answer."""
    environ = {"HEADWAY_GATEWAY_CLIENT_PATIENCE": "1s"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        silent, trickling = gateway.connect(), gateway.connect()
        trickling.send(_POST + b"Content-Length: 9\r\n\r\nabc")
        deaf = gateway.connect()
        deaf.post("/openai/x", ASK)
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
        (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n",
            "another protocol",
        ),
    ],
)
def test_an_upstream_that_does_not_answer(
    plain: Running, upstream: Scripted, answer: bytes, what: str
) -> None:
    """Is told by a status of the gateway's own."""
    client, provider = upstream.asked(plain, "/openai/v1/chat/completions")
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
    client, provider = upstream.asked(plain, "/openai/v1/chat/completions")
    provider.send(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing)
    provider.send(b"3\r\nabc\r\n")
    client.until(b"abc")
    provider.close()

    assert not client.rest().endswith(b"0\r\n\r\n")
    plain.until(lambda: plain.held() == 0, "the end of the lease")


def test_an_upstream_that_cannot_be_reached(home: Path) -> None:
    """Says so, and where, and the system's reason."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with running(home, {"openai": url}) as gateway:
        client = gateway.connect()
        client.post("/openai/v1/chat/completions", ASK)

        assert client.until(b"\r\n").startswith(b"HTTP/1.1 502 ")
        told = client.until(b"}}")
        assert f'"headway: {url} cannot be reached: connection refused"'.encode() in told


def test_a_name_with_several_addresses_is_refused_once() -> None:
    """Python tells of each attempt, in one text."""
    attempts = [f"[Errno {errno.ECONNREFUSED}] Connect call failed ('{at}', 9)" for at in "ab"]
    error = OSError(f"Multiple exceptions: {', '.join(attempts)}")

    assert reason_of(error) == "connection refused"
    assert reason_of(OSError("in words")) == "in words"


def test_an_upstream_that_stalls_is_given_up(home: Path, upstream: Scripted) -> None:
    """After a time that can be set."""
    environ = {"HEADWAY_GATEWAY_UPSTREAM_PATIENCE": "1s"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        client = gateway.connect()
        client.post("/openai/v1/chat/completions", ASK)
        upstream.accept().until(b"\r\n\r\n")

        assert client.until(b"\r\n").startswith(b"HTTP/1.1 502 ")
        assert b"nothing came from it for 1 s" in client.until(b"}}")


def test_a_refusal_reaches_a_client_that_still_sends(home: Path) -> None:
    """Whoever closes a connection with unread bytes in it takes back what it has written."""
    environ = {"HEADWAY_GATEWAY_MAX_BODY": "1KB"}
    with running(home, {}, environ) as gateway:
        client = gateway.connect()
        client.send(_POST + b"Content-Length: 9999999\r\n\r\n" + b"a" * 5_000_000)

        assert client.rest().startswith(b"HTTP/1.1 413 ")


def test_nonsense_after_a_request_does_not_end_it(plain: Running, upstream: Scripted) -> None:
    """The request is answered, and nothing else."""
    client = plain.connect()
    whole = _POST + b"Content-Length: %d\r\n\r\n" % len(ASK) + ASK
    client.send(whole + b"NONSENSE\r\n\r\n" + whole)
    provider = upstream.accept()
    provider.message()
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    head, _, body = client.rest().partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"{}"


def test_the_length_of_a_body_cannot_be_hidden(plain: Running, upstream: Scripted) -> None:
    """Otherwise the upstream would take the body for a request that nobody looked at."""
    client = plain.connect()
    client.send(
        _POST + b"Connection: Content-Length\r\nContent-Length: %d\r\n\r\n%b" % (len(ASK), ASK)
    )

    assert upstream.accept().message()[1] == ASK


def test_trailers_may_be_too_large(plain: Running) -> None:
    """They are headers like those in front, and one that does not end is none either."""
    client = plain.connect()
    client.send(_POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ")
    client.send(b"a" * 200_000)

    assert client.until(b"\r\n").startswith(b"HTTP/1.1 431 ")


@pytest.mark.usefixtures("narrow_clients")
@pytest.mark.parametrize("connection", ["keep-alive", "close"])
def test_whoever_does_not_take_the_end_of_an_answer_is_hung_up_on(
    home: Path, upstream: Scripted, connection: str
) -> None:
    """The request is over, but its connection is not."""
    environ = {"HEADWAY_GATEWAY_CLIENT_PATIENCE": "1s"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        _, provider = upstream.asked(gateway, narrow=True, connection=connection)
        provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000)

        gateway.until(lambda: gateway.connections() == 0, "the end of the connection")


@pytest.mark.usefixtures("narrow_clients")
def test_whoever_asks_on_without_taking_anything_is_hung_up_on(
    home: Path, upstream: Scripted
) -> None:
    """Otherwise the answer that it does not take would keep its slot."""
    environ = {"HEADWAY_GATEWAY_CLIENT_PATIENCE": "2s"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        client, provider = upstream.asked(gateway, narrow=True)
        provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000)
        gateway.until(lambda: gateway.entries, "the end of the first request")
        client.post("/openai/x", ASK)
        provider.message()
        provider.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")

        gateway.until(lambda: gateway.connections() == 0, "the end of the connection")
        gateway.until(lambda: gateway.held() == 0, "the end of the lease")


@pytest.mark.usefixtures("narrow_clients")
def test_an_idle_client_is_hung_up_on_after_a_slow_answer(home: Path, upstream: Scripted) -> None:
    """It took the last bytes when its request was over already."""
    environ = {"HEADWAY_GATEWAY_CLIENT_PATIENCE": "3s"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        client, provider = upstream.asked(gateway, narrow=True)
        provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + b"x" * 60_000)
        gateway.until(lambda: gateway.entries, "the end of the request")
        client.message()

        assert client.rest() == b""


def test_an_upstream_whose_headers_do_not_end_is_given_up(
    plain: Running, upstream: Scripted
) -> None:
    """Nobody could keep them all."""
    client, provider = upstream.asked(plain)
    provider.send(b"HTTP/1.1 200 OK\r\nX: ")

    with pytest.raises(ConnectionError):
        provider.send(b"a" * 50_000_000)

    assert client.until(b"\r\n").startswith(b"HTTP/1.1 502 ")


def test_bounds_are_for_each_request(home: Path) -> None:
    """A connection may be used for as many as one likes, and each may be as large as is said."""
    environ = {"HEADWAY_GATEWAY_MAX_BODY": "1000B"}
    with running(home, {}, environ) as gateway:
        client = gateway.connect()
        for size in (1000, 1000, 0, 0, 0):
            client.post("/healthz", b"a" * size, x="a" * 30_000)

            assert client.message()[0].startswith(b"HTTP/1.1 200 ")
        client.post("/healthz", b"a" * 1001)

        assert client.until(b"\r\n").startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("size", [1_000, 200_000, 5_000_000])
def test_a_request_sent_while_another_waits_is_answered_after_it(
    plain: Running, upstream: Scripted, size: int
) -> None:
    """Above 64 KB the connection is not read until the first request has ended; nothing is lost."""
    large = b'{"model": "gpt", "x": "' + b"a" * size + b'"}'
    plain.governor.set_limit("llm", 1)
    with plain.governor.slot("llm"):
        client = plain.connect()
        client.post("/openai/x", ASK)
        plain.until(lambda: plain.waiting() == 1, "the wait")
        sending = threading.Thread(target=client.post, args=("/openai/x", large))
        sending.start()
    provider = upstream.accept()
    for body in (ASK, large):
        assert provider.message()[1] == body
        provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        assert client.message()[0].startswith(b"HTTP/1.1 200 ")
    sending.join()


@pytest.mark.parametrize("status", [b"200 OK", b"429 Slow\r\nRetry-After: 0"])
def test_a_large_request_right_after_an_answer_is_answered(
    plain: Running, upstream: Scripted, monkeypatch: pytest.MonkeyPatch, status: bytes
) -> None:
    """It may arrive while the slot of the request before it is still being released."""
    large = b'{"model": "gpt", "x": "' + b"a" * 1_000_000 + b'"}'
    has_sent = threading.Event()
    leave = Exchange._leave

    async def leave_late(exchange: Exchange, call: Call) -> None:
        await aio.in_thread(has_sent.wait)
        await leave(exchange, call)

    monkeypatch.setattr(Exchange, "_leave", leave_late)
    client, provider = upstream.asked(plain)
    provider.send(b"HTTP/1.1 %b\r\nContent-Length: 2\r\n\r\n{}" % status)
    assert client.message()[1] == b"{}"

    client.send(_POST + b"Content-Length: %d\r\n\r\n" % len(large) + large[:300_000])
    has_sent.set()
    client.send(large[300_000:])

    assert provider.message()[1] == large
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    assert client.message()[0].startswith(b"HTTP/1.1 200 ")


@pytest.mark.usefixtures("narrow_clients")
def test_patience_is_for_whoever_is_waited_for(home: Path, upstream: Scripted) -> None:
    """Who is answered and says no more is hung up on; who takes its answer again is not."""
    environ = {"HEADWAY_GATEWAY_CLIENT_PATIENCE": "1s"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        slow = gateway.connect(narrow=True)
        slow.post("/openai/x", ASK)
        provider = upstream.accept()
        provider.message()
        size = 60_000
        provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (size + 3))
        provider.send(b"x" * size)
        slow.until(b"\r\n\r\n")
        slow.take(size)
        idle = gateway.connect()
        idle.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.message()[0].startswith(b"HTTP/1.1 200 ")

        assert idle.rest() == b""

        provider.send(b"end")
        assert slow.take(3) == b"end"


def test_an_answer_without_an_end_of_its_own_can_be_cut_too(
    plain: Running, upstream: Scripted
) -> None:
    """Of a connection that is reset, to a client that knows no chunks."""
    for version in (b"1.1", b"1.0"):
        client = plain.connect()
        client.send(b"GET /openai/x HTTP/%b\r\nHost: localhost\r\n\r\n" % version)
        provider = upstream.accept()
        provider.until(b"\r\n\r\n")
        provider.send(b"HTTP/1.1 200 OK\r\n\r\nabc")
        client.until(b"abc")

        provider.reset()

        if version == b"1.0":
            with pytest.raises(ConnectionError):
                client.take(1)
        else:
            assert client.rest() == b"\r\n"


def test_a_fault_of_our_own_hangs_up(plain: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for an answer that cannot come."""

    def fail(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(Routes, "target", fail)
    client = plain.connect()
    client.post("/openai/x", ASK)

    assert client.rest() == b""


@pytest.mark.usefixtures("narrow_clients")
def test_a_client_that_goes_while_it_takes_nothing_leaves_nothing_behind(
    plain: Running, upstream: Scripted
) -> None:
    """Neither its slot nor anybody who waits until it takes something."""
    before = plain.tasks()
    client, provider = upstream.asked(plain, narrow=True)
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x" * 60_000)
    plain.until(lambda: plain.tasks() == before + 2, "the wait for the client")

    client.close()

    plain.until(lambda: plain.tasks() == before, "the end of that")
    assert plain.held() == 0

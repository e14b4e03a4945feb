"""A connection to an upstream serves the next request only if nothing is left on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.gateway.scripted import ASK, WHOLE

from headway.gateway import lines
from headway.gateway.lines import Lines

if TYPE_CHECKING:
    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted

    from headway.gateway.heads import AnswerHead, Headers
    from headway.gateway.lines import UpstreamFailed


def test_an_answer_to_a_request_that_is_not_all_sent(plain: Running, upstream: Scripted) -> None:
    """It is passed on, the slot is free, and nobody waits for the rest to be taken."""
    client = plain.connect()
    client.post("/openai/x", b'{"model": "gpt", "x": "' + b"a" * 20_000_000 + b'"}')
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")

    assert client.message()[1] == b"no"
    plain.until(lambda: plain.held() == 0, "the end of the lease")
    client.post("/openai/x", ASK)
    upstream.accept().message()


@pytest.mark.parametrize(
    "extra", [WHOLE, WHOLE[:20], b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome", b"\0"]
)
@pytest.mark.parametrize("is_apart", [True, False])
def test_whatever_follows_an_answer_is_nobodys(
    plain: Running, upstream: Scripted, extra: bytes, *, is_apart: bool
) -> None:
    """The next request does not get it for its answer, and goes another way."""
    client, provider = upstream.asked(plain)
    provider.send(WHOLE if is_apart else WHOLE + extra)
    assert client.message()[1] == b"{}"
    if is_apart:
        provider.send(extra)
        assert provider.rest() == b""

    client.post("/openai/x", ASK)
    provider = upstream.accept()
    provider.message()
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine")

    assert client.message()[1] == b"mine"


def test_an_upstream_cannot_change_the_protocol(plain: Running, upstream: Scripted) -> None:
    """Nobody has asked it to."""
    client, provider = upstream.asked(plain)
    provider.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")

    assert client.until(b"\r\n").startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize("is_closing", [True, False])
def test_a_connection_that_the_upstream_ends_is_not_used_again(
    plain: Running, upstream: Scripted, *, is_closing: bool
) -> None:
    """Whether it says so or just hangs up."""
    client, provider = upstream.asked(plain)
    told = b"Connection: close\r\n" if is_closing else b""
    provider.send(b"HTTP/1.1 200 OK\r\n%bContent-Length: 0\r\n\r\n" % told)
    client.message()
    if is_closing:
        assert provider.rest() == b""
    else:
        provider.close()
        for _ in range(2):  # by then it has heard
            client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.message()

    client.post("/openai/x", ASK)

    upstream.accept().message()


def test_idle_connections_to_an_upstream_are_closed(
    plain: Running, upstream: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it closes them, just when they are needed."""
    monkeypatch.setattr(lines, "_KEPT_SECONDS", 0.0)
    client, provider = upstream.asked(plain)
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    client.message()

    assert provider.rest() == b""


class _Taker:
    """Knows when an answer is whole."""

    def __init__(self) -> None:
        self.whole = asyncio.Event()

    def began(self, head: AnswerHead) -> None: ...
    def came(self, piece: bytes) -> None: ...
    def settled(self) -> None: ...
    def failed(self, error: UpstreamFailed) -> None: ...

    def ended(self, trailers: Headers) -> None:
        del trailers
        self.whole.set()


def test_an_upstream_that_has_just_hung_up_is_not_asked(upstream: Scripted) -> None:
    """Nothing would be sent, and yet the request would fail."""

    async def ask_and_hang_up() -> None:
        lines, taker = Lines(upstream.url, patience_seconds=30), _Taker()
        first = await lines.get()
        await first.ask(b"GET", b"GET / HTTP/1.1\r\n\r\n", taker)
        provider = upstream.accept()
        provider.send(WHOLE)
        await taker.whole.wait()
        provider.close()
        while (line := await lines.get()) is first:
            assert not line._transport.is_closing()
            lines.keep(line)
            await asyncio.sleep(0)
        lines.close()
        line.close()
        await asyncio.sleep(0)

    asyncio.run(ask_and_hang_up())

"""Connections to one upstream, kept for the next request when an answer has ended.

What comes is handed on in the moment it comes; whoever takes it says when it is too much.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import httptools

from headway.gateway import heads
from headway.gateway.heads import AnswerHead
from headway.gateway.reasons import reason_of

if TYPE_CHECKING:
    from headway.gateway.heads import Headers

_CONNECT_SECONDS = 30.0
# Most servers hang up after a minute or so of silence; whoever comes just then finds nobody.
_KEPT_SECONDS = 15.0
_MOST_KEPT = 64
_MOST_HEAD_BYTES = 262_144


class UpstreamFailed(Exception):  # noqa: N818 - it is what happened
    """The upstream could not be reached, or did not answer as HTTP wants it."""


if TYPE_CHECKING:

    class Taker(Protocol):
        """Who takes an answer as it comes. ``ended`` or ``failed`` is the last call."""

        def began(self, head: AnswerHead) -> None: ...
        def came(self, piece: bytes) -> None: ...
        def settled(self) -> None:
            """All that has arrived so far was handed over."""

        def ended(self, trailers: Headers) -> None: ...
        def failed(self, error: UpstreamFailed) -> None: ...


class Line(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, pool: Lines) -> None:
        self._pool, self._loop = pool, asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._taker: Taker | None = None
        self._method = b""
        self._head = AnswerHead()
        self._trailers: Headers = []
        self._is_in_body = self._is_unframed = False
        self._head_bytes = 0
        self._writable: asyncio.Event | None = None
        self.is_closed = False
        self.heard_at = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closed = True
        self._pool.forget(self)
        if self._writable is not None:
            self._writable.set()
        taker, self._taker = self._taker, None
        if taker is None:
            return
        if self._is_unframed and error is None:
            taker.ended([])
        else:
            what = f"it hung up: {error}" if error else "it hung up"
            taker.failed(
                UpstreamFailed(f"{what}, {'in' if self._is_in_body else 'before'} its answer")
            )

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    # -- a request ------------------------------------------------------------------------

    async def ask(self, method: bytes, written: bytes, taker: Taker) -> None:
        """Send a request; its answer goes to the taker."""
        if not self.is_open:
            raise UpstreamFailed("it hung up before it was asked")
        self._method, self._taker = method, taker
        self._head, self._trailers = AnswerHead(), []
        self._is_in_body = self._is_unframed = False
        self._head_bytes = 0
        self.heard_at = self._loop.time()
        self._transport.write(written)
        if self._writable is not None:
            await self._writable.wait()

    @property
    def is_open(self) -> bool:
        """Whether it can be asked: its upstream may have hung up just now."""
        return not self._transport.is_closing()

    def pause(self) -> None:
        """Let the upstream wait."""
        if not self.is_closed:
            self._transport.pause_reading()

    def go_on(self) -> None:
        """Take what it sends again."""
        if not self.is_closed:
            self._transport.resume_reading()

    def hang_up(self) -> None:
        """Nobody wants the answer any more."""
        self._taker = None
        self._transport.abort()

    # -- its answer -------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._loop.time()
        if self._taker is None:
            self.give_up("it answers what nobody has asked")
            return
        taker = self._taker
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.give_up(f"what it answers is no HTTP: {error}")
        if self._head_bytes > _MOST_HEAD_BYTES:
            self.give_up("its headers do not end")
        taker.settled()

    def on_message_begin(self) -> None:
        if self._taker is None:  # the answer had ended, and more followed
            self.give_up("it answers what nobody has asked")

    def on_status(self, reason: bytes) -> None:
        self._head.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        (self._trailers if self._is_in_body else self._head.lines).append((name, value))

    def on_headers_complete(self) -> None:
        head = self._head
        head.status_code = self._parser.get_status_code()
        if head.is_informational:
            return
        if head.is_switching:
            self.give_up("it wants to speak another protocol")
            return
        self._is_in_body = True
        has_body = head.has_body(self._method)
        has_length = head.has(b"content-length") or head.is_chunked
        self._is_unframed = has_body and not has_length
        taker = self._taker
        if taker is not None:
            taker.began(head)
            if not has_body:
                self._end(keep=self._method != b"HEAD")

    def on_body(self, piece: bytes) -> None:
        self._head_bytes = 0  # from here on of the trailers
        if self._taker is not None:
            self._taker.came(piece)

    def on_message_complete(self) -> None:
        if self._head.is_informational:
            self._head = AnswerHead()
        elif self._taker is not None:
            self._end(keep=self._parser.should_keep_alive())

    def _end(self, *, keep: bool) -> None:
        """The answer is whole."""
        taker, self._taker = self._taker, None
        self._head_bytes = 0
        if self._transport.get_write_buffer_size():  # and the rest of the request is not wanted
            self._transport.abort()
        elif keep and self.is_open:
            self._pool.keep(self)
        else:
            self._transport.close()
        if taker is not None:
            taker.ended(self._trailers)

    def give_up(self, why: str) -> None:
        """End it: there will be no answer."""
        taker, self._taker = self._taker, None
        self._pool.forget(self)
        self._transport.abort()
        if taker is not None:
            taker.failed(UpstreamFailed(why))

    def close(self) -> None:
        """Hang up on an idle connection, at once: nobody waits for the farewells of TLS."""
        self._transport.abort()


class Lines:
    """The connections to one base URL."""

    def __init__(self, base_url: str, *, patience_seconds: float) -> None:
        parts = urlsplit(base_url)
        self._patience_seconds = patience_seconds
        self.base_url = base_url
        self._host, self._is_tls = parts.hostname or "", parts.scheme == "https"
        self._port = parts.port or (443 if self._is_tls else 80)
        self.netloc = parts.netloc.rpartition("@")[2].encode()
        self.path = parts.path.rstrip("/").encode()
        self._context: ssl.SSLContext | None = None
        self._kept: deque[Line] = deque()
        self._busy: set[Line] = set()
        self._is_closed = False

    async def get(self) -> Line:
        """A connection that nobody uses."""
        line = self._take_kept() or await self._connect()
        self._busy.add(line)
        return line

    def _take_kept(self) -> Line | None:
        while self._kept:
            line = self._kept.pop()
            if line.is_open:
                return line
        return None

    async def _connect(self) -> Line:
        if self._is_tls and self._context is None:
            self._context = ssl.create_default_context()
            self._context.set_alpn_protocols(["http/1.1"])
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                _, line = await loop.create_connection(
                    lambda: Line(self), self._host, self._port, ssl=self._context
                )
        except TimeoutError:
            raise UpstreamFailed(
                f"{self.base_url} cannot be reached within {_CONNECT_SECONDS:g} s"
            ) from None
        except OSError as error:
            reason = reason_of(error)
            raise UpstreamFailed(f"{self.base_url} cannot be reached: {reason}") from error
        return line

    def keep(self, line: Line) -> None:
        """It may be used again."""
        self._busy.discard(line)
        self._kept.append(line)
        if self._is_closed or len(self._kept) > _MOST_KEPT:
            self._kept.popleft().close()

    def forget(self, line: Line) -> None:
        """It is closed."""
        self._busy.discard(line)
        try:
            self._kept.remove(line)
        except ValueError:
            pass

    def look_at_the_clock(self, now: float) -> None:
        """Close those that have been idle for long, and those on which nothing comes."""
        while self._kept and now - self._kept[0].heard_at > _KEPT_SECONDS:
            self._kept.popleft().close()
        for line in [*self._busy]:
            if now - line.heard_at > self._patience_seconds:
                line.give_up(f"nothing came from it for {self._patience_seconds:g} s")

    def close(self) -> None:
        """Close those that are idle, and every other one when it is."""
        self._is_closed = True
        while self._kept:
            self._kept.pop().close()


def request(
    method: bytes, target: bytes, headers: Headers, body: bytes, trailers: Headers | None
) -> bytes:
    """A request as it goes over the wire; in chunks if there is a list of trailers."""
    head = heads.written(b"%b %b HTTP/1.1" % (method, target), headers)
    if trailers is None:
        return head + body
    return head + (heads.chunk(body) if body else b"") + heads.last_chunk(trailers)

"""A client's connection: one request after another, each answered before the next is read.

While a request waits for its slot or for its answer, the connection is still read, because that
is how a disconnect is noticed. What the client sends early is kept for the next request, up to
``_MAX_EARLY_BYTES``; then reading pauses until the present request has ended.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Protocol

import httptools

from headway.gateway import heads
from headway.gateway.heads import RequestHead

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from headway.gateway.heads import Headers

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_MAX_EARLY_BYTES = 65_536
# So that a connection is reset, not ended: its end would pass for that of the body.
_WITHOUT_A_WORD = struct.pack("ii", 1, 0)
_BAD_REQUEST, _TOO_SLOW, _TOO_LARGE, _HEAD_TOO_LARGE = 400, 408, 413, 431
_UPGRADE_REQUIRED, _UNAVAILABLE = 426, 503
# A body may take this many times as long as the headers: it may be large and its line slow.
_BODY_PATIENCE = 10


class Bounds:
    """How much and how slowly clients may send; one object for all connections."""

    __slots__ = ("body_bytes", "free_bytes", "head_bytes", "patience_seconds")

    def __init__(
        self, *, body_bytes: int, all_bodies_bytes: int, head_bytes: int, patience_seconds: float
    ) -> None:
        self.body_bytes, self.head_bytes = body_bytes, head_bytes
        self.patience_seconds = patience_seconds
        # What is left for the bodies of all requests that are under way.
        self.free_bytes = max(body_bytes, all_bodies_bytes)


class Request:
    """A request that has come in whole, or was refused by its headers."""

    __slots__ = ("body", "client", "head", "refusal", "trailers")

    def __init__(self, client: Client, head: RequestHead, refusal: Refused | None) -> None:
        self.client, self.head, self.refusal = client, head, refusal
        self.body = b""
        self.trailers: Headers = []


if TYPE_CHECKING:
    Refused = tuple[int, str]

    class Desk(Protocol):
        """Who answers the requests."""

        def welcome(self, client: Client) -> None: ...
        def farewell(self, client: Client) -> None: ...
        def refusal(self, head: RequestHead) -> Refused | None: ...
        def answer(self, request: Request) -> Coroutine[None, None, None]: ...
        def turned_away(self, head: RequestHead, status: int, why: str) -> None: ...


class Client(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, desk: Desk, bounds: Bounds) -> None:
        self._desk, self._bounds = desk, bounds
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._head = RequestHead()
        self._refusal: Refused | None = None
        # Not a list of pieces: an object for each would cost 27 times a chunk of two bytes.
        self._body: bytes | bytearray = b""
        self._head_bytes = self._field_bytes = 0
        # What this connection has taken of ``Bounds.free_bytes``.
        self._kept_bytes = 0
        self._trailers: Headers = []
        self._has_begun = self._is_in_body = False
        self._early = b""
        self._queued: deque[Request] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._transport: asyncio.Transport
        self._keeps_alive = self._is_chunking = self._is_framed = self._has_ended = False
        self._drained: asyncio.Event | None = None
        # What goes out with the next flush: one call of the system for many small pieces.
        self._outgoing: list[bytes] = []
        self.is_gone = self.is_draining = self.was_cut = self._is_deaf = False
        # Since when we wait for it: for a request, or until it takes what we send.
        self.waits_since: float | None = self._loop.time()
        self._began_at = 0.0

    # -- the connection ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._desk.welcome(self)

    def connection_lost(self, error: Exception | None) -> None:
        del error
        self.is_gone = True
        self.waits_since = None
        self._forget_bodies()
        if self._answering is None:
            self._desk.farewell(self)
        elif not self._has_ended:  # otherwise only the clearing up is left
            self._answering.cancel()

    def eof_received(self) -> bool:
        return False  # whoever sends no more has gone

    def pause_writing(self) -> None:
        self.waits_since = self._loop.time()
        self._drained = asyncio.Event()

    def resume_writing(self) -> None:
        self.waits_since = self._loop.time() if self._answering is None else None
        if self._drained is not None:
            self._drained.set()
            self._drained = None

    @property
    def is_full(self) -> bool:
        """Whether it has not yet taken what it was sent."""
        return self._drained is not None

    async def taken(self) -> None:
        """Wait until it has."""
        if self._drained is not None:
            await self._drained.wait()

    @property
    def is_idle(self) -> bool:
        """Whether no request of it is under way."""
        return self._answering is None and not self._has_begun

    def look_at_the_clock(self, now: float) -> None:
        """End what takes too long: a request that trickles in, an answer that nobody takes."""
        if self.waits_since is None:
            return
        patience = self._bounds.patience_seconds
        is_silent = now - self.waits_since >= patience
        if self._has_begun and self._answering is None:
            # The whole of it counts as well: a byte now and then must not keep a connection.
            if is_silent or now - self._began_at >= patience * (
                _BODY_PATIENCE if self._is_in_body else 1
            ):
                self._refuse(_TOO_SLOW, "the request did not arrive in time")
        elif is_silent:
            self._transport.abort()

    def drain(self) -> None:
        """Take no more requests; what is under way is answered."""
        self.is_draining = True
        if self.is_idle:
            self._transport.close()

    def cut(self) -> None:
        """Hang up on it, whatever it waits for."""
        if not self._transport.is_closing():  # otherwise it has gone by itself
            self.was_cut = True
        self._transport.abort()

    # -- requests -----------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        if self._answering is not None:
            self._early += data
            if len(self._early) > _MAX_EARLY_BYTES:
                self._transport.pause_reading()
            return
        self._feed(data)

    def _feed(self, data: bytes) -> None:
        self.waits_since = self._loop.time()
        self._head_bytes += len(data)
        try:
            self._parse(data)
        except httptools.HttpParserError as error:
            self._refuse(_BAD_REQUEST, f"this is no HTTP request: {error}")
            return
        if self._head_bytes > self._bounds.head_bytes:
            self._refuse(_HEAD_TOO_LARGE, "the request's headers are too large")

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as wish:
            if self._head.raw(b"upgrade").lower() == b"websocket":
                self._refuse(_UPGRADE_REQUIRED, "there are no websockets here; ask over plain HTTP")
            elif self._head.has(b"upgrade"):
                self._parse_as_what_it_is(data[wish.args[0] :])
            else:
                self._keeps_alive = False

    def _parse_as_what_it_is(self, rest: bytes) -> None:
        """Another protocol is wished for. None is spoken here, and the body is still to come."""
        if self._is_deaf:
            return
        head = self._head
        lines = [pair for pair in head.lines if pair[0].lower() != b"upgrade"]
        first_line = b"%b %b HTTP/%b" % (head.method, head.target, head.version.encode())
        self._parser = httptools.HttpRequestParser(self)
        self._is_in_body = False
        self._parse(heads.written(first_line, [*lines, (b"Connection", b"close")]) + rest)

    def on_message_begin(self) -> None:
        self._has_begun = True
        self._began_at = self._loop.time()
        self._head, self._body, self._trailers = RequestHead(), b"", []
        self._refusal, self._field_bytes = None, 0

    def on_url(self, part: bytes) -> None:
        self._head.target += part
        self._field_bytes += len(part)

    def on_header(self, name: bytes, value: bytes) -> None:
        (self._trailers if self._is_in_body else self._head.lines).append((name, value))
        self._field_bytes += len(name) + len(value) + len(b": \r\n")
        if self._field_bytes > self._bounds.head_bytes:
            self._refuse(_HEAD_TOO_LARGE, "the request's headers are too large")

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        head = self._head
        head.method = self._parser.get_method()
        head.version = self._parser.get_http_version()
        head.keeps_alive = self._parser.should_keep_alive()
        if self._is_deaf:
            return
        self._refusal = self._desk.refusal(head) or self._too_large(head.raw(b"content-length"))
        if self._answering is not None:
            return  # several came at once: this one has its turn when it is complete
        if self._refusal is not None:
            self._refuse(*self._refusal)
        elif head.raw(b"expect").lower() == b"100-continue":
            self._transport.write(_CONTINUE)

    def _too_large(self, content_length: bytes) -> Refused | None:
        is_too_large = content_length and int(content_length) > self._bounds.body_bytes
        return (_TOO_LARGE, "the request's body is too large") if is_too_large else None

    def on_body(self, piece: bytes) -> None:
        self._head_bytes = self._field_bytes = 0  # from here on of the trailers
        if self._is_deaf or self._refusal is not None:
            return
        size = len(piece)
        if len(self._body) + size > self._bounds.body_bytes:
            self._refuse(_TOO_LARGE, "the request's body is too large")
            return
        if size > self._bounds.free_bytes:
            self._refuse(
                _UNAVAILABLE,
                "the bodies of the requests under way fill gateway.max_bodies; try again later",
            )
            return
        self._bounds.free_bytes -= size
        self._kept_bytes += size
        if not self._body:
            self._body = piece
        elif isinstance(self._body, bytearray):
            self._body += piece
        else:
            self._body = bytearray(self._body) + piece

    def on_message_complete(self) -> None:
        if self._is_deaf or self._wishes_for_another_protocol():
            return
        request = Request(self, self._head, self._refusal)
        request.body = bytes(self._body)
        request.trailers = self._trailers
        self._body = b""
        self._has_begun = self._is_in_body = False
        self._head_bytes = 0
        if self._answering is None:
            self._have_answered(request)
        else:  # several came at once
            self._queued.append(request)

    def _wishes_for_another_protocol(self) -> bool:
        """Then this was the head alone."""
        return self._parser.should_upgrade() and self._head.has(b"upgrade")

    def _have_answered(self, request: Request) -> None:
        self._has_ended = False
        self._keeps_alive = request.head.keeps_alive
        self.waits_since = self._loop.time() if self.is_full else None
        self._answering = self._loop.create_task(self._desk.answer(request))
        self._answering.add_done_callback(self._answered)

    def _forget_bodies(self) -> None:
        self._bounds.free_bytes += self._kept_bytes
        self._kept_bytes = 0

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering = None
        if not self._queued:
            self._forget_bodies()
        if not task.cancelled() and task.exception() is not None:
            self._loop.call_exception_handler(
                {"message": "a request could not be answered", "exception": task.exception()}
            )
            self._transport.abort()
        if self.is_gone:
            self._desk.farewell(self)
            return
        self.waits_since = self._loop.time()
        if task.cancelled() or not self._keeps_alive or self.is_draining:
            self._transport.close()
            return
        if self._queued:
            self._have_answered(self._queued.popleft())
            return
        if self._early:
            early, self._early = self._early, b""
            self._transport.resume_reading()
            self._feed(early)

    def _refuse(self, status: int, why: str) -> None:
        """Answer what is not worth a request, and listen no more.

        The connection is closed by the client, or when we have lost patience: if it is closed
        while the client still sends, our answer does not reach it.
        """
        self.is_draining = True
        if self._answering is not None or self._is_deaf:
            return
        self._is_deaf, self._has_begun = True, False
        self._body = b""
        self._forget_bodies()
        self.refuse(self._head, status, why)
        self._transport.write_eof()
        self._desk.turned_away(self._head, status, why)

    # -- answers ------------------------------------------------------------------------

    def begin(self, head: RequestHead, status: int, reason: bytes, headers: Headers) -> None:
        """Send the head of an answer. If it does not tell the length, the body is in chunks."""
        names = {name.lower() for name, _ in headers}
        has_length = b"content-length" in names or head.method == b"HEAD" or status in (204, 304)
        self._is_chunking = not has_length and head.version != "1.0"
        self._is_framed = has_length or self._is_chunking
        lines = [*headers]
        if self._is_chunking:
            lines.append((b"Transfer-Encoding", b"chunked"))
        elif not has_length:
            self._keeps_alive = False
        if self.is_draining or not self._keeps_alive:
            self._keeps_alive = False
            lines.append((b"Connection", b"close"))
        elif head.version == "1.0":
            lines.append((b"Connection", b"keep-alive"))
        self._outgoing.append(heads.written(b"HTTP/1.1 %d %b" % (status, reason), lines))

    def reply(
        self, head: RequestHead, status: int, headers: Mapping[str, str], body: bytes
    ) -> None:
        """Send a whole answer of our own."""
        told = {**headers, "content-length": str(len(body))}
        self.begin(head, status, heads.phrase(status), heads.plain(told))
        if head.method != b"HEAD":
            self.send(body)
        self.end([])

    def refuse(self, head: RequestHead, status: int, why: str) -> None:
        """Send a refusal of our own."""
        headers = {"content-type": "application/json"}
        if status == _UNAVAILABLE:
            headers["retry-after"] = "5"
        self.reply(head, status, headers, heads.own_body({"error": why}))

    def send(self, piece: bytes) -> None:
        """Send the next piece of a body, with the next ``flush``."""
        self._outgoing.append(heads.chunk(piece) if self._is_chunking else piece)

    def end(self, trailers: Headers) -> None:
        """The body is complete."""
        if self._is_chunking:
            self._outgoing.append(heads.last_chunk(trailers))
        self._is_chunking, self._has_ended = False, True
        self.flush()

    def flush(self) -> None:
        """Have what was sent on its way."""
        if self._outgoing:
            outgoing, self._outgoing = self._outgoing, []
            self._transport.write(b"".join(outgoing))

    def break_off(self) -> None:
        """The body will never be complete, and the client is to see that."""
        self._keeps_alive = False
        if self._is_framed:
            self._transport.close()  # what was sent so far still arrives
            return
        connection = self._transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _WITHOUT_A_WORD)
        self._transport.abort()

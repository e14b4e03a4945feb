"""What a client gets while its request waits, and how its answer begins after that.

Clients lose patience, each after a time of its own. Just before that an answer is begun, and kept
going with bytes that mean nothing. From then on the upstream's status can only be told inside
of it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headway.gateway import heads
from headway.gateway.refusals import UPSTREAM_FAILED, Refusal

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from headway.gateway.clients import Request
    from headway.gateway.heads import Headers
    from headway.gateway.routing import Route

_AGAIN_SECONDS = 15.0
_OK = 200
_LATE_ERROR_BYTES = 65_536


class WaitingRoom:
    """Between one request and its answer."""

    __slots__ = (
        "_client",
        "_dialect",
        "_is_stream",
        "_late_error",
        "_late_status",
        "_request",
        "_route",
        "_timer",
        "has_begun",
    )

    def __init__(self, request: Request, route: Route) -> None:
        self._request, self._route = request, route
        self._client, self._dialect = request.client, route.dialect
        self._is_stream = False  # found out when it matters: a body may be large
        self._timer: asyncio.TimerHandle | None = None
        self._late_error: bytes | None = None
        self._late_status = _OK
        self.has_begun = False

    # -- waiting --------------------------------------------------------------------------

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._dialect.patience_seconds, self._lose_patience)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _lose_patience(self) -> None:
        self._is_stream = self._dialect.is_stream(self._route.path, self._request.body)
        has_body = self._request.head.method != b"HEAD"
        if not has_body or not self._dialect.filler(is_stream=self._is_stream):
            return
        self.has_begun = True
        kind = "text/event-stream" if self._is_stream else "application/json"
        told = {"content-type": kind, "cache-control": "no-cache", "x-headway-waiting": "1"}
        self._client.begin(self._request.head, _OK, b"OK", heads.plain(told))
        self._fill()

    def _fill(self) -> None:
        self._client.send(self._dialect.filler(is_stream=self._is_stream))
        self._client.flush()
        self._timer = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._fill)

    # -- the answer ------------------------------------------------------------------------

    def hand_over(self, status: int, reason: bytes, headers: Headers) -> None:
        """The upstream's answer begins."""
        if not self.has_begun:
            self._client.begin(self._request.head, status, reason, headers)
        elif status != _OK:
            self._late_error, self._late_status = b"", status

    def send(self, piece: bytes) -> None:
        """Send a piece of its body."""
        if self._late_error is None:
            self._client.send(piece)
        else:
            self._late_error = (self._late_error + piece)[:_LATE_ERROR_BYTES]

    def end(self, trailers: Headers) -> None:
        """It is whole."""
        if self._late_error is not None:
            self._client.send(self._inside(self._late_error or self._bare_status()))
        self._client.end(trailers)

    def _bare_status(self) -> bytes:
        """In words, because there are none: a status alone can no longer be passed on."""
        message = f"headway: the provider answered {self._late_status}, without a word"
        return self._dialect.error_body(Refusal(self._late_status, UPSTREAM_FAILED, message, ""))

    def refuse(self, refusal: Refusal) -> None:
        """There will be no answer but ours."""
        body = self._dialect.error_body(refusal)
        if self.has_begun:
            self._client.send(self._inside(body))
            self._client.end([])
        else:
            self._client.reply(self._request.head, refusal.status, refusal.headers(), body)

    def _inside(self, error: bytes) -> bytes:
        """An error as a part of an answer that has begun."""
        return self._dialect.error_event(error) if self._is_stream else error

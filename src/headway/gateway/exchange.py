"""One request on its way through the gateway: its turn, the upstream's answer, and its end.

The slot is taken before anything is sent upstream and is free when the answer has ended, however
it ends. If the client goes, the task is cancelled: it leaves the line, or hangs up upstream.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from headway import aio
from headway.errors import HeadwayError, QueueTimeout
from headway.gateway import lines
from headway.gateway.lines import UpstreamFailed
from headway.gateway.refusals import UPSTREAM_FAILED, Refusal
from headway.gateway.waiting_room import WaitingRoom
from headway.llm.calls import Call

if TYPE_CHECKING:
    from headway.gateway.clients import Request
    from headway.gateway.heads import AnswerHead, Headers, RequestHead
    from headway.gateway.lines import Line
    from headway.gateway.routing import Route
    from headway.llm.calls import Target

CLIENT_GONE, GATEWAY_STOPPED = "client gone", "gateway stopped"
_GLIMPSES, _GLIMPSE_BYTES = 4, 8192


class Exchange:
    """A request and its answer; it takes what the upstream sends and hands it on."""

    def __init__(self, request: Request, route: Route, target: Target | None) -> None:
        self.request, self.route = request, route
        self.key = "" if target is None else target.key
        self._client = request.client
        self._target = target
        self._call = None if target is None else Call(target)
        self._room = WaitingRoom(request, route)
        self._line: Line | None = None
        self._answered: asyncio.Future[UpstreamFailed | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._lesson: asyncio.Future[None] | None = None
        self._relief: asyncio.Future[None] | None = None
        # What there is to tell of it afterwards.
        self.began_at = time.monotonic()
        self.first_byte_at: float | None = None
        self.waited_seconds = 0.0
        self.status, self.sent_bytes, self.outcome = 0, 0, CLIENT_GONE
        # The first piece of the answer and its last ones, for what they tell of tokens.
        self.glimpses: list[bytes] = []

    @property
    def head(self) -> RequestHead:
        """Of the request."""
        return self.request.head

    @property
    def task(self) -> str | None:
        """On whose behalf it came."""
        return self.route.task

    @property
    def was_kept_waiting(self) -> bool:
        """Whether its client was sent something so that it would wait on."""
        return self._room.has_begun

    async def run(self) -> None:
        """See it through."""
        try:
            await self._run()
        finally:
            if self.outcome == CLIENT_GONE and self._client.was_cut:
                self.outcome = GATEWAY_STOPPED

    async def _run(self) -> None:
        call, target = self._call, self._target
        if call is None or target is None:
            await self._forward()
            return
        try:
            with self._room:
                call.lease = await call.__aenter__()
        except HeadwayError as error:
            refusal = Refusal.of(error, await self._full_key(target, error))
            self.status, self.outcome = refusal.status, refusal.kind
            self._room.refuse(refusal)
            return
        finally:  # also of one who leaves
            self.waited_seconds = time.monotonic() - self.began_at
        self.waited_seconds = call.lease.waited_seconds
        try:
            await self._forward()
        except BaseException:
            if self.first_byte_at is None and call.may_be_first:
                await aio.in_thread(call.stand_back)
            raise
        finally:
            await self._leave(call)

    async def _leave(self, call: Call) -> None:
        """Give the slot back, when the others know what there was to learn."""
        try:
            if self._lesson is not None:
                await self._lesson
        finally:
            await call.__aexit__(None, None, None)

    async def _full_key(self, target: Target, error: HeadwayError) -> str:
        """Where a wait did not end: that may be above the key, or beside it."""
        for key in error.keys if isinstance(error, QueueTimeout) else ():
            with contextlib.suppress(HeadwayError):
                capacity = await target.governor.acapacity(key)
                if capacity.blocked_by is not None:
                    return capacity.blocked_by.key
        return self.key

    # -- the upstream ---------------------------------------------------------------------

    async def _forward(self) -> None:
        try:
            self._line = await self.route.lines.get()
            await self._line.ask(self.request.head.method, self._written(), self)
            failure = await self._answered
        except UpstreamFailed as error:
            failure = error
        except BaseException:
            if self._line is not None:
                self._line.hang_up()
            raise
        finally:
            if self._relief is not None:
                self._relief.cancel()
        if failure is None:
            self._judge()
        else:
            self._tell(failure)

    def _written(self) -> bytes:
        head, route = self.request.head, self.route
        headers: Headers = [(b"Host", route.lines.netloc)]
        if self._room.has_begun:  # without an encoding, and it cannot get one any more
            headers += head.passed_on(without=(*route.left_out, b"accept-encoding"))
            headers.append((b"Accept-Encoding", b"identity"))
        else:
            headers += head.passed_on(without=route.left_out)
        headers += route.added
        trailers: Headers | None = None
        if head.is_chunked:
            headers.append((b"Transfer-Encoding", head.raw(b"transfer-encoding")))
            trailers = self.request.trailers
        return lines.request(head.method, route.target, headers, self.request.body, trailers)

    def _judge(self) -> None:
        call = self._call
        if call is not None and call.is_refused:
            self.outcome = "refused upstream"
        elif call is None or call.ending is None or call.ending.complete:
            self.outcome = "ok"
        else:
            self.outcome = "truncated"
            call.judge()

    def _tell(self, failure: UpstreamFailed) -> None:
        """The upstream has failed, before its answer or in the middle of it."""
        self.outcome = f"upstream failed: {failure}"
        call = self._call
        if call is not None and self.first_byte_at is not None:
            call.broke_off(failure)
        elif call is not None and call.may_be_first:
            self._lesson = asyncio.ensure_future(aio.in_thread(call.stand_back))
        if self.first_byte_at is not None:
            self._client.break_off()
            return
        refusal = Refusal(502, UPSTREAM_FAILED, f"headway: {failure}", self.key)
        self.status = refusal.status
        self._room.refuse(refusal)

    # -- its answer, as the line hands it over ------------------------------------------------

    def began(self, head: AnswerHead) -> None:
        """The upstream answers."""
        self.first_byte_at = time.monotonic()
        self.status = head.status_code
        headers = head.passed_on()
        call = self._call
        if call is not None:
            call.learn(head, self.route.path)
            if call.takes_time_to_pass_on:
                self._lesson = asyncio.ensure_future(aio.in_thread(call.pass_on))
            else:
                call.pass_on()
            headers += [
                (b"x-headway-waited-ms", b"%d" % (self.waited_seconds * 1000)),
                (b"x-headway-ticket", call.lease.id.encode()),
            ]
        self._room.hand_over(head.status_code, head.reason, headers)

    def came(self, piece: bytes) -> None:
        """The next piece of its body."""
        self.sent_bytes += len(piece)
        self._glimpse(piece)
        if self._call is not None and self._call.ending is not None:
            self._call.ending.feed(piece)
        self._room.send(piece)

    def settled(self) -> None:
        """All that has arrived so far goes out together."""
        self._client.flush()
        if self._answered.done() or self._relief is not None or self._line is None:
            return
        if self._client.is_full:
            self._line.pause()
            self._relief = asyncio.ensure_future(self._wait_for_client(self._line))

    def _glimpse(self, piece: bytes) -> None:
        if len(self.glimpses) == _GLIMPSES:
            del self.glimpses[1]
        self.glimpses.append(piece[-_GLIMPSE_BYTES:] if self.glimpses else piece[:_GLIMPSE_BYTES])

    async def _wait_for_client(self, line: Line) -> None:
        await self._client.taken()
        self._relief = None
        line.go_on()

    def ended(self, trailers: Headers) -> None:
        """The answer is whole."""
        self._room.end(trailers)
        if not self._answered.done():
            self._answered.set_result(None)

    def failed(self, error: UpstreamFailed) -> None:
        """It never will be."""
        if not self._answered.done():
            self._answered.set_result(error)

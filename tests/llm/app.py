"""The web application: finds the dialect, makes the plan come true, counts."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from typing import TYPE_CHECKING, Any

from aiohttp import web
from tests.llm.asks import Answer, Ask, Dialect, Json, Say, shell_call
from tests.llm.chat import Chat
from tests.llm.gemini import Gemini
from tests.llm.messages import Messages
from tests.llm.responses import Responses

if TYPE_CHECKING:
    from tests.llm.plans import Orders, Plan
    from tests.llm.traffic import Record, Traffic

# Any prefix may stand before these.
_DIALECTS: list[tuple[re.Pattern[str], Dialect]] = [
    (re.compile(r"/chat/completions$"), Chat()),
    (re.compile(r"/responses$"), Responses()),
    (re.compile(r"/v1/messages$"), Messages()),
    (re.compile(r"/models/[^/:]+:(stream)?[gG]enerateContent$"), Gemini()),
]
_GARBAGE = bytes(range(256)) * 4
_MODELS = ("fake-1", "fake-small", "claude-fake", "gemini-fake")


class Aborted(Exception):  # noqa: N818 - it is what happened, not what went wrong
    """The plan was to hang up."""


class App:
    """Answers requests as planned."""

    def __init__(self, orders: Orders, traffic: Traffic) -> None:
        self._orders, self._traffic = orders, traffic
        self._holds: dict[int, tuple[str, asyncio.Event]] = {}
        self._holds_nothing = False

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 30)
        application.router.add_route("*", "/{path:.*}", self._handle)
        return application

    def release(self, model: str | None, *, later_too: bool) -> None:
        """Let the held go on; runs in the loop."""
        self._holds_nothing = later_too
        for held, event in self._holds.values():
            if model in (None, held):
                event.set()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        for pattern, dialect in _DIALECTS:
            if request.method == "POST" and pattern.search(request.path):
                return await self._answer(request, dialect)
        self._traffic.probe(f"{request.method} {request.path}")
        if request.path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": len(str(await request.json()).split())})
        if request.path.endswith("/models"):
            models = [{"id": name, "object": "model", "owned_by": "tests"} for name in _MODELS]
            return web.json_response({"object": "list", "data": models})
        if request.path == "/" or request.method == "HEAD":
            return web.Response()
        return web.json_response({"error": {"message": "no such path"}}, status=404)

    async def _answer(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        body = json.loads(await request.read())
        ask = dialect.read(request.path, body)
        assert request.transport is not None
        fileno = request.transport.get_extra_info("socket").fileno()
        record = self._traffic.arrive(ask, body, dict(request.headers), fileno)
        try:
            plan = self._orders.choose(ask)
            record.tag = plan.say
            reply = Reply(request, record, plan, self)
            if plan.cap and self._traffic.in_flight(ask.model) > plan.cap:
                return await reply.error(dialect, 429)
            return await reply.give(dialect, ask)
        except Aborted:
            return web.Response()  # to nobody
        except (asyncio.CancelledError, ConnectionError):
            self._traffic.end(record, client_left=True)
            raise
        finally:
            self._traffic.end(record)

    async def hold(self, record: Record) -> None:
        """Wait for the test to release this request."""
        if self._holds_nothing:
            return
        released = asyncio.Event()
        self._holds[record.number] = record.model, released
        self._traffic.change(lambda: setattr(record, "is_held", True))
        try:
            await released.wait()
        finally:
            del self._holds[record.number]
            self._traffic.change(lambda: setattr(record, "is_held", False))

    def end(self, record: Record) -> None:
        self._traffic.end(record)


class Reply:
    """One response, written piece by piece."""

    def __init__(self, request: web.Request, record: Record, plan: Plan, app: App) -> None:
        self._request, self._record, self._plan, self._app = request, record, plan, app
        self._response = web.StreamResponse()

    async def give(self, dialect: Dialect, ask: Ask) -> web.StreamResponse:
        plan = self._plan
        await asyncio.sleep(plan.header_delay)
        if plan.hold == "before":
            await self._app.hold(self._record)
        if plan.drop:
            self._hang_up()
        if plan.status >= 400:
            return await self.error(dialect, plan.status)
        answer = answer_to(ask, plan)
        is_list = dialect.name == "gemini" and self._request.query.get("alt") != "sse"
        if plan.garbage:
            return await self._body(_GARBAGE, streams=ask.streams)
        if ask.streams and is_list:
            return await self._body(_json([dialect.whole(ask, answer)]))
        if ask.streams:
            return await self._stream(dialect, ask, answer)
        return await self._body(_json(dialect.whole(ask, answer)))

    async def error(self, dialect: Dialect, status: int) -> web.StreamResponse:
        plan = self._plan
        self._response.set_status(status)
        if plan.retry_after:
            self._response.headers["Retry-After"] = plan.retry_after
        error = dialect.error(status, f"planned {status}", plan.retry_delay)
        return await self._body(_json(error))

    async def _stream(self, dialect: Dialect, ask: Ask, answer: Answer) -> web.StreamResponse:
        stream = dialect.stream(ask, answer)
        await self._begin("text/event-stream")
        await self._write(stream.opening)
        if self._plan.hold == "opened":
            await self._app.hold(self._record)
        half = (len(stream.deltas) + 1) // 2
        await self._write_slowly(stream.deltas[:half])
        await self._half_way()
        if self._plan.cut:
            return await self._finish(b"")
        await self._write_slowly(stream.deltas[half:])
        return await self._finish(stream.closing)

    async def _body(self, body: bytes, *, streams: bool = False) -> web.StreamResponse:
        if self._plan.cut == "clean":
            body = body[: len(body) // 2]
        if not streams:
            self._response.content_length = len(body)
        await self._begin("text/event-stream" if streams else "application/json")
        half = len(body) // 2
        await self._write(body[:half])
        await self._half_way()
        return await self._finish(body[half:])

    async def _half_way(self) -> None:
        if self._plan.hold == "middle":
            await self._app.hold(self._record)
        if self._plan.cut == "reset":
            self._hang_up()

    async def _begin(self, kind: str) -> None:
        self._response.content_type = kind
        self._record.status = self._response.status
        await self._response.prepare(self._request)

    async def _write_slowly(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            await self._write(piece)
            await asyncio.sleep(self._plan.chunk_delay)

    async def _write(self, piece: bytes) -> None:
        step = self._plan.trickle or len(piece)
        for at in range(0, len(piece), step or 1):
            await self._response.write(piece[at : at + step])
            if self._plan.trickle:
                await asyncio.sleep(self._plan.chunk_delay)

    async def _finish(self, closing: bytes) -> web.StreamResponse:
        # All that tells the client "over" goes out in one piece, and is counted as over just
        # before: a client that starts the next request upon it never makes two of one.
        if self._plan.trickle:
            await self._write(closing[:-1])
            closing = closing[-1:]
        self._app.end(self._record)
        await self._response.write_eof(closing)
        return self._response

    def _hang_up(self) -> None:
        transport = self._request.transport
        if transport is not None:
            self._app.end(self._record)
            with_reset = struct.pack("ii", 1, 0)
            raw: Any = transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, with_reset)
            transport.abort()
        raise Aborted


def answer_to(ask: Ask, plan: Plan) -> Answer:
    """The next tool call of the plan, or at last its words."""
    if plan.tools and (plan.forever or ask.results < len(plan.tools)):
        return shell_call(ask, plan.tools[min(ask.results, len(plan.tools) - 1)])
    if plan.empty:
        return Say("")
    if plan.huge:
        return Say("words and " * (plan.huge // 10 + 1))
    if plan.words:
        return Say(" ".join(f"word{number}" for number in range(1, plan.words + 1)))
    if plan.say is not None:
        return Say(plan.say)
    return Say("you said: " + " ".join(ask.prompt.split()[:12]))


def _json(value: Json | list[Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()

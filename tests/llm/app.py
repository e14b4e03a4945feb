"""The web application: finds the dialect, makes the plan come true, counts."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any

from aiohttp import web
from tests.llm.asks import Answer, Ask, Dialect, Json, Say, shell_call, sse
from tests.llm.chat import Chat
from tests.llm.gemini import Gemini
from tests.llm.messages import Messages
from tests.llm.responses import Responses
from tests.llm.traffic import Record
from tests.llm.wire import Over, Wire

if TYPE_CHECKING:
    from tests.llm.plans import Orders, Plan
    from tests.llm.traffic import Traffic

# Any prefix may stand before these.
_DIALECTS: list[tuple[re.Pattern[str], Dialect]] = [
    (re.compile(r"/chat/completions$"), Chat()),
    (re.compile(r"/responses$"), Responses()),
    (re.compile(r"/v1/messages$"), Messages()),
    (re.compile(r"/models/[^/:]+:(stream)?[gG]enerateContent$"), Gemini()),
]
_KEPT_BODY = 1_000_000
_GARBAGE = bytes(range(256)) * 4
_MODELS = ("fake-1", "fake-small", "claude-fake", "gemini-fake")


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
        arrived_at = time.monotonic()
        raw = await request.read()
        body = json.loads(raw)
        ask = dialect.read(request.path, body)
        assert request.transport is not None
        fileno = request.transport.get_extra_info("socket").fileno()
        record = self._traffic.arrive(
            Record(
                ask=ask,
                body=body if len(raw) <= _KEPT_BODY else {},
                size=len(raw),
                headers=dict(request.headers),
                socket=fileno,
                arrived_at=arrived_at,
            )
        )
        del raw, body
        try:
            plan = self._orders.choose(ask)
            record.tag = plan.say
            reply = Reply(request, record, plan, self)
            if plan.cap and self._traffic.in_flight(ask.model) > plan.cap:
                return await reply.error(dialect, 429)
            return await reply.give(dialect, ask)
        except Over as over:
            return over.response
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
    """One response, as planned."""

    def __init__(self, request: web.Request, record: Record, plan: Plan, app: App) -> None:
        self._request, self._record, self._plan, self._app = request, record, plan, app
        self._wire = Wire(request, plan, lambda: app.end(record))

    async def give(self, dialect: Dialect, ask: Ask) -> web.StreamResponse:
        plan = self._plan
        await asyncio.sleep(plan.header_delay)
        if plan.hold == "before":
            await self._app.hold(self._record)
        if plan.drop:
            self._wire.hang_up()
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
        self._wire.response.set_status(status)
        return await self._body(_json(_error(dialect, status, self._plan)))

    async def _stream(self, dialect: Dialect, ask: Ask, answer: Answer) -> web.StreamResponse:
        stream = dialect.stream(ask, answer)
        await self._begin("text/event-stream")
        await self._wire.write(stream.opening)
        if self._plan.hold == "opened":
            await self._app.hold(self._record)
        half = (len(stream.deltas) + 1) // 2
        await self._wire.write_slowly(stream.deltas[:half])
        await self._half_way()
        if self._is_cut_half_way:
            return await self._wire.finish(b"")
        await self._wire.write_slowly(stream.deltas[half:])
        closing = stream.closing
        if self._plan.cut == "untold":
            closing = b""
        elif self._plan.cut == "error":
            is_named = dialect.name == "messages"
            closing = sse(_error(dialect, 500, self._plan), named=is_named)
        return await self._wire.finish(closing)

    async def _body(self, body: bytes, *, streams: bool = False) -> web.StreamResponse:
        if self._plan.cut == "clean" and self._is_cut_half_way:
            body = body[: len(body) // 2]
        if streams:
            await self._begin("text/event-stream")
        else:
            body = self._wire.pack(body)
            await self._begin("application/json", len(body))
        half = len(body) // 2
        await self._wire.write(body[:half])
        await self._half_way()
        return await self._wire.finish(body[half:])

    @property
    def _is_cut_half_way(self) -> bool:
        return self._plan.cut in {"reset", "close", "clean"} and self._plan.cut_at < 0

    async def _half_way(self) -> None:
        if self._plan.hold == "middle":
            await self._app.hold(self._record)
        if self._is_cut_half_way and self._plan.cut != "clean":
            await self._wire.cut()

    async def _begin(self, kind: str, length: int | None = None) -> None:
        self._record.status = self._wire.response.status
        await self._wire.begin(kind, length)


def _error(dialect: Dialect, status: int, plan: Plan) -> Json:
    return dialect.error(status, f"planned {status}", plan.retry_delay)


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

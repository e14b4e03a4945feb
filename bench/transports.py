"""LLM calls: what the transports add to a call, to its first byte, and to its chunks."""

from __future__ import annotations

import asyncio
import json
import os
import time
from contextlib import AsyncExitStack, ExitStack
from typing import TYPE_CHECKING

import httpx

from bench import timing
from bench.children import crew
from bench.contenders import LIMITED_KEY
from bench.figure import Effort, Figure, Findings
from bench.model_server import framed
from bench.report import Aim, Row
from headway import Governor
from headway.llm import AsyncHeadwayTransport, HeadwayTransport

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
    from multiprocessing.connection import Connection

LIMIT = 4
CALLS = 100
URL = "https://api.openai.com/v1/chat/completions"
ASK = json.dumps(
    {"messages": [{"role": "user", "content": "why? " * 200}], "model": "gpt"}
).encode()
ASK_HEADERS = {"content-type": "application/json"}
CHUNK = b'data: {"choices": [{"delta": {"content": "' + b"word " * 10 + b'"}}]}\n\n'
LAST_CHUNK = b"data: [DONE]\n\n"
CHUNKS = 2000


class Answer(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body of one piece."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"{}"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"{}"


class Nothing(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers at once, without a network."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        del request
        return httpx.Response(200, headers=ASK_HEADERS, stream=Answer())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


# -- a call ------------------------------------------------------------------------------


def measure_calls(effort: Effort, directory: str) -> Findings:
    seconds = effort.pick(6.0, 2.0)
    with ExitStack() as stack:
        stores = {
            name: stack.enter_context(Governor(url, limits={LIMITED_KEY: LIMIT}))
            for name, url in (("memory", "memory://"), ("SQLite", f"sqlite:///{directory}"))
        }
        transports = {
            name: HeadwayTransport(None, governor, Nothing()) for name, governor in stores.items()
        }
        clients = {
            name: stack.enter_context(httpx.Client(transport=transport))
            for name, transport in {"httpx": Nothing(), **transports}.items()
        }
        plain = timing.medians(
            timing.rounds(
                {name: _calls(client) for name, client in clients.items()}, seconds=seconds
            )
        )
        coroutines = asyncio.run(_measure_async_calls(stores, seconds))
    rows = [
        Row(f"added to a call, {name} store, {how}", "µs", cost[name] - cost["httpx"], aim=aim)
        for name, aim in (("memory", Aim(60)), ("SQLite", Aim(250)))
        for how, cost in (("plain", plain), ("async", coroutines))
    ]
    alone = f"{plain['httpx']:.0f} µs plain, {coroutines['httpx']:.0f} µs async"
    return Findings(rows, [f"a call of httpx alone, without a network: {alone}"])


def _calls(client: httpx.Client) -> Callable[[], float]:
    def measure() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            client.post(URL, content=ASK, headers=ASK_HEADERS)
        return (time.perf_counter() - started) / CALLS * 1e6

    return measure


async def _measure_async_calls(stores: Mapping[str, Governor], seconds: float) -> dict[str, float]:
    async with AsyncExitStack() as stack:
        transports = {
            name: AsyncHeadwayTransport(None, governor, Nothing())
            for name, governor in stores.items()
        }
        clients = {
            name: await stack.enter_async_context(httpx.AsyncClient(transport=transport))
            for name, transport in {"httpx": Nothing(), **transports}.items()
        }
        return await _medians(
            {name: _async_calls(client) for name, client in clients.items()}, seconds
        )


def _async_calls(client: httpx.AsyncClient) -> Callable[[], Awaitable[float]]:
    async def measure() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            await client.post(URL, content=ASK, headers=ASK_HEADERS)
        return (time.perf_counter() - started) / CALLS * 1e6

    return measure


async def _medians(
    contenders: Mapping[str, Callable[[], Awaitable[float]]], seconds: float
) -> dict[str, float]:
    names, seen = list(contenders), {name: list[float]() for name in contenders}
    for name in names:
        await contenders[name]()
    ends_at, done = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        first = done % len(names)
        for name in names[first:] + names[:first]:
            seen[name].append(await contenders[name]())
        done += 1
    return timing.medians(seen)


# -- a stream ----------------------------------------------------------------------------


def measure_streams(effort: Effort, directory: str) -> Findings:
    seconds = effort.pick(6.0, 2.0)
    home = os.path.join(directory, "home")
    with crew() as start, ExitStack() as stack:
        url = f"http://127.0.0.1:{start(_serve).answer()}/v1/chat/completions"
        governor = stack.enter_context(Governor(f"sqlite:///{home}", limits={LIMITED_KEY: LIMIT}))
        counting = HeadwayTransport("openai", governor)
        clients = {
            "httpx": stack.enter_context(httpx.Client()),
            "headway": stack.enter_context(httpx.Client(transport=counting)),
        }
        first = timing.medians(
            timing.rounds(
                {name: _first_byte(client, url) for name, client in clients.items()},
                seconds=seconds,
            )
        )
        rates = timing.medians(
            timing.rounds(
                {name: _chunk_rate(client, url) for name, client in clients.items()},
                seconds=seconds,
            )
        )
        coroutines = asyncio.run(_measure_async_streams(url, governor, seconds))
    rows = [
        Row("added to the first byte", "µs", first["headway"] - first["httpx"], aim=Aim(250)),
        _rate_row("plain", rates),
        _rate_row("async", coroutines),
    ]
    notes = [f"chunks of {len(CHUNK)} bytes over loopback, watched for the end of their stream"]
    return Findings(rows, notes)


def _rate_row(how: str, rates: dict[str, float]) -> Row:
    aim = Aim(0.95, "httpx", at_least=True)
    return Row(f"chunks, {how}", "/s", rates["headway"], {"httpx": rates["httpx"]}, aim)


def _first_byte(client: httpx.Client, url: str) -> Callable[[], float]:
    def measure() -> float:
        started = time.perf_counter()
        with client.stream("POST", url, content=ASK, headers=ASK_HEADERS) as response:
            pieces = response.iter_raw()
            next(pieces)
            taken = time.perf_counter() - started
            for _ in pieces:
                pass
        return taken * 1e6

    return measure


def _chunk_rate(client: httpx.Client, url: str) -> Callable[[], float]:
    def measure() -> float:
        with client.stream("POST", url, content=ASK, headers={**ASK_HEADERS, **_MANY}) as response:
            started, count = time.perf_counter(), sum(len(piece) for piece in response.iter_raw())
        return count / len(CHUNK) / (time.perf_counter() - started)

    return measure


async def _measure_async_streams(url: str, governor: Governor, seconds: float) -> dict[str, float]:
    counting = AsyncHeadwayTransport("openai", governor)
    async with httpx.AsyncClient() as plain, httpx.AsyncClient(transport=counting) as headway:
        clients = {"httpx": plain, "headway": headway}
        return await _medians(
            {name: _async_chunk_rate(client, url) for name, client in clients.items()}, seconds
        )


def _async_chunk_rate(client: httpx.AsyncClient, url: str) -> Callable[[], Awaitable[float]]:
    async def measure() -> float:
        headers = {**ASK_HEADERS, **_MANY}
        async with client.stream("POST", url, content=ASK, headers=headers) as response:
            started, count = time.perf_counter(), 0
            async for piece in response.aiter_raw():
                count += len(piece)
        return count / len(CHUNK) / (time.perf_counter() - started)

    return measure


_MANY = {"x-chunks": str(CHUNKS)}
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _serve(pipe: Connection) -> None:
    """Answer every request with as many chunks as it asks for, as fast as they are taken."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        piece, last = framed(CHUNK), framed(LAST_CHUNK) + framed(b"")
        while head := await _head(reader):
            await reader.readexactly(int(head.get("content-length", 0)))
            writer.write(_HEAD)
            for _ in range(int(head.get("x-chunks", 1))):
                writer.write(piece)
                await writer.drain()
            writer.write(last)
            await writer.drain()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


async def _head(reader: asyncio.StreamReader) -> dict[str, str]:
    """The headers of the next request; none when there is none."""
    try:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()[1:-1]
    except (asyncio.IncompleteReadError, ConnectionError):
        return {}
    return dict(line.split(": ", 1) for line in lines)


CALLING = Figure("transports", "a call through the transports", measure_calls)
STREAMING = Figure("streams", "streams through the transports", measure_streams)

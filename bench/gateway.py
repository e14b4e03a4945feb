"""The gateway between a client and a fast upstream, beside LiteLLM's proxy and nginx."""

from __future__ import annotations

import asyncio
import re
import socket
import statistics
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import psutil

from bench import model_server, proxies, timing
from bench.children import crew
from bench.figure import Effort, Figure, Findings
from bench.proxies import Place
from bench.report import Aim, Row

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

CALLS = 20
CHUNKS = 2000
CONNECTIONS = 32
STREAMS = 500
_LAST = b"0\r\n\r\n"
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)\r\n")


def measure(effort: Effort, directory: str) -> Findings:
    seconds = effort.pick(10.0, 1.5)
    with crew() as start, ExitStack() as stack:
        upstream = start(model_server.serve)
        port: int = upstream.answer()
        places = {
            "direct": Place(port, model_server.PATH, upstream.pid),
            "headway": proxies.headway(stack, directory, port),
        }
        for name, peer in (("litellm", proxies.litellm), ("nginx", proxies.nginx)):
            place = peer(stack, directory, port)
            if place is not None:
                places[name] = place
        callers = {name: Caller(place) for name, place in places.items()}
        taken = _medians({n: _calls(caller) for n, caller in callers.items()}, seconds)
        first = _medians({n: caller.first_byte for n, caller in callers.items()}, seconds)
        chunks = _medians({n: caller.chunk_rate for n, caller in callers.items()}, seconds)
        load = start(_load)
        rates = {name: load.ask((place, seconds / 2)) for name, place in places.items()}
        proxied = {name: place for name, place in places.items() if name != "direct"}
        memory = {name: _memory_with_streams(place) for name, place in proxied.items()}
    rows = [
        _row("added to a call", "ms", _added(taken), Aim(1)),
        _row("added to a call", "ms", _added(taken), Aim(0.05, "litellm")),
        _row("added to the first byte", "ms", _added(first), Aim(1)),
        _row(
            f"requests, {CONNECTIONS} connections", "/s", rates, Aim(40, "litellm", at_least=True)
        ),
        _row("chunks", "/s", chunks, Aim(0.9, "direct", at_least=True)),
        _row(f"memory with {STREAMS} open streams", "MB", memory, Aim(80)),
    ]
    return Findings(
        rows, [f"a call without it: {taken['direct']:.3f} ms; SQLite store, a limit in force"]
    )


def _medians(contenders: dict[str, Callable[[], float]], seconds: float) -> dict[str, float]:
    return timing.medians(timing.rounds(contenders, seconds=seconds))


def _added(taken: dict[str, float]) -> dict[str, float]:
    return {name: each - taken["direct"] for name, each in taken.items() if name != "direct"}


def _row(what: str, unit: str, found: dict[str, float], aim: Aim) -> Row:
    peers = {name: value for name, value in found.items() if name != "headway"}
    return Row(what, unit, found["headway"], peers, aim)


class Caller:
    """A client that does nothing but send and read."""

    def __init__(self, place: Place) -> None:
        self._socket = socket.create_connection(("127.0.0.1", place.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._whole = _request(place.path)
        self._one = _request(place.path, stream=True, max_tokens=1)
        self._many = _request(place.path, stream=True, max_tokens=CHUNKS)

    def call(self) -> None:
        """One request, and its answer."""
        self._socket.sendall(self._whole)
        seen = _read_until(self._socket, b"\r\n\r\n")
        head, _, body = seen.partition(b"\r\n\r\n")
        missing = _length(head) - len(body)
        while missing > 0:
            missing -= len(self._socket.recv(262_144))

    def first_byte(self) -> float:
        """How long until the first piece of a stream, in milliseconds."""
        started = time.perf_counter()
        self._socket.sendall(self._one)
        seen = _read_until(self._socket, b"data: ")
        taken = time.perf_counter() - started
        if not seen.endswith(_LAST):
            _read_until(self._socket, _LAST)
        return taken * 1e3

    def chunk_rate(self) -> float:
        """How many pieces of a stream come in a second."""
        self._socket.sendall(self._many)
        started = time.perf_counter()
        _read_until(self._socket, _LAST)
        return CHUNKS / (time.perf_counter() - started)


def _calls(caller: Caller) -> Callable[[], float]:
    def measure() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            caller.call()
        return (time.perf_counter() - started) / CALLS * 1e3

    return measure


def _request(path: str, **more: object) -> bytes:
    body = model_server.ask(**more)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _length(head: bytes) -> int:
    found = _LENGTH.search(head + b"\r\n")
    if found is None or b" 200 " not in head:
        raise ValueError(f"this is no whole answer: {head!r}")
    return int(found[1])


def _read_until(connection: socket.socket, end: bytes) -> bytes:
    """What came, from its beginning if it is short, up to where this was seen."""
    seen = b""
    while end not in seen:
        piece = connection.recv(262_144)
        if not piece:
            raise ConnectionError("it hung up")
        seen = (seen if len(seen) < len(piece) else seen[-len(end) :]) + piece
    return seen


def _memory_with_streams(place: Place) -> float:
    """What a proxy takes while so many streams are open, in MB, its children included."""
    opened = []
    for _ in range(STREAMS):
        connection = socket.create_connection(("127.0.0.1", place.port))
        connection.sendall(_request(place.path, stream=True, max_tokens=0))
        opened.append(connection)
    for connection in opened:
        _read_until(connection, b"\r\n\r\n")
    process = psutil.Process(place.pid)
    everyone = [process, *process.children(recursive=True)]
    taken = sum(each.memory_info().rss for each in everyone) / 1e6
    for connection in opened:
        connection.close()
    return taken


def _load(pipe: Connection) -> None:
    """Ask over many connections at once, as long as is said; how many a second were answered."""

    async def ask(place: Place, request: bytes, until: float) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        count = 0
        while time.monotonic() < until:
            writer.write(request)
            await reader.readexactly(_length(await reader.readuntil(b"\r\n\r\n")))
            count += 1
        writer.close()
        return count

    async def measure(place: Place, seconds: float) -> float:
        started, request = time.monotonic(), _request(place.path)
        asking = [ask(place, request, started + seconds) for _ in range(CONNECTIONS)]
        return sum(await asyncio.gather(*asking)) / (time.monotonic() - started)

    while True:
        place, seconds = pipe.recv()
        runs = [asyncio.run(measure(place, seconds / 3)) for _ in range(3)]
        pipe.send(statistics.median(runs))


FIGURE = Figure("gateway", "requests through the gateway", measure)

"""The gateway between a client and a fast upstream, beside nginx where there is one."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import httptools
import psutil

from bench import timing
from bench.children import crew
from bench.figure import Effort, Figure, Findings
from bench.report import Aim, Row
from bench.transports import ASK, CHUNK, CHUNKS, LAST_CHUNK
from headway import Governor, config
from headway.gateway.server import Gateway

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

CALLS = 100
CONNECTIONS = 32
STREAMS = 500
PATH = "/v1/chat/completions"
_NGINX = """
daemon off; worker_processes 1; pid {directory}/pid; error_log /dev/null;
events {{ worker_connections 2048; }}
http {{ access_log off; client_body_temp_path {directory}; proxy_temp_path {directory};
fastcgi_temp_path {directory}; uwsgi_temp_path {directory}; scgi_temp_path {directory};
keepalive_requests 1000000000;
upstream up {{ server 127.0.0.1:{upstream}; keepalive 64; keepalive_requests 1000000000; }}
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://up/; proxy_http_version 1.1;
proxy_set_header Connection ""; proxy_buffering off; }} }} }}
"""


def measure(effort: Effort, directory: str) -> Findings:
    seconds = effort.pick(6.0, 1.5)
    with crew() as start, ExitStack() as stack:
        upstream: int = start(_answer).answer()
        gateway = start(_gate, upstream, os.path.join(directory, "home"))
        ports: dict[str, tuple[int, str]] = {
            "direct": (upstream, PATH),
            "headway": (gateway.answer(), f"/openai{PATH}"),
        }
        nginx = _nginx(stack, directory, upstream)
        if nginx is not None:
            ports["nginx"] = nginx, PATH
        clients = {name: Caller(*place) for name, place in ports.items()}
        taken = timing.medians(
            timing.rounds({n: _calls(client) for n, client in clients.items()}, seconds=seconds)
        )
        first = timing.medians(
            timing.rounds({n: client.first_byte for n, client in clients.items()}, seconds=seconds)
        )
        chunks = timing.medians(
            timing.rounds({n: client.chunk_rate for n, client in clients.items()}, seconds=seconds)
        )
        load = start(_load)
        rates = {name: load.ask((*place, seconds / 2)) for name, place in ports.items()}
        memory = _memory_with_streams(ports["headway"], gateway.pid)
    others = [name for name in ports if name not in {"direct", "headway"}]
    added = {name: taken[name] - taken["direct"] for name in taken}
    later = {name: first[name] - first["direct"] for name in first}
    rows = [
        Row("added to a call", "ms", added["headway"], {n: added[n] for n in others}, Aim(1)),
        Row(
            "added to the first byte", "ms", later["headway"], {n: later[n] for n in others}, Aim(1)
        ),
        Row(
            f"requests, {CONNECTIONS} connections",
            "/s",
            rates["headway"],
            {name: rates[name] for name in others} | {"direct": rates["direct"]},
        ),
        Row(
            "chunks",
            "/s",
            chunks["headway"],
            {name: chunks[name] for name in others} | {"direct": chunks["direct"]},
            Aim(0.9, "direct", at_least=True),
        ),
        Row(f"memory with {STREAMS} open streams", "MB", memory, aim=Aim(80)),
    ]
    return Findings(
        rows, [f"a call without it: {taken['direct']:.3f} ms; SQLite store, a limit in force"]
    )


class Caller:
    """A client that does nothing but send and read."""

    def __init__(self, port: int, path: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._whole, self._streamed = _request(path), _request(path, f"x-chunks: {CHUNKS}\r\n")
        self._one = _request(path, "x-chunks: 1\r\n")

    def call(self) -> None:
        """One request, and its answer."""
        self._socket.sendall(self._whole)
        _read_until(self._socket, b"{}")

    def first_byte(self) -> float:
        """How long until the first piece of a stream, in milliseconds."""
        started = time.perf_counter()
        self._socket.sendall(self._one)
        seen = _read_until(self._socket, b"data: ")
        taken = time.perf_counter() - started
        if not seen.endswith(b"0\r\n\r\n"):
            _read_until(self._socket, b"0\r\n\r\n")
        return taken * 1e3

    def chunk_rate(self) -> float:
        """How many pieces of a stream come in a second."""
        self._socket.sendall(self._streamed)
        started = time.perf_counter()
        _read_until(self._socket, b"0\r\n\r\n")
        return CHUNKS / (time.perf_counter() - started)


def _calls(client: Caller) -> Callable[[], float]:
    def measure() -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            client.call()
        return (time.perf_counter() - started) / CALLS * 1e3

    return measure


def _request(path: str, more: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(ASK)}\r\n\r\n".encode() + ASK


def _read_until(connection: socket.socket, end: bytes) -> bytes:
    seen = b""
    while end not in seen:
        piece = connection.recv(262_144)
        if not piece:
            raise ConnectionError("it hung up")
        seen = seen[-len(end) :] + piece
    return seen


def _memory_with_streams(place: tuple[int, str], pid: int) -> float:
    """What the gateway takes while so many streams are open, in MB."""
    port, path = place
    opened = []
    for _ in range(STREAMS):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(_request(path, "x-chunks: 0\r\n"))
        opened.append(connection)
    for connection in opened:
        _read_until(connection, b"\r\n\r\n")
    taken = psutil.Process(pid).memory_info().rss / 1e6
    for connection in opened:
        connection.close()
    return taken


# -- the processes ---------------------------------------------------------------------------


class _Answering(asyncio.Protocol):
    """An upstream that answers at once; with ``x-chunks`` in pieces, and with none it holds."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._chunks: int | None = None

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"x-chunks":
            self._chunks = int(value)

    def on_message_complete(self) -> None:
        chunks, self._chunks = self._chunks, None
        if chunks is None:
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
            )
            return
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        for _ in range(chunks):
            self._transport.write(_framed(CHUNK))
        if chunks:
            self._transport.write(_framed(LAST_CHUNK) + _framed(b""))


def _framed(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def _answer(pipe: Connection) -> None:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Answering, "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


def _gate(pipe: Connection, upstream: int, home: str) -> None:
    async def serve() -> None:
        environ = {"HEADWAY_GATEWAY_UPSTREAMS": f"openai=http://127.0.0.1:{upstream}"}
        with Governor(f"sqlite:///{home}", limits={"llm/openai": 2 * STREAMS}) as governor:
            gateway = Gateway(governor, config.load(home, environ), environ)
            pipe.send(await gateway.start(0))
            await asyncio.Event().wait()

    asyncio.run(serve())


def _load(pipe: Connection) -> None:
    """Ask over many connections at once, as long as is said; how many a second were answered."""

    async def ask(port: int, request: bytes, until: float) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        count = 0
        while time.monotonic() < until:
            writer.write(request)
            await reader.readuntil(b"\r\n\r\n{}")
            count += 1
        writer.close()
        return count

    async def measure(port: int, path: str, seconds: float) -> float:
        until, request = time.monotonic() + seconds, _request(path)
        counts = await asyncio.gather(*(ask(port, request, until) for _ in range(CONNECTIONS)))
        return sum(counts) / seconds

    while True:
        port, path, seconds = pipe.recv()
        runs = [asyncio.run(measure(port, path, seconds / 3)) for _ in range(3)]
        pipe.send(statistics.median(runs))


def _nginx(stack: ExitStack, directory: str, upstream: int) -> int | None:
    program = shutil.which("nginx")
    if program is None:
        return None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    settings = os.path.join(directory, "nginx.conf")
    with open(settings, "w", encoding="utf-8") as file:
        file.write(_NGINX.format(directory=directory, upstream=upstream, port=port))
    process = subprocess.Popen([program, "-c", settings, "-p", directory])
    stack.callback(process.wait)
    stack.callback(process.terminate)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionError:
            if process.poll() is not None:
                raise
        else:
            return port


FIGURE = Figure("gateway", "requests through the gateway", measure)

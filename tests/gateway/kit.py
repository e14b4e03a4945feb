"""A gateway in a thread of its own, and clients that speak to it in bytes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import psutil

from headway import Governor, config
from headway.gateway.access_log import entry
from headway.gateway.server import Gateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

PATIENCE_SECONDS = 30.0


class Running:
    """A gateway that listens."""

    def __init__(
        self,
        governor: Governor,
        port: int,
        entries: list[dict[str, Any]],
        loop: asyncio.AbstractEventLoop,
        stopping: asyncio.Event,
    ) -> None:
        self.governor, self.port, self.entries = governor, port, entries
        self._loop, self._stopping = loop, stopping
        self.url = f"http://127.0.0.1:{port}"
        self._wires: list[Wire] = []

    def stop(self) -> None:
        """Take no more requests, and end when those under way have ended."""
        self._loop.call_soon_threadsafe(self._stopping.set)

    def tasks(self) -> int:
        """How many things it has under way."""
        return len(asyncio.all_tasks(self._loop))

    def connect(self, *, narrow: bool = False) -> Wire:
        """A connection to it; through a narrow one hardly anything goes unless it is read."""
        connection = socket.socket()
        if narrow:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(("127.0.0.1", self.port))
        self._wires.append(Wire(connection))
        return self._wires[-1]

    def hang_up(self) -> None:
        """Close all connections."""
        for wire in self._wires:
            wire.close()

    def until(self, ready: Callable[[], Any], what: str = "it") -> None:
        """Wait for something."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not ready():
            assert time.monotonic() < deadline, f"{what} did not happen"
            time.sleep(0.005)

    def waiting(self) -> int:
        """How many wait in line."""
        return len(self.governor.snapshot().waiting)

    def connections(self) -> int:
        """How many clients it has."""
        ends = psutil.Process().net_connections("tcp4")
        return sum(end.laddr[1] == self.port and bool(end.raddr) for end in ends)

    def held(self) -> int:
        """How many have a slot."""
        return len(self.governor.snapshot().leases)


class Wire:
    """A client's connection, byte by byte."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unread = b""

    def send(self, text: bytes) -> None:
        """Send these bytes."""
        self._connection.sendall(text)

    def post(self, path: str, body: bytes, **headers: str) -> None:
        """Send a request."""
        named = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{named}Content-Length: {len(body)}\r\n\r\n"
        )
        self.send(head.encode() + body)

    def until(self, end: bytes) -> bytes:
        """What comes, up to this."""
        while end not in self._unread:
            piece = self._connection.recv(65_536)
            assert piece, f"hung up before {end!r}, after {self._unread!r}"
            self._unread += piece
        found, _, self._unread = self._unread.partition(end)
        return found + end

    def take(self, size: int) -> bytes:
        """So many bytes."""
        while len(self._unread) < size:
            piece = self._connection.recv(65_536)
            assert piece, f"hung up after {self._unread!r}"
            self._unread += piece
        found, self._unread = self._unread[:size], self._unread[size:]
        return found

    def message(self) -> tuple[bytes, bytes]:
        """A request or an answer that tells its length: its head and its body."""
        head = self.until(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)\r\n", head)
        assert length is not None, head
        return head, self.take(int(length[1]))

    def rest(self) -> bytes:
        """All that comes until it hangs up."""
        with contextlib.suppress(ConnectionError):
            while piece := self._connection.recv(65_536):
                self._unread += piece
        found, self._unread = self._unread, b""
        return found

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def reset(self) -> None:
        """Hang up without a word."""
        at_once = struct.pack("ii", 1, 0)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self._connection.close()


@contextlib.contextmanager
def running(
    home: Path,
    upstreams: Mapping[str, str],
    environ: Mapping[str, str] | None = None,
    *,
    store: str = "",
    **options: Any,
) -> Iterator[Running]:
    """A gateway to these upstreams; ``environ`` has settings. Its store is that of the home."""
    variables = dict(environ or {})
    if upstreams:
        pairs = [f"{name}={url}" for name, url in upstreams.items()]
        variables["HEADWAY_GATEWAY_UPSTREAMS"] = " ".join(pairs)
    settings = config.load(str(home), variables)
    governor = Governor(store or f"sqlite:///{home}")
    entries: list[dict[str, Any]] = []
    ready: list[Any] = []
    started = threading.Event()

    with contextlib.ExitStack() as undo:
        undo.callback(governor.close)
        gateway = Gateway(
            governor, settings, variables, log=lambda each: entries.append(entry(each)), **options
        )
        undo.pop_all()

    async def serve() -> None:
        stopping = asyncio.Event()
        ready.extend((await gateway.start(0), asyncio.get_running_loop(), stopping))
        started.set()
        await stopping.wait()
        await gateway.stop(2 * PATIENCE_SECONDS)  # a client would not wait as long

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(PATIENCE_SECONDS)
    port, loop, stopping = ready
    found = Running(governor, port, entries, loop, stopping)
    try:
        yield found
    finally:
        found.hang_up()
        with contextlib.suppress(RuntimeError):  # a test may have stopped it
            found.stop()
        thread.join()
        governor.close()

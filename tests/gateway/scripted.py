"""An upstream that sends what it is told, byte by byte, and shows what it got."""

from __future__ import annotations

import contextlib
import queue
import socket
import ssl
import threading
from typing import TYPE_CHECKING

from tests.gateway.kit import PATIENCE_SECONDS, Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.kit import Running


# The least that a request and its answer can be.
ASK = b'{"model": "gpt", "messages": []}'
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Scripted:
    """Every connection that is made to it can be had from ``accept``."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/base"
        self._wires: queue.Queue[Wire] = queue.Queue()
        self._all: list[Wire] = []

    def accept(self) -> Wire:
        """The next connection."""
        return self._wires.get(timeout=PATIENCE_SECONDS)

    def asked(
        self, gateway: Running, path: str = "/openai/x", *, narrow: bool = False, **headers: str
    ) -> tuple[Wire, Wire]:
        """A client whose request has come here, and the connection that it came on."""
        client = gateway.connect(narrow=narrow)
        client.post(path, ASK, **headers)
        provider = self.accept()
        provider.message()
        return client, provider

    def take(self, connection: socket.socket) -> None:
        """Somebody has come."""
        connection.settimeout(PATIENCE_SECONDS)
        self._all.append(Wire(connection))
        self._wires.put(self._all[-1])

    def hang_up(self) -> None:
        """Close all connections."""
        for wire in self._all:
            wire.close()


@contextlib.contextmanager
def scripted(tls: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    """One that listens."""
    listening = socket.create_server(("127.0.0.1", 0))
    upstream = Scripted(listening.getsockname()[1])

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = listening.accept()[0]
                if tls is None:
                    upstream.take(connection)
                    continue
                with contextlib.suppress(ssl.SSLError):  # who does not trust it hangs up
                    upstream.take(tls.wrap_socket(connection, server_side=True))

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        yield upstream
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()
        upstream.hang_up()

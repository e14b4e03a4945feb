"""A network between a process and its server that can be cut, slowed down and broken."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

_RESET = struct.pack("ii", 1, 0)


class Proxy:
    """Listens on a port, and passes on what it hears to a server's socket and back."""

    def __init__(self, target: str, tls: ssl.SSLContext | None = None) -> None:
        self.target, self._tls = target, tls
        self.delay_seconds = 0.0
        # The answer to a command with these bytes gets lost, and its connection breaks.
        self.lost_answer = b""
        self.lost = threading.Event()
        # Whether nothing gets through after that.
        self.is_cut_by_loss = False
        # A command with these bytes is kept until it is let pass, whatever becomes of its client.
        self.kept_back = b""
        self._kept: tuple[socket.socket, bytes] | None = None
        self._is_cut = False
        self._wires: list[_Wire] = []
        self._mutex = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "rediss" if tls else "redis"
        self.url = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._tls:
                try:
                    client = self._tls.wrap_socket(client, server_side=True)
                except OSError:
                    continue  # it does not trust us
            wire = _Wire(self, client)
            with self._mutex:
                wire.is_cut = self._is_cut
                self._wires.append(wire)
            wire.start()

    def cut(self, said: bytes = b"") -> None:
        """Let nothing through any more, and tell nobody: on all wires, or where this was said."""
        with self._mutex:
            self._is_cut = not said
            for wire in self._wires:
                wire.is_cut = wire.is_cut or said in wire.said

    def heal(self) -> None:
        """Let new connections through; those that were cut break."""
        with self._mutex:
            self._is_cut = False
            broken = [wire for wire in self._wires if wire.is_cut]
        for wire in broken:
            wire.reset()

    def reset(self) -> None:
        """Break all connections."""
        with self._mutex:
            broken, self._wires = self._wires, []
        for wire in broken:
            wire.reset()

    def switch_to(self, target: str) -> None:
        """Lead to another server from now on."""
        self.target = target
        self.reset()

    def keeps(self, server: socket.socket, heard: bytes) -> bool:
        """Whether this is the command that is to be late."""
        if not self.kept_back or self.kept_back not in heard:
            return False
        self.kept_back, self._kept = b"", (server, heard)
        return True

    def let_pass(self) -> None:
        """Pass on what was kept back."""
        assert self._kept is not None
        server, heard = self._kept
        server.sendall(heard)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset()


class _Wire:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy, self._client = proxy, client
        self._server = socket.socket(socket.AF_UNIX)
        self.said, self.is_cut, self._loses_answer = b"", False, False

    def start(self) -> None:
        threading.Thread(target=self._carry_there, daemon=True).start()

    def _carry_there(self) -> None:
        try:
            if not self.is_cut:
                self._server.connect(self._proxy.target)
                threading.Thread(target=self._carry_back, daemon=True).start()
            while heard := self._client.recv(65536):
                self.said = self.said[-65536:] + heard
                lost = self._proxy.lost_answer
                self._loses_answer = self._loses_answer or (lost != b"" and lost in heard)
                if self._proxy.keeps(self._server, heard):
                    return
                if not self.is_cut:
                    self._server.sendall(heard)
        except OSError:
            pass
        if not self.is_cut:
            self.reset()

    def _carry_back(self) -> None:
        try:
            while heard := self._server.recv(65536):
                if self._loses_answer:
                    self._proxy.lost_answer = b""
                    if self._proxy.is_cut_by_loss:
                        self._proxy.cut()
                        self.reset()
                    self._proxy.lost.set()
                    break
                time.sleep(self._proxy.delay_seconds)
                if not self.is_cut:
                    self._client.sendall(heard)
        except OSError:
            pass
        if not self.is_cut:
            self.reset()

    def reset(self) -> None:
        """Break it, at both ends."""
        with contextlib.suppress(OSError):
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        for each in (self._client, self._server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RD)  # wakes whoever reads from it
            each.close()

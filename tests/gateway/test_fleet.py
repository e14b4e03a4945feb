"""The gateway on a server that many machines share."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import httpx
import pytest
from tests.fleet.server import Server as Redis
from tests.gateway.kit import running
from tests.gateway.scripted import ASK, WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted

_CROWD = 300


@pytest.fixture
def redis() -> Iterator[Redis]:
    """A server that a test may harm."""
    redis = Redis()
    yield redis
    redis.close()


@pytest.fixture
def on_redis(
    home: Path, upstream: Scripted, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    """A gateway with its slots there."""
    monkeypatch.setenv("HEADWAY_STORE_LEASE_SECONDS", "1")
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "1s")
    with running(home, {"openai": upstream.url}, store=redis.url) as gateway:
        gateway.governor.set_limit("llm", 1)
        yield gateway


def test_requests_wait_for_each_other(on_redis: Running, upstream: Scripted) -> None:
    """And one who leaves the line is gone from it."""
    first, provider = upstream.asked(on_redis)
    second, third = on_redis.connect(), on_redis.connect()
    second.post("/openai/x", ASK)
    on_redis.until(lambda: on_redis.waiting() == 1, "the wait")
    third.post("/openai/x", ASK)
    on_redis.until(lambda: on_redis.waiting() == 2, "the other wait")
    second.close()
    on_redis.until(lambda: on_redis.waiting() == 1, "the end of a wait")
    provider.send(WHOLE)
    first.message()

    provider.message()
    provider.send(WHOLE)

    assert third.message()[0].startswith(b"HTTP/1.1 200 ")
    on_redis.until(lambda: on_redis.held() == 0, "the end")


def test_a_server_that_does_not_answer_keeps_nobody_waiting(
    on_redis: Running, upstream: Scripted, redis: Redis
) -> None:
    """However many ask: each hears of it in its time, and what needs no slot goes on."""
    client, provider = upstream.asked(on_redis)
    redis.send(signal.SIGSTOP)
    crowd = [on_redis.connect() for _ in range(_CROWD)]
    for each in crowd:
        each.post("/openai/x", ASK)

    assert httpx.get(f"{on_redis.url}/healthz").json()["headway"]["busy"] == _CROWD + 1
    provider.send(WHOLE)
    assert client.message()[1] == b"{}"
    for each in crowd:
        head, body = each.message()
        assert head.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nx-headway-error: headway_unavailable\r\n" in head
        assert b"\r\nretry-after: " in head
        assert b'"type": "headway_unavailable"' in body

    redis.send(signal.SIGCONT)
    on_redis.until(lambda: on_redis.held() == 0, "the end of the lease")
    crowd[0].post("/openai/x", ASK)
    provider.message()
    provider.send(WHOLE)
    assert crowd[0].message()[0].startswith(b"HTTP/1.1 200 ")

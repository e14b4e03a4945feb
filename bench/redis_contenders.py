"""Headway and its peers on one Redis server, each used as its own documentation shows."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.rate_limits.backends import RedisBackend
from self_limiters import Semaphore
from steindamm import SyncSemaphore

from bench.contenders import KEY, LIMITED_KEY, Contender
from bench.redis_server import LEASE_SECONDS
from headway import Governor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.contenders import Gate

MOST_WAITING = 1_000_000
# How long a peer remembers, which does not know who is alive: its own default.
USUAL_MEMORY_SECONDS = 60


class OnServer(Contender):
    """A limit that processes share through a server, under a name of its own there."""

    def __init__(
        self, directory: str, url: str, limit: int, memory_seconds: int = USUAL_MEMORY_SECONDS
    ) -> None:
        self._key = secrets.token_hex(4)
        super().__init__(os.path.join(directory, self._key), limit)
        self._url, self._memory_seconds = url, memory_seconds

    def _client(self) -> Any:
        # Some peers wait in a blocking read, for longer than the driver's usual patience.
        return redis.Redis.from_url(self._url, socket_timeout=None)


class Headway(OnServer):
    """The Redis store."""

    name = "headway"

    def __init__(
        self, directory: str, url: str, limit: int, memory_seconds: int = USUAL_MEMORY_SECONDS
    ) -> None:
        super().__init__(directory, url, limit, memory_seconds)
        with open(os.path.join(self.directory, "config.toml"), "w", encoding="utf-8") as file:
            file.write(
                f'[store]\nurl = "{url}"\nnamespace = "{self._key}"\n'
                f"lease_seconds = {LEASE_SECONDS}\n[queue]\nmax_waiting = {MOST_WAITING}\n"
            )
        # The first slot of a namespace has to wait: its earlier holders may come back.
        self.move_in()
        with Governor() as governor, governor.slot(KEY):
            pass

    def move_in(self) -> None:
        """Let this process have the settings of this home."""
        os.environ["HEADWAY_HOME"] = self.directory

    def gate(self) -> Gate:
        self.move_in()
        governor = Governor(limits={LIMITED_KEY: self.limit})
        return lambda: governor.slot(KEY)


class TwoScripts(OnServer):
    """The floor: two round trips to scripts that do nothing, through the ordinary client."""

    name = "two empty scripts"

    def gate(self) -> Gate:
        client = self._client()
        sha = client.script_load("")

        @contextmanager
        def passing() -> Iterator[None]:
            client.evalsha(sha, 0)
            yield
            client.evalsha(sha, 0)

        return passing


class Steindamm(OnServer):
    """A list with an item for each slot. What a dead process took is not put back."""

    name = "steindamm"

    def gate(self) -> Gate:
        semaphore = SyncSemaphore.create(
            self._key,
            capacity=self.limit,
            expiry=self._memory_seconds,
            max_sleep=0,
            connection=self._client(),
        )
        return lambda: semaphore


class SelfLimiters(OnServer):
    """The same, for coroutines only: each step runs on an event loop here."""

    name = "self-limiters"

    def gate(self) -> Gate:
        loop = asyncio.new_event_loop()
        semaphore = Semaphore(
            self._key, self.limit, expiry=self._memory_seconds, redis_url=self._url
        )

        async def enter() -> None:
            await semaphore.__aenter__()

        async def leave() -> None:
            await semaphore.__aexit__(None, None, None)

        @contextmanager
        def passing() -> Iterator[None]:
            loop.run_until_complete(enter())
            try:
                yield
            finally:
                loop.run_until_complete(leave())

        return passing


class RedisLock(OnServer):
    """One lock, no count; it goes when its time is over, whether or not its holder lives."""

    name = "redis-py Lock"
    poll_seconds = 0.1

    def gate(self) -> Gate:
        lock = self._client().lock(self._key, timeout=self._memory_seconds)
        return lambda: lock


class Dramatiq(OnServer):
    """One count. It does not wait; whoever wants to asks again."""

    name = "dramatiq"
    poll_seconds = 0.01

    def gate(self) -> Gate:
        backend = RedisBackend(client=self._client())
        limiter = ConcurrentRateLimiter(  # type: ignore[no-untyped-call]
            backend, self._key, limit=self.limit, ttl=self._memory_seconds * 1000
        )

        @contextmanager
        def passing() -> Iterator[None]:
            while True:
                with limiter.acquire(raise_on_failure=False) as acquired:
                    if acquired:
                        yield
                        return
                time.sleep(self.poll_seconds)

        return passing


PEERS = (Steindamm, SelfLimiters, RedisLock, Dramatiq)

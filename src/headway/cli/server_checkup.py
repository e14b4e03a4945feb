"""The examinations of the server that a home shares with other machines."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

from headway.cli import output
from headway.cli.diagnosis import Finding, processes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headway.config import Settings

_OLDEST = (6, 2)
_TRIES = 10
_SLOW_SECONDS = 0.05


def findings(settings: Settings) -> Iterator[Finding]:
    """What can be told without asking for a slot."""
    from headway.stores.redis import RedisStore  # noqa: PLC0415 - few have a server

    link = RedisStore.link(settings.store_url or "", settings)
    connection = link.connect()
    try:
        facts = connection.facts()
        yield _version(link.name, facts)
        yield _persistence(facts)
        yield _eviction(facts)
        yield _latency([connection.ping() for _ in range(_TRIES)])
        yield _clock(connection.time() - time.time())
    finally:
        connection.close()


def books(settings: Settings) -> tuple[list[str], Finding]:
    """The ids of all leases, and what is in use."""
    from headway.stores.redis import RedisStore  # noqa: PLC0415 - few have a server

    store = RedisStore(settings, RedisStore.link(settings.store_url or "", settings))
    try:
        census = store.census()
    finally:
        store.close()
    others = len(census.holders) - 1
    leases = output.count(len(census.leases), "lease")
    text = f"{leases}, {len(census.waiting)} waiting, {processes(others)} connected beside this one"
    return [lease.id for lease in census.leases], Finding("ok", "store", text)


def _version(name: str, facts: Mapping[str, str]) -> Finding:
    kind = "Valkey" if "valkey_version" in facts else "Redis"
    version = facts.get("valkey_version") or facts["redis_version"]
    mode = facts.get("redis_mode") or facts.get("server_mode", "of an unknown kind")
    text = f"{name} is {kind} {version}, {mode}"
    if kind == "Redis" and tuple(map(int, version.split(".")[:2])) < _OLDEST:
        return Finding("problem", "server", text, "use Redis 6.2 or newer, or Valkey")
    return Finding("ok", "server", text)


def _persistence(facts: Mapping[str, str]) -> Finding:
    if facts["aof_enabled"] == "1":
        return Finding("ok", "server", "what it knows is written down (appendonly)")
    return Finding(
        "ok",
        "server",
        "what it knows may be lost when it is started again: whoever holds something says so"
        " again, and nothing is granted for store.lease_seconds",
    )


def _eviction(facts: Mapping[str, str]) -> Finding:
    policy = facts["maxmemory_policy"]
    if policy == "noeviction":
        return Finding("ok", "server", "it throws nothing away when its memory is full")
    return Finding(
        "warning",
        "server",
        f"maxmemory-policy is {policy}: it may throw leases away when its memory is full",
        "config set maxmemory-policy noeviction",
    )


def _latency(taken: list[float]) -> Finding:
    median = statistics.median(taken)
    text = f"it answers in {median * 1000:.1f} ms, at most {max(taken) * 1000:.1f} ms"
    if median > _SLOW_SECONDS:
        return Finding(
            "warning", "server", f"{text}; every slot costs two of these", "use one nearer by"
        )
    return Finding("ok", "server", text)


def _clock(ahead: float) -> Finding:
    direction = "ahead of" if ahead >= 0 else "behind"
    return Finding(
        "ok", "server", f"its clock is {abs(ahead):.1f} s {direction} this machine's; it counts"
    )

"""The examinations of the server that a home shares with other machines."""

from __future__ import annotations

import re
import statistics
import time
from typing import TYPE_CHECKING

from headway.cli import deadlock_checkup, output
from headway.cli.diagnosis import Finding, processes, wrong_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from headway.config import Settings
    from headway.stores.base import Holder
    from headway.stores.redis_link import Connection

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
        yield _persistence(facts, connection)
        yield _eviction(facts, is_refused=settings.store_eviction == "refuse")
        yield _latency([connection.ping() for _ in range(_TRIES)])
        yield _clock(connection.time() - time.time())
    finally:
        connection.close()


def unreadable(settings: Settings) -> Finding | None:
    """A namespace whose data this Headway does not understand."""
    from headway.stores.redis import RedisStore  # noqa: PLC0415 - few have a server
    from headway.stores.redis_script import DATA_FORMAT  # noqa: PLC0415

    connection = RedisStore.link(settings.store_url or "", settings).connect()
    try:
        found = connection.data_format()
    finally:
        connection.close()
    if found is None or found <= DATA_FORMAT:
        return None
    return Finding(
        "problem",
        "store",
        f"the data of namespace {settings.namespace} was written by a newer Headway: its format is"
        f" {found}, this one knows {DATA_FORMAT}",
        "update Headway on this machine, or set another store.namespace",
    )


def books(settings: Settings) -> tuple[list[str], list[Finding]]:
    """The ids of all leases, what is in use, and what does not agree there."""
    from headway.stores.redis import RedisStore  # noqa: PLC0415 - few have a server
    from headway.stores.repair import miscounts  # noqa: PLC0415

    link = RedisStore.link(settings.store_url or "", settings, refuses_eviction=False)
    store = RedisStore(settings, link)
    try:
        census = store.census()
    finally:
        store.close()
    others = len(census.holders) - 1
    leases = output.count(len(census.leases), "lease")
    text = f"{leases}, {len(census.waiting)} waiting, {processes(others)} connected beside this one"
    found = [Finding("ok", "store", text)]
    found += wrong_counts(miscounts(census))
    found += _lease_seconds(census.holders.values())
    found += deadlock_checkup.findings(census)
    return [lease.id for lease in census.leases], found


def _lease_seconds(holders: Iterable[Holder]) -> Iterator[Finding]:
    """Whether all processes of the namespace have the same idea of how long silence may last."""
    having: dict[float, list[Holder]] = {}
    for holder in holders:
        if holder.lease_seconds is not None:
            having.setdefault(holder.lease_seconds, []).append(holder)
    if len(having) > 1:
        listed = ", ".join(
            f"{seconds:g} s for {processes(len(some))} (one is pid {some[0].pid} on {some[0].host})"
            for seconds, some in sorted(having.items())
        )
        yield Finding(
            "warning",
            "store",
            f"store.lease_seconds differs: {listed}",
            "set the same store.lease_seconds on all machines",
        )


def _version(name: str, facts: Mapping[str, str]) -> Finding:
    kind = "Valkey" if "valkey_version" in facts else "Redis"
    version = facts.get("valkey_version") or facts.get("redis_version", "of an unknown version")
    mode = facts.get("redis_mode") or facts.get("server_mode", "of an unknown kind")
    text = f"{name} is {kind} {version}, {mode}"
    number = re.match(r"(\d+)\.(\d+)", version)
    if kind == "Redis" and number and tuple(map(int, number.groups())) < _OLDEST:
        return Finding("problem", "server", text, "use Redis 6.2 or newer, or Valkey")
    return Finding("ok", "server", text)


def _persistence(facts: Mapping[str, str], connection: Connection) -> Finding:
    if "aof_enabled" not in facts:  # some hosted servers keep a part of INFO to themselves
        return Finding("ok", "server", "it does not say whether it writes down what it knows")
    if facts["aof_enabled"] == "1":
        return Finding("ok", "server", "what it knows is written down (appendonly)")
    snapshots = connection.setting(b"save")
    if snapshots == "":
        return Finding(
            "warning",
            "server",
            "it writes nothing to disk: when it is started again, limits that were set on it and"
            " that no live process knows are lost",
            "config set appendonly yes, and appendonly yes in its configuration file",
        )
    return Finding(
        "ok",
        "server",
        "what it knows may be lost when it is started again: whoever holds something says so"
        " again, and nothing is granted for store.lease_seconds",
    )


def _eviction(facts: Mapping[str, str], *, is_refused: bool) -> Finding:
    from headway.stores.redis_link import eviction  # noqa: PLC0415 - few have a server

    policy = facts.get("maxmemory_policy")
    if policy is None:
        return Finding(
            "ok", "server", "it does not say what it throws away when its memory is full"
        )
    if policy == "noeviction":
        return Finding("ok", "server", "it throws nothing away when its memory is full")
    text = f"maxmemory-policy is {policy}: it may throw leases away when its memory is full"
    if not eviction(facts):
        text += ", once it has a maxmemory"
    elif is_refused:
        return Finding(
            "problem",
            "server",
            f"{text}; such a server is refused",
            'config set maxmemory-policy noeviction, or store.eviction = "allow"',
        )
    return Finding("warning", "server", text, "config set maxmemory-policy noeviction")


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

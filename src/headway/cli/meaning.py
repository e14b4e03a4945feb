"""What a limit says, and what a changed one means right now, in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway import keys
from headway.cli import output, pacing
from headway.limits import UNLIMITED

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from headway.views import Capacity, LimitView, Snapshot

    # What is said of a key, part by part.
    Parts: TypeAlias = Mapping[str, int | str]


def in_words(parts: Parts, before: Parts | None = None, *, each: bool = False) -> str:
    """``4 slots (was 6), 60 requests a minute as before``, as far as it is mentioned."""

    def said(name: str, value: int | str) -> str:
        text = _part(name, value) + (" each" if each and isinstance(value, int) else "")
        if before is None or name not in before:
            return text
        return f"{text} as before" if before[name] == value else f"{text} (was {before[name]})"

    return ", ".join(said(name, value) for name, value in parts.items())


def _part(name: str, value: int | str) -> str:
    thing, unit = ("slot", "") if name == "slots" else ("request", " a minute")
    amount = output.count(value, thing) if isinstance(value, int) else f"{value} {thing}s"
    return f"{amount}{unit}"


def meaning(snapshot: Snapshot, capacity: Capacity, before: Parts) -> str:
    """``llm/anthropic: 4 slots (was 6), 5 in use: nothing is granted until 2 have ended``."""
    limit = next(limit for limit in snapshot.limits if limit.key == capacity.key)
    parts: dict[str, int | str] = {"slots": capacity.limit}
    if not UNLIMITED == before["requests_per_minute"] == limit.requests_per_minute:
        parts["requests_per_minute"] = limit.requests_per_minute
    return (
        f"{capacity.key}: {in_words(parts, before)}, {_use(capacity)}"
        + _requests(limit)
        + (f", {limit.waiting} waiting" if limit.waiting else "")
        + _closed(snapshot, capacity.key)
        + "".join(_tighter(snapshot, capacity.key, name, value) for name, value in parts.items())
    )


def _use(capacity: Capacity) -> str:
    used, limit = capacity.used, capacity.limit
    if isinstance(limit, str) or used < limit:
        return f"{used} in use"
    if used == limit:
        return "all in use"
    ends = used - limit + 1
    return f"{used} in use: nothing is granted until {ends} {'has' if ends == 1 else 'have'} ended"


def _requests(limit: LimitView) -> str:
    """How much of its budget a key has used, if it has one."""
    if not pacing.has_budget(limit):
        return ""
    next_request = pacing.next_request(limit)
    lately = output.count(limit.requests_lately, "request")
    return f", {lately} lately" + (f", the {next_request}" if next_request else "")


def _closed(snapshot: Snapshot, key: str) -> str:
    """A note where a limit does not matter, because nobody is let in at all."""
    lineage = _lineage(snapshot, key)
    for limit in lineage:
        if limit.paused:
            return f"; {limit.key} is paused, so nobody is let in"
    for limit in lineage:
        if pacing.is_cooling(limit):
            return f"; {limit.key} is {pacing.cooling(limit)}"
    return ""


def _tighter(snapshot: Snapshot, key: str, name: str, value: int | str) -> str:
    """A note where a key above has less, so that this limit is never reached."""
    above = [
        (amount, limit.key)
        for limit in _lineage(snapshot, key)
        for amount in (limit.limit if name == "slots" else limit.requests_per_minute,)
        if isinstance(amount, int) and limit.key != key
    ]
    if not above:
        return ""
    least, other = min(above)
    if isinstance(value, int) and value <= least:
        return ""
    amount = str(least) if name == "slots" else _part(name, least)
    return f"; but {other} above it has {amount}, which counts too"


def _lineage(snapshot: Snapshot, key: str) -> list[LimitView]:
    lineage = keys.lineage(key)
    return [limit for limit in snapshot.limits if limit.key in lineage]

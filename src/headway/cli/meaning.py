"""What a changed limit or a pause means right now, in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway import keys
from headway.cli import output
from headway.limits import UNLIMITED

if TYPE_CHECKING:
    from headway.views import Capacity, LimitView, Snapshot


def meaning(snapshot: Snapshot, capacity: Capacity, before: int | str | None) -> str:
    """``llm/anthropic: 4 slots (was 6), 5 in use: nothing is granted until 2 have ended``."""
    limit = capacity.limit
    was = " as before" if before == limit else f" (was {before})"
    return (
        f"{capacity.key}: {slots_in_words(limit)}{was}, {_use(capacity)}"
        + _waiting(snapshot, capacity.key)
        + _pauses(snapshot, capacity.key)
        + _tighter(snapshot, capacity)
    )


def slots_in_words(limit: int | str) -> str:
    """``1 slot``, ``4 slots``, ``unlimited``."""
    return UNLIMITED if isinstance(limit, str) else output.count(limit, "slot")


def _use(capacity: Capacity) -> str:
    used, limit = capacity.used, capacity.limit
    if isinstance(limit, str) or used < limit:
        return f"{used} in use"
    if used == limit:
        return "all in use"
    ends = used - limit + 1
    return f"{used} in use: nothing is granted until {ends} {'has' if ends == 1 else 'have'} ended"


def _waiting(snapshot: Snapshot, key: str) -> str:
    waiting = next((limit.waiting for limit in snapshot.limits if limit.key == key), 0)
    return f", {waiting} waiting" if waiting else ""


def _pauses(snapshot: Snapshot, key: str) -> str:
    """A note where a limit does not matter, because nobody is let in at all."""
    paused = [limit.key for limit in _lineage(snapshot, key) if limit.paused]
    return f"; {paused[0]} is paused, so nobody is let in" if paused else ""


def _tighter(snapshot: Snapshot, capacity: Capacity) -> str:
    """A note where a key above has fewer slots, so that this limit is never reached."""
    above = [
        (limit.limit, limit.key)
        for limit in _lineage(snapshot, capacity.key)
        if isinstance(limit.limit, int) and limit.key != capacity.key
    ]
    if not above:
        return ""
    least, key = min(above)
    if isinstance(capacity.limit, int) and capacity.limit <= least:
        return ""
    return f"; but {key} above it has {least}, which counts too"


def _lineage(snapshot: Snapshot, key: str) -> list[LimitView]:
    lineage = keys.lineage(key)
    return [limit for limit in snapshot.limits if limit.key in lineage]

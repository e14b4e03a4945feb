"""Cool-downs and budgets of requests, in words."""

from __future__ import annotations

import time

from headway.cli import output
from headway.limits import UNLIMITED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from headway.views import BlockedBy, LimitView


def find(limits: Iterable[LimitView], key: str) -> LimitView | None:
    """The row of a key."""
    return next((limit for limit in limits if limit.key == key), None)


def is_cooling(limit: LimitView) -> bool:
    """Whether the key is left alone, or was and nobody knows yet if that has helped."""
    return limit.cooling_until is not None or limit.probing


def has_budget(limit: LimitView) -> bool:
    """Whether requests are counted there."""
    return limit.requests_per_minute != UNLIMITED


def is_limited(limit: LimitView) -> bool:
    """Whether anything but a person's pause may keep people waiting there."""
    return limit.limit != UNLIMITED or has_budget(limit) or is_cooling(limit)


def cooling(limit: LimitView) -> str:
    """``cooling, 42 s left (429, retry-after 60 s)``; or that one request tries the key first."""
    reason = why_cooling(limit)
    return f"{how_long(limit)} ({reason})" if reason else how_long(limit)


def how_long(limit: LimitView) -> str:
    """The same without the reason."""
    if limit.cooling_until is None:
        return "cooled down, one request tries first"
    return f"cooling, {_left(limit.cooling_until)} left"


def why_cooling(limit: LimitView) -> str:
    """What the provider said, as far as somebody wrote it down."""
    return output.clean(limit.cooling_reason or "")


def use(limit: LimitView) -> str:
    """``37/60 a minute``."""
    return f"{limit.requests_lately}/{limit.requests_per_minute} a minute"


def next_request(limit: LimitView) -> str:
    """``next in 12 s``, if the budget is spent."""
    at = limit.next_request_at
    return "" if at is None else f"next in {_left(at)}"


def trouble(limit: LimitView | None, blocked: BlockedBy) -> str:
    """Why people wait at a key, with the end of that if time alone brings it."""
    if limit is not None and blocked.reason == "cooling" and is_cooling(limit):
        return cooling(limit)
    if limit is not None and blocked.reason == "budget":
        return ", ".join(filter(None, (blocked.in_words, next_request(limit), use(limit))))
    return blocked.in_words


def job_outlook(limit: LimitView | None, reason: str) -> str:
    """What a job waits for that only time brings; nothing if it is something else."""
    if limit is None:
        return ""
    if reason == "cooling" and is_cooling(limit):
        why = f": {why_cooling(limit)}" if limit.cooling_reason else ""
        if limit.cooling_until is None:
            return f"paused until one request was answered ({limit.key} has cooled down{why})"
        until = output.clock(limit.cooling_until)
        return f"paused until {until} ({limit.key} cools down{why})"
    if reason == "budget" and limit.next_request_at is not None:
        until = output.clock(limit.next_request_at)
        return f"until {until} at least ({limit.key} is out of requests: {use(limit)})"
    return ""


def _left(until: float) -> str:
    return output.length(max(0.0, until - time.time()))

"""What a refusal says about when to come back, and of whom it speaks.

Providers say it in many ways: ``Retry-After`` in seconds or as a date, the same in
milliseconds, and headers that tell for each of their limits what remains and when it is
whole again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headway.llm import moments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_TOO_MANY = 429
_UNAVAILABLE = 503
_OVERLOADED = 529
REFUSALS = (_TOO_MANY, _UNAVAILABLE, _OVERLOADED)

_MANY_SECONDS = 600

_IN_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")
_RESET = re.compile(r"(?:x-|anthropic-)?rate-?limit[\w-]*-reset(?:-[\w-]+)?")
# A subscription is refused as a whole, or in one of its windows: for all models or for one.
_UNIFIED = "anthropic-ratelimit-unified"
_WINDOW = re.compile(rf"{_UNIFIED}-[0-9]+[a-z](?P<model>_\w+)?-status")
_CLAIM_OF_A_MODEL = re.compile(r"[a-z]+_(?:hour|day|week)_\w+")


@dataclass(frozen=True, slots=True)
class Advice:
    """A refusal: for how long to leave whom alone."""

    seconds: float | None  # None: refused, but nobody said for how long
    whole_provider: bool  # and not only this model
    reason: str  # for people


def advice_of(status: int, headers: Mapping[str, str], now: float) -> Advice | None:
    """What an answer advises, if it is a refusal; ``now`` in seconds since 1970. Never raises.

    A 503 without any advice is none: one backend had a bad moment.
    """
    if status not in REFUSALS:
        return None
    told = {name.lower(): value.strip() for name, value in headers.items()}
    clock = moments.Clock(now, told.get("date"))
    refused = _refused_windows(told) if status == _TOO_MANY else {}
    named = (
        _retry_after(told, clock)
        or _longest(told, clock, refused)
        or _of_what_is_spent(told, clock)
        or (_shortest(told, clock) if status == _TOO_MANY else None)
    )
    whole = status == _OVERLOADED or any(refused.values())
    if named is not None:
        name, seconds = named
        return Advice(seconds, whole, f"{status}, {name} {_shown(seconds)}")
    if status == _UNAVAILABLE:
        return None
    return Advice(None, whole, f"{status}, without a time")


def _retry_after(told: Mapping[str, str], clock: moments.Clock) -> tuple[str, float] | None:
    for name in _IN_MILLISECONDS:
        seconds = moments.milliseconds(told.get(name, ""))
        if seconds is not None:
            return name, seconds
    seconds = moments.wait(told.get("retry-after", ""), clock)
    return None if seconds is None else ("retry-after", seconds)


def _refused_windows(told: Mapping[str, str]) -> dict[str, bool]:
    """The resets of a subscription that refuse, and whether each speaks of all models."""
    whole = f"{_UNIFIED}-reset"
    status = told.get(f"{_UNIFIED}-status", "")
    if _is_allowed(status) or not (status or whole in told):
        return {}
    windows = {
        f"{name.removesuffix('-status')}-reset": not window["model"]
        for name, window in ((name, _WINDOW.fullmatch(name)) for name in told)
        if window and told[name] and not _is_allowed(told[name])
    }
    claim = told.get(f"{_UNIFIED}-representative-claim", "")
    return windows or {whole: not _CLAIM_OF_A_MODEL.fullmatch(claim)}


def _is_allowed(status: str) -> bool:
    return status.lower().startswith("allowed")


def _longest(
    told: Mapping[str, str], clock: moments.Clock, names: Mapping[str, object]
) -> tuple[str, float] | None:
    """Of several limits that all refuse, the one that refuses for longest."""
    waits = [(name, moments.wait(told.get(name, ""), clock)) for name in names]
    known = [(name, seconds) for name, seconds in waits if seconds is not None]
    return max(known, key=lambda each: each[1], default=None)


def _of_what_is_spent(told: Mapping[str, str], clock: moments.Clock) -> tuple[str, float] | None:
    return _longest(told, clock, {name: left for name, left in _resets(told) if left == 0})


def _shortest(told: Mapping[str, str], clock: moments.Clock) -> tuple[str, float] | None:
    """Of limits none of which says that it refuses, the one that is whole again first."""
    names = [name for name, left in _resets(told) if left is None or left > 0]
    waits = [(name, moments.wait(told[name], clock)) for name in names]
    known = [(name, seconds) for name, seconds in waits if seconds is not None]
    ahead = [(name, seconds) for name, seconds in known if seconds > 0]
    return min(ahead or known, key=lambda each: each[1], default=None)


def _resets(told: Mapping[str, str]) -> Iterator[tuple[str, float | None]]:
    """The headers that say when a limit is whole again, each with what remains of it."""
    for name in told:
        if _RESET.fullmatch(name) and not name.startswith(_UNIFIED):
            yield name, _number(told.get(name.replace("reset", "remaining")))


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _shown(seconds: float) -> str:
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    return f"{round(seconds, 1):g} s" if seconds < _MANY_SECONDS else f"{round(seconds / 60)} min"

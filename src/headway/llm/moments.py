"""How long until what a header says: seconds, a duration, a date, or a number since 1970.

Every provider writes it in its own way, and some write nonsense; that reads as ``None``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

LONGEST_SECONDS = 7 * 86400.0

_NUMBER = re.compile(r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}")
_PART = r"([0-9]{1,15}(?:\.[0-9]{1,15})?)(ns|us|µs|ms|s|m|h|d)"
_PARTS = re.compile(_PART)
_DURATION = re.compile(rf"(?:{_PART})+")
_UNIT_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
# The date that HTTP prefers, one that it allows, and one that C prints.
_HTTP_DATES = re.compile(
    r"[A-Z][a-z]{2}, [0-9]{1,2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} (?:GMT|UTC|[+-][0-9]{4})"
    r"|[A-Z][a-z]{5,8}, [0-9]{2}-[A-Z][a-z]{2}-[0-9]{2} [0-9:]{8} GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-9]{2} [0-9:]{8} [0-9]{4}"
)
_LONGEST_TEXT = 200
# Nobody asks to be left alone for thirty years: such numbers are moments.
_FIRST_MOMENT = 1e9
_FIRST_MOMENT_IN_MS = 1e11
_NO_MOMENT = 1e14


class Clock:
    """The present as this machine has it, and as the server wrote it into its answer."""

    __slots__ = ("now", "server_now")

    def __init__(self, now: float, date: str | None) -> None:
        self.now = now
        self.server_now = http_date(date) if date else None

    def until(self, moment: float) -> float:
        """Seconds until then, by the server's clock if that makes sense: it is its moment."""
        if self.server_now is not None and moment - self.server_now <= LONGEST_SECONDS:
            return moment - self.server_now
        return moment - self.now


def wait(text: str, clock: Clock) -> float | None:
    """The longest wait that the text names, from 0 to the longest of all; ``None`` if none."""
    if len(text) > _LONGEST_TEXT:
        return None
    dates = _HTTP_DATES.findall(text)
    # The same header twice reaches us as one, with a comma between.
    read = [_one(part.strip(), clock) for part in dates or text.split(",")]
    waits = [each for each in read if each is not None]
    return max(0.0, min(max(waits), LONGEST_SECONDS)) if waits else None


def milliseconds(text: str) -> float | None:
    """The longest wait of a header that counts in thousandths of a second."""
    parts = [part.strip() for part in text[:_LONGEST_TEXT].split(",")]
    waits = [float(part) / 1000 for part in parts if _NUMBER.fullmatch(part)]
    sensible = [seconds for seconds in waits if seconds < _FIRST_MOMENT]
    return min(max(sensible), LONGEST_SECONDS) if sensible else None


def http_date(text: str) -> float | None:
    """The moment of a date as HTTP writes it, in seconds since 1970."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - seldom needed

    try:
        return _since_1970(parsedate_to_datetime(text))
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _one(text: str, clock: Clock) -> float | None:
    if _NUMBER.fullmatch(text):
        return _number(float(text), clock)
    if _DURATION.fullmatch(text):
        return sum(float(count) * _UNIT_SECONDS[unit] for count, unit in _PARTS.findall(text))
    moment = http_date(text) if _HTTP_DATES.fullmatch(text) else _iso_date(text)
    return None if moment is None else clock.until(moment)


def _number(number: float, clock: Clock) -> float | None:
    if number < _FIRST_MOMENT:
        return number
    if number < _FIRST_MOMENT_IN_MS:
        return clock.until(number)
    return clock.until(number / 1000) if number < _NO_MOMENT else None


def _iso_date(text: str) -> float | None:
    try:
        return _since_1970(datetime.fromisoformat(text)) if "T" in text or ":" in text else None
    except (ValueError, OverflowError):
        return None


def _since_1970(moment: datetime) -> float:
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

"""Durations as people write them: ``90``, ``1.5``, ``"250ms"``, ``"10m"``, ``"1h30m"``."""

from __future__ import annotations

from headway.errors import ConfigError

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_SECONDS = 10 * 365 * 86400.0


def seconds(value: object, *, name: str) -> float:
    """The duration in seconds; anything unclear is a ``ConfigError`` that names it."""
    total = _parse(value)
    if total is None or not 0 <= total <= _LONGEST_SECONDS:
        raise ConfigError(
            f"{name} must be a duration, got {value!r}; write seconds (90) or"
            ' a number with a unit ("250ms", "30s", "10m", "1h30m", "2d")'
        )
    return total


def positive_seconds(value: object, *, name: str) -> float:
    """The same, of something that cannot take no time at all."""
    total = seconds(value, name=name)
    if total <= 0:
        raise ConfigError(f"{name} must be longer than nothing, got {value!r}")
    return total


def from_text(text: str, *, name: str) -> float:
    """The same of a word on a command line, where a bare number is text as well."""
    is_number = text.replace(".", "", 1).isdecimal()
    return seconds(float(text) if is_number else text, name=name)


def _parse(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if -1 <= value <= _LONGEST_SECONDS else None
    if not isinstance(value, str):
        return None
    total, number, unit = 0.0, "", ""
    for char in value + "0":
        if char in "0123456789.":
            if unit:
                part = _part(number, unit)
                if part is None:
                    return None
                total, number, unit = total + part, "", ""
            number += char
        else:
            unit += char
    # The "0" added above closes the last part and is all that may be left.
    return total if number == "0" and value else None


def _part(number: str, unit: str) -> float | None:
    try:
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        return None


def in_words(length_seconds: float) -> str:
    """For people, roughly: ``45 seconds``, ``9 minutes``, ``2 hours``."""
    for unit, length in (("hour", 3600.0), ("minute", 60.0)):
        count = round(length_seconds / length)
        if length_seconds >= 1.5 * length:
            return f"{count} {unit}s"
    count = round(length_seconds)
    return f"{count} second{'s' if count != 1 else ''}"

"""Sizes as people write them: ``4096``, ``"512KB"``, ``"10MB"``, ``"1.5GB"``."""

from __future__ import annotations

from headway.errors import ConfigError

_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "B": 1}
_LARGEST = 10**15
_KILO = 1000
# More digits than any size has that is good.
_LONGEST = 30


def size(value: object, *, name: str) -> int:
    """The size in bytes; anything unclear is a ``ConfigError`` that names it."""
    total = _parse(value)
    if total is None or not 1 <= total <= _LARGEST:
        raise ConfigError(
            f"{name} must be a size, got {value!r}; write bytes (4096) or"
            ' a number with a unit ("512KB", "10MB", "1.5GB")'
        )
    return total


def shown(number: int) -> str:
    """A size in the largest unit that leaves it short: ``10MB``, ``1.5GB``."""
    for unit in ("TB", "GB", "MB", "KB"):
        # Three digits: from half of the last one on it is one of the next unit.
        if number >= 0.9995 * _UNITS[unit] and number >= _KILO:
            text = f"{number / _UNITS[unit]:.3g}"
            return f"{float(text):g}{unit}"
    return f"{number}B"


def _parse(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if not isinstance(value, str):
        return None
    unit = next((unit for unit in _UNITS if value.endswith(unit)), None)
    number = value.removesuffix(unit).strip() if unit else ""
    if not number.replace(".", "", 1).isdecimal() or not number.isascii():
        return None
    if len(number) > _LONGEST:
        return None
    return int(float(number) * _UNITS[unit]) if unit else None

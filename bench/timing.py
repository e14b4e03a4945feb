"""Measuring fairly: everyone in each round, in turn, and the median of the rounds."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def rounds(
    contenders: Mapping[str, Callable[[], float]], *, seconds: float, least: int = 5
) -> dict[str, list[float]]:
    """Measure each of them once per round, for about this long.

    The first round warms up and does not count. Who comes first changes with
    every round, so that nobody always follows the same neighbour.
    """
    names, seen = list(contenders), {name: list[float]() for name in contenders}
    for name in names:
        contenders[name]()
    ends_at, done = time.monotonic() + seconds, 0
    while done < least or time.monotonic() < ends_at:
        first = done % len(names)
        for name in names[first:] + names[:first]:
            seen[name].append(contenders[name]())
        done += 1
    return seen


def medians(seen: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(values) for name, values in seen.items()}


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent of all stay below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]

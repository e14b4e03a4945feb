"""Stand-in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Advice:
    """What an answer says."""

    seconds: float | None
    whole_provider: bool
    reason: str


def advice_of(status: int, headers: Mapping[str, str], now: float) -> Advice | None:
    """What an answer says."""
    del now
    if status not in (429, 503, 529):
        return None
    seconds = headers.get("retry-after")
    return Advice(float(seconds) if seconds else None, status != 429, f"answered {status}")

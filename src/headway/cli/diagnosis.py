"""What an examination of a home can find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headway.stores.repair import Correction

_NAMED = 5

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at, and how it is."""

    level: Level
    about: str
    text: str
    fix: str = ""


def processes(number: int) -> str:
    """``1 process``, ``2 processes``."""
    return f"{number} process" if number == 1 else f"{number} processes"


def wrong_counts(corrections: Sequence[Correction]) -> Iterator[Finding]:
    """Counts of keys that no tickets stand for: a slot that nobody has, or one held by two."""
    if corrections:
        told = "; ".join(map(str, corrections[:_NAMED]))
        more = f"; and {len(corrections) - _NAMED} more" if len(corrections) > _NAMED else ""
        text = f"counts do not agree with leases and waiting tickets: {told}{more}"
        yield Finding("problem", "store", text, "headway doctor --repair")

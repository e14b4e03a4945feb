"""What an examination of a home can find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

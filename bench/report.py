"""What a figure says, and how it is shown: a table for people, JSON for programs."""

from __future__ import annotations

import os
import platform
import sqlite3
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# A number, or why there is none: "never", "not installed".
Value: TypeAlias = float | str

PEERS = (
    "anyio",
    "dramatiq",
    "fasteners",
    "filelock",
    "huey",
    "portalocker",
    "redis",
    "self-limiters",
    "steindamm",
)


@dataclass(frozen=True, slots=True)
class Aim:
    """What a row should reach: at most, or at least, so many, or so many times a peer."""

    bound: float
    against: str | None = None
    at_least: bool = False

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        if self.against is None:
            return f"{sign} {number(self.bound)}"
        factor = "" if self.bound == 1 else f"{number(self.bound)} x "
        return f"{sign} {factor}{self.against}"


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity, measured on Headway and on its peers in the same run."""

    what: str
    unit: str
    headway: Value
    peers: Mapping[str, Value] = field(default_factory=dict)
    aim: Aim | None = None

    @property
    def compared_with(self) -> tuple[str, float] | None:
        """The peer that the ratio is about: the aim's, else the first with a number."""
        names = [self.aim.against] if self.aim and self.aim.against else list(self.peers)
        for name in names:
            value = self.peers.get(name)
            if isinstance(value, int | float) and value:
                return name, value
        return None

    @property
    def ratio(self) -> float | None:
        """Headway's number over the peer's."""
        if self.compared_with is None or isinstance(self.headway, str):
            return None
        return self.headway / self.compared_with[1]

    @property
    def met(self) -> bool | None:
        """Whether the aim was reached; nothing where there is no aim or no number."""
        if self.aim is None or isinstance(self.headway, str):
            return None
        reached = self.headway if self.aim.against is None else self.ratio
        if reached is None:
            return None
        return reached >= self.aim.bound if self.aim.at_least else reached <= self.aim.bound


@dataclass(frozen=True, slots=True)
class Result:
    """All rows of one figure."""

    name: str
    title: str
    seconds: float
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def table(self) -> str:
        """The rows below each other; one column for each peer that any of them has."""
        peers = list(dict.fromkeys(name for row in self.rows for name in row.peers))
        cells = [["", "headway", *peers, "ratio", "aim", ""]]
        cells += [
            [
                f"{row.what}, {row.unit}" if row.unit else row.what,
                number(row.headway),
                *(number(row.peers[peer]) if peer in row.peers else "" for peer in peers),
                _ratio(row),
                "" if row.aim is None else str(row.aim),
                {True: "met", False: "NOT MET", None: ""}[row.met],
            ]
            for row in self.rows
        ]
        head = f"{self.name}: {self.title}"
        return "\n".join([head, *_aligned(cells), *(f"  ({note})" for note in self.notes)])

    def as_json(self) -> dict[str, object]:
        """The same as plain values."""
        return {
            "name": self.name,
            "title": self.title,
            "seconds": round(self.seconds, 1),
            "rows": [
                {
                    "what": row.what,
                    "unit": row.unit,
                    "headway": row.headway,
                    "peers": dict(row.peers),
                    "compared_with": row.compared_with[0] if row.compared_with else None,
                    "ratio": row.ratio,
                    "aim": str(row.aim) if row.aim else None,
                    "met": row.met,
                }
                for row in self.rows
            ],
            "notes": list(self.notes),
        }


def summary(results: Sequence[Result]) -> str:
    """How many aims were met, and which were not."""
    aimed = [(result, row) for result in results for row in result.rows if row.met is not None]
    missed = [
        f"  {result.name}: {row.what} {number(row.headway)} {row.unit}, aim {row.aim}"
        + (f", is {_ratio(row)}" if row.aim and row.aim.against else "")
        for result, row in aimed
        if not row.met
    ]
    seconds = sum(result.seconds for result in results)
    lines = [f"Measured in {seconds:.0f} s."]
    if aimed:
        lines.append(f"{len(aimed) - len(missed)} of {len(aimed)} aims met.")
    if missed:
        lines += ["Not met:", *missed]
    return "\n".join(lines)


def machine() -> dict[str, object]:
    """Where this ran; figures of different machines say nothing about each other."""
    return {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processors": os.cpu_count(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "peers": {name: _version(name) for name in PEERS},
    }


def warning() -> str | None:
    """What to think of these figures, if the machine has other things to do."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load < processors / 4:
        return None
    return (
        f"This machine is busy (load {load:.1f} on {processors} processors): trust ratios to peers"
        " that work the same way, not times."
    )


def number(value: Value) -> str:
    """Three digits that count, with thousands set apart."""
    if isinstance(value, str):
        return value
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = 2 if abs(value) < 10 else 1
    return f"{value:.{digits}f}" if abs(value) >= 0.1 else f"{value:.2g}"


def _ratio(row: Row) -> str:
    if row.ratio is None or row.compared_with is None:
        return ""
    return f"{row.ratio:.2f} x {row.compared_with[0]}"


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    words = {0, len(widths) - 1, len(widths) - 2, len(widths) - 3}  # the rest are numbers
    lines = []
    for row in cells:
        padded = [
            cell.ljust(width) if column in words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(padded).rstrip())
    return lines


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"

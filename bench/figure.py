"""A figure: a name, a title, and the function that measures it."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bench.report import Result, Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to measure: enough to trust, or enough to see that it works."""

    quick: bool

    def pick(self, full: T, quick: T) -> T:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Findings:
    """What a figure found."""

    rows: Sequence[Row]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """Something about Headway that can be measured."""

    name: str
    title: str
    measure: Callable[[Effort, str], Findings]

    def run(self, effort: Effort) -> Result:
        """Measure in a directory that is gone afterwards."""
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="headway-bench-") as directory:
            findings = self.measure(effort, directory)
        seconds = time.monotonic() - started
        return Result(self.name, self.title, seconds, findings.rows, findings.notes)

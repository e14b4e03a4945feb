"""Processes of callers that share the test's home, and what can be seen of them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tests.cli.kit import until
from tests.slots.support import is_clean

if TYPE_CHECKING:
    from headway import Governor

PATIENCE_SECONDS = 100.0

Start: TypeAlias = Callable[..., subprocess.Popen[str]]


def texts(process: subprocess.Popen[str]) -> dict[str, str]:
    """What each caller of the process got, when all are done."""
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    lines = [json.loads(line) for line in out.splitlines()]
    return {line["name"]: line["text"] for line in lines}


def names(process: int, count: int) -> list[str]:
    """The callers of one process."""
    return [f"p{process}c{caller}" for caller in range(count)]


def tasks_in_line(governor: Governor) -> list[str]:
    """Who waits, first in line first."""
    return [str(row.task) for row in governor.snapshot().waiting]


def until_in_line(governor: Governor, count: int) -> None:
    """Wait until so many stand in line."""
    until(lambda: len(governor.snapshot().waiting) == count, "waiting in line")


def until_nothing_is_held(governor: Governor) -> None:
    """Wait until everything was given back."""
    until(lambda: is_clean(governor), "giving back")

"""The recordings of real agents are complete, readable and tell nothing of a machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.real.cases import CASES

_AGENTS = Path(__file__).parent.parent / "data" / "agents"
_PRIVATE = re.compile(r"/tmp/|/root|/home/(?!user\b)|\b1[6-9]\d{11}\b(?<!1700000000000)")


@pytest.mark.parametrize("agent", ["opencode", "claude", "codex", "gemini"])
def test_every_case_was_recorded(agent: str) -> None:
    """Each case has its output, as JSON lines, and its end."""
    directory = _AGENTS / agent
    known = json.loads((directory / "cases.json").read_text())

    assert sorted(known) == sorted(case.name for case in CASES)
    for case in CASES:
        if case.asks_for_help:
            assert "--help" in (directory / f"{case.name}.txt").read_text()
            continue
        for line in (directory / f"{case.name}.jsonl").read_text().splitlines():
            assert json.loads(line)["type"]


def test_recordings_are_of_no_machine() -> None:
    """Neither paths nor moments of the machine that recorded them are told."""
    for path in _AGENTS.rglob("*.*"):
        found = _PRIVATE.findall(path.read_text().replace("/home/user/tmp/", ""))
        assert not found, f"{path}: {found}"

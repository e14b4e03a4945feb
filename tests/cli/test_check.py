"""``headway check``: backpressure for scripts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.kit import Shell


def test_a_free_slot_is_code_0(shell: Shell) -> None:
    """There is room: one line, and the shell goes on."""
    seen = shell.run("check", "agent/opencode")

    assert seen.returncode == 0
    assert seen.stdout == "agent/opencode: 3 slots free, 0 in use\n"


def test_a_key_without_any_limit_is_free(shell: Shell) -> None:
    """No limit here or above means always free."""
    seen = shell.run("check", "tools/browser")

    assert seen.returncode == 0
    assert seen.stdout == "tools/browser: free, no limit here or above, 0 in use\n"


def test_a_full_ancestor_is_code_75(shell: Shell) -> None:
    """The line says which key is full, how full, and how many wait."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent/claude")
    shell.waiting("agent/claude")

    seen = shell.run("check", "agent/opencode")

    assert seen.returncode == 75
    assert seen.stdout == "agent/opencode: no slot now: agent is full, 1/1 in use, 1 waiting\n"


def test_a_pause_is_code_75(shell: Shell) -> None:
    """A paused key admits nobody, however free it is."""
    shell.run("pause", "agent")

    seen = shell.run("check", "agent")

    assert seen.returncode == 75
    assert seen.stdout == "agent: no slot now: paused, 0/3 in use, 0 waiting\n"


def test_json_comes_with_the_same_code(shell: Shell) -> None:
    """Planners read numbers and may still look at the code."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent")

    seen = shell.run("check", "agent/opencode", "--json")

    assert seen.returncode == 75
    assert json.loads(seen.stdout) == {
        "key": "agent/opencode",
        "limit": "unlimited",
        "used": 0,
        "free": 0,
        "waiting": 0,
        "estimated_wait_seconds": None,
        "blocked_by": {"key": "agent", "reason": "full"},
        "pressure": "full",
    }


@pytest.mark.parametrize("key", ["a//b", "", "llm/*", " a", "a\tb"])
def test_a_bad_key_is_bad_usage(shell: Shell, key: str) -> None:
    """What is no key is refused with the reason and a hint."""
    seen = shell.run("check", key)

    assert seen.returncode == 64
    assert "Invalid value for 'KEY'" in seen.stderr
    assert "Try 'headway check --help'" in seen.stderr
    assert not seen.stdout


def test_nothing_is_taken_and_nothing_queued(shell: Shell) -> None:
    """After a check the home is as before."""
    shell.run("check", "agent")

    assert shell.status()["leases"] == shell.status()["waiting"] == []


@pytest.mark.parametrize("words", [["check", "agent"], ["status", "--json"], ["pause", "agent"]])
def test_what_draws_no_table_does_not_load_rich(shell: Shell, words: list[str]) -> None:
    """Scripts call these often; they start without what only tables need."""
    loaded = shell.run(*words, env={"PYTHONPROFILEIMPORTTIME": "1"}).stderr

    assert "headway.governor" in loaded
    assert "rich" not in loaded

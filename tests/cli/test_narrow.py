"""Screens in windows of 80 and of 40 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.kit import Shell, Terminal


def lines(terminal: Terminal) -> list[str]:
    """What a command has printed on a terminal."""
    assert terminal.wait() == 0
    return [line.rstrip("\r") for line in terminal.text.splitlines()]


@pytest.mark.parametrize("columns", [40, 80])
def test_top_shows_what_matters_in_every_window(shell: Shell, columns: int) -> None:
    """Task, key, use and command can be read, and the command begins with its program."""
    shell.run("limits", "set", "agent", "1")
    shell.start("run", "--task", "issue-16", "--", "sleep", "60")
    until(shell.holds(1))
    shell.waiting("agent", task="issue-17")

    seen = shell.run("top", env={"COLUMNS": str(columns)}).stdout.splitlines()

    assert max(len(line) for line in seen) <= columns
    running = next(line for line in seen if line.startswith("issue-16"))
    assert running.endswith(" sleep 60")
    assert "headway run" not in running
    assert any(line.startswith("agent  ") and "1/1  1 waiting" in line for line in seen)
    assert any(" 1  issue-17" in line and "agent is full" in line for line in seen)


def test_the_last_line_of_jobs_fits(shell: Shell) -> None:
    """A long key gives way to the advice."""
    key = "agent/opencode/anthropic/claude-opus-4-20250514"
    shell.run("limits", "set", key, "1")
    shell.run("run", "--on", key, "--", "true")  # so that there is an estimate
    shell.holding(key)
    shell.run("submit", "--no-start", "--on", key, "--", "true")

    seen = [line for line in lines(shell.terminal("jobs")) if "free, " in line]

    assert len(seen) == 2
    assert max(map(len, seen)) <= 80
    assert seen[1].startswith("…/claude")
    assert seen[1].endswith(": full, stop delegating")
    assert any(line.startswith(f"{key}: 0 free") for line in shell.run("jobs").stdout.splitlines())


def test_the_settings_fit_and_name_their_file_briefly(shell: Shell) -> None:
    """The directory stands in the first row."""
    shell.run("limits", "set", "llm/anthropic", "4")

    seen = lines(shell.terminal("config", "show", rows=80))

    assert max(map(len, seen)) <= 80
    assert seen[-1].split() == ['limits."llm/anthropic"', "4", "config.toml"]


def test_the_demo_fits(shell: Shell, tmp_path: Path) -> None:
    """From its second half to the last line; commands can be copied whole."""
    directory = tmp_path / "tmp"
    directory.mkdir()

    seen = lines(shell.terminal("demo", "--fast", env={"TMPDIR": str(directory)}))

    start = next(place for place, line in enumerate(seen) if "Now without waiting" in line)
    assert max(map(len, seen[start:])) <= 80
    assert any(line.startswith("$ headway submit ") for line in seen[start:])

"""Help texts, and what happens to a command line that is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from headway.cli.app import COMMANDS, GROUPS

if TYPE_CHECKING:
    from tests.cli.kit import Shell

INNER = [
    "limits set",
    "limits unset",
    "limits reload",
    "config check",
    "config show",
    "config path",
]


@pytest.mark.parametrize("command", [*COMMANDS, *INNER])
def test_every_command_has_help_with_an_example(shell: Shell, command: str) -> None:
    """One can learn each command from itself, in lines that fit, without touching the home."""
    seen = shell.run(*command.split(), "--help")

    assert seen.returncode == 0
    assert seen.stdout.startswith(f"Usage: headway {command}")
    example = seen.stdout.partition("Example:\n")[2]
    assert "headway" in example.splitlines()[0]
    assert max(len(line) for line in seen.stdout.splitlines()) <= 80
    assert not shell.home.exists()


def test_the_first_help_names_every_command_in_a_whole_sentence(shell: Shell) -> None:
    """The list is complete, and no description is cut."""
    seen = shell.run("--help")

    assert seen.returncode == 0
    groups = seen.stdout.partition("\nRun:\n")[2].partition("\n\n  Docs: ")[0].splitlines()
    listed = [line for line in groups if line.startswith("  ")]
    assert [line.split()[0] for line in listed] == list(COMMANDS)
    assert not [line for line in listed if line.endswith("...")]
    assert len({len(line) - len(line[14:].lstrip()) for line in listed}) == 1
    assert [line for line in groups if line and line not in listed] == [
        f"{group}:" for group in list(GROUPS)[1:]
    ]


def test_the_short_option_does_the_same(shell: Shell) -> None:
    """``-h`` is help, as everywhere."""
    assert shell.run("status", "-h").stdout == shell.run("status", "--help").stdout


def test_the_version_is_told(shell: Shell) -> None:
    """A bug report can begin with it."""
    assert shell.run("--version").stdout.split()[0] == "headway"


@pytest.mark.parametrize(
    "words", [["statsu"], ["status", "--jsn"], ["limits", "put"], ["why"], ["limits", "set", "a"]]
)
def test_a_wrong_command_line_is_code_64_with_a_hint(shell: Shell, words: list[str]) -> None:
    """One learns what is wrong and where help is."""
    seen = shell.run(*words)

    assert seen.returncode == 64
    assert "--help' for help." in seen.stderr
    assert "Error: " in seen.stderr
    assert not seen.stdout


def test_the_package_can_be_run_as_a_module(shell: Shell) -> None:
    """``python -m headway`` is the same program."""
    done = subprocess.run(
        [sys.executable, "-m", "headway", "check", "agent"],
        env=shell.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == shell.run("check", "agent").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["x" * 90_000],
        ["show", "x" * 90_000],
        ["run", "--weight", "x" * 90_000, "--", "true"],
        ["run", "--task", "x" * 90_000, "--", "true"],
        ["run", "--on", "x" * 90_000, "--", "true"],
        ["run", "--", "x" * 90_000],
        ["limits", "set", "k", "x" * 90_000],
    ],
    ids=["command", "job", "weight", "task", "key", "program", "limit"],
)
def test_a_very_long_word_is_not_repeated_whole(shell: Shell, words: list[str]) -> None:
    """A mistake is told in a few lines, however much was pasted."""
    seen = shell.run(*words)
    assert seen.returncode != 0
    assert 0 < len(seen.stderr) < 2500

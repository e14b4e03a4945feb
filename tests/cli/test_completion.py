"""Shell completion, tried in the shells themselves."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import PROGRAM

from headway import Governor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cli.kit import Shell

_BASH = """
eval "$(headway completion bash)" || exit
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_headway_completion headway
printf '%s\\n' "${COMPREPLY[@]}"
"""


def in_bash(shell: Shell, *words: str, env: Mapping[str, str] | None = None) -> list[str]:
    """What bash offers for the last word; anything on stderr is a failure."""
    done = subprocess.run(
        ["bash", "--norc", "-c", _BASH, "bash", "headway", *words],
        env={**shell.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_a_script_is_printed_for_each_shell(shell: Shell, name: str) -> None:
    """The script asks headway itself."""
    seen = shell.run("completion", name)

    assert seen.returncode == 0
    assert f"_HEADWAY_COMPLETE={name}_complete" in seen.stdout


def test_another_shell_is_bad_usage(shell: Shell) -> None:
    """Those that are known are named."""
    seen = shell.run("completion", "tcsh")

    assert seen.returncode == 64
    assert "'bash', 'zsh', 'fish'" in seen.stderr


def test_commands_are_completed(shell: Shell) -> None:
    """The beginning of a command, and of one within another."""
    assert in_bash(shell, "sta") == ["status"]
    assert in_bash(shell, "limits", "un") == ["unset"]
    assert in_bash(shell, "status", "--j") == ["--json"]


def test_keys_in_use_and_with_limits_are_completed(shell: Shell) -> None:
    """Also for ``run``, which is parsed by hand otherwise."""
    shell.run("limits", "set", "llm/*", "8")
    shell.run("limits", "set", "llm/openai", "2")
    shell.holding("agent/opencode")

    assert in_bash(shell, "check", "agent/") == ["agent/opencode"]
    assert in_bash(shell, "run", "--on", "agent/") == ["agent/opencode"]
    assert in_bash(shell, "status", "l") == ["llm/openai"]
    assert in_bash(shell, "limits", "unset", "l") == ["llm/*", "llm/openai"]


def test_tasks_and_ids_are_completed(shell: Shell) -> None:
    """Waiting ones for cancel, running ones for release, all for why."""
    shell.run("limits", "set", "agent", "1")
    lease = shell.holding("agent", task="runs")
    ticket = shell.waiting("agent", task="waits")

    assert in_bash(shell, "cancel", "w") == ["waits"]
    assert in_bash(shell, "cancel", ticket[:5]) == [ticket]
    assert in_bash(shell, "release", "") == sorted([lease, "runs"])
    assert in_bash(shell, "why", "") == sorted([lease, "runs", ticket, "waits"])
    assert in_bash(shell, "run", "--task", "r") == ["runs"]


def test_closed_keys_are_offered_for_resume(shell: Shell) -> None:
    """Only what is paused or cools down can be resumed."""
    shell.run("pause", "llm/openai")
    shell.run("limits", "set", "llm/anthropic", "4")
    with Governor(f"sqlite:///{shell.home}") as governor:
        governor.cool_down("llm/google", 300)

    assert in_bash(shell, "resume", "") == ["llm/google", "llm/openai"]


def test_limits_are_offered_with_what_they_say(shell: Shell) -> None:
    """For shells that show a word beside each offer."""
    shell.run("limits", "set", "llm/openai", "4", "--requests-per-minute", "60")
    asked = {"COMP_WORDS": "headway limits unset l", "COMP_CWORD": "l"}

    offered = shell.run(env={**asked, "_HEADWAY_COMPLETE": "fish_complete"}).stdout

    assert offered == "plain,llm/openai\t4 slots, 60 requests a minute\n"


def test_a_missing_home_is_not_made(shell: Shell) -> None:
    """Pressing a key changes nothing on disk."""
    assert in_bash(shell, "check", "ag") == ["agent"]
    assert not shell.home.exists()


def test_a_bad_home_offers_nothing_and_says_nothing(shell: Shell) -> None:
    """A file for a home, or bad settings in it: silence."""
    shell.home.write_text("")
    assert in_bash(shell, "why", "") == []
    shell.home.unlink()
    shell.home.mkdir()
    (shell.home / "config.toml").write_text("[limits]\nagent = 0\n")

    assert in_bash(shell, "why", "") == []
    assert in_bash(shell, "limits", "unset", "") == []


def test_a_warning_does_not_reach_the_line_being_typed(shell: Shell) -> None:
    """What a command would say on stderr is kept back while a person types."""
    shell.run("limits", "set", "llm/openai", "2")

    offered = in_bash(shell, "limits", "unset", "", env={"HEADWAY_LIMITS": "llm/openai=9"})

    assert offered == ["llm/openai"]


def test_a_busy_home_is_not_waited_for(shell: Shell) -> None:
    """With someone sitting on the store there is nothing to offer, without complaint."""
    shell.run("limits", "set", "llm/openai", "2")
    with open(shell.home / "slots.lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        offered = in_bash(shell, "limits", "unset", "", env={"HEADWAY_STORE_TIMEOUT": "1h"})

    assert offered == []
    assert in_bash(shell, "limits", "unset", "") == ["llm/openai"]


def test_the_tab_key_works_in_an_interactive_bash(shell: Shell) -> None:
    """As a person does it: load the script, type a beginning, press Tab."""
    shell.run("limits", "set", "llm/openai", "2")
    terminal = shell.terminal_for("bash", "--norc", "-i", env={"PS1": "ready> "}, columns=120)
    terminal.wait_for("ready> ")
    terminal.press('eval "$(headway completion bash)"; echo lo"ad"ed\n')
    terminal.wait_for("loaded")

    terminal.press("headway check llm/o\t\n")

    terminal.wait_for("llm/openai: 2 slots free")
    terminal.press("exit\n")
    terminal.wait()


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_takes_the_script(shell: Shell) -> None:
    """The script loads without a word."""
    script = 'autoload -U compinit; compinit -u -D; eval "$(headway completion zsh)"'
    done = subprocess.run(
        ["zsh", "-f", "-c", script],
        env=shell.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert not done.stderr


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(shell: Shell) -> None:
    """Fish can be asked for what it would offer."""
    script = f"{PROGRAM} completion fish | source; complete -C 'headway sta'"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        env=shell.environ,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout.split()[0] == "status"

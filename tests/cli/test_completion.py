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
_headway headway
printf '%s\\n' "${COMPREPLY[@]}"
"""


def in_bash(
    shell: Shell, *words: str, env: Mapping[str, str] | None = None, before: str = ""
) -> list[str]:
    """What bash offers for the last word; anything on stderr is a failure."""
    done = subprocess.run(
        ["bash", "--norc", "-c", before + _BASH, "bash", "headway", *words],
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


def test_a_key_that_is_neither_configured_nor_in_use_is_forgotten(shell: Shell) -> None:
    """What was misspelled once is not offered for ever."""
    shell.run("limits", "set", "llm/*", "8")
    shell.run("limits", "set", "llm/openai", "2")
    shell.run("run", "--on", "llm/opnai", "--on", "agent/opencod", "--", "true")
    shell.run("pause", "llm/google")
    shell.holding("agent/opencode")

    assert in_bash(shell, "check", "") == ["agent", "agent/opencode", "llm/google", "llm/openai"]


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--"],
        ["run"],
        ["run", "--on", "llm/x", "--no-wait"],
        ["run", "--task", "=", "a", ":", "b", "--"],
        ["submit", "--after", "16", "--"],
    ],
)
def test_the_command_is_completed_by_its_own_completion(shell: Shell, words: list[str]) -> None:
    """It sees its own words alone, as if headway did not stand before them."""
    script = """
    _tool() { COMPREPLY=("$COMP_CWORD" "${COMP_WORDS[@]}" "$@" "$COMP_LINE" "$COMP_POINT"); }
    complete -F _tool tool
    COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
    """

    offered = in_bash(shell, *words, "/opt/tool", "--", "run", "be", before=script)

    own = ["/opt/tool", "--", "run", "be"]
    assert offered == ["3", *own, "/opt/tool", "be", "run", *own, str(len(" ".join(own)))]


def test_bash_completion_is_asked_if_it_is_there(shell: Shell) -> None:
    """It also loads what is not loaded yet; both names that it has had are known."""
    for name in ("_command_offset", "_comp_command_offset"):
        script = f'{name}() {{ COMPREPLY=("from $1"); }}'
        assert in_bash(shell, "run", "--on", "a", "--", "to", before=script) == ["from", "5"]
        assert in_bash(shell, "submit", "tool", "x", before=script) == ["from", "2"]


def test_the_name_of_the_command_is_completed(shell: Shell) -> None:
    """From PATH, with and without two dashes."""
    program = shell.directory / "headway-test-tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = {"PATH": f"{shell.directory}:{shell.environ['PATH']}"}

    assert in_bash(shell, "run", "--", "headway-te", env=path) == [program.name]
    assert in_bash(shell, "run", "headway-te", env=path) == [program.name]


def test_options_before_the_command_are_ours(shell: Shell) -> None:
    """Also the value of one, and the words of other commands."""
    shell.holding("agent/opencode", task="runs")

    assert in_bash(shell, "run", "--tas") == ["--task"]
    assert in_bash(shell, "run", "--task", "ru") == ["runs"]
    assert in_bash(shell, "status", "ag") == ["agent", "agent/opencode"]


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

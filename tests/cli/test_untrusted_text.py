"""Labels, commands and output of others on a terminal, in JSON and in notifications."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until

from headway.stores.processes import describe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.kit import Shell, Terminal

HOSTILE = "\x1b]0;PWNED\x07\x9b2J\u202eevil\nheadway: all is well"
# What of it must reach no terminal; a screen of ours has none of these.
POWERS = ("\x1b]", "\x07", "\x9b", "\u202e")


def assert_harmless(text: str) -> None:
    """It is there to be read, and does nothing."""
    assert "PWNED" in text
    assert [power for power in POWERS if power in text] == []
    assert "\nheadway: all is well" not in text.replace("\r", "")


@pytest.fixture
def crowd(shell: Shell) -> Iterator[tuple[str, str, str]]:
    """The ids of a lease, a ticket and a job of people who mean harm."""
    shell.run("limits", "set", "agent", "1")
    job = shell.run(
        "submit", "--hold", "--quiet", "--task", HOSTILE, "--", "true", HOSTILE
    ).stdout.strip()
    lease = shell.holding("agent/a", task=HOSTILE)
    yield lease, shell.waiting("agent/a", task=HOSTILE), job
    shell.run("worker", "stop")  # a held job keeps it


def shown(terminal: Terminal) -> str:
    """Everything that a program has sent to its terminal."""
    terminal.wait()
    return terminal.raw


def test_no_command_lets_labels_act_on_a_terminal(
    shell: Shell, crowd: tuple[str, str, str]
) -> None:
    """Whatever shows tasks and commands shows them as text."""
    lease, ticket, job = crowd
    commands = (
        ["status"],
        ["queue"],
        ["why", lease],
        ["why", ticket],
        ["jobs"],
        ["show", job],
        ["cancel", lease],
        ["release", "--force", ticket],
    )
    for words in commands:
        assert_harmless(shown(shell.terminal(*words, columns=300)))


def test_the_live_screen_and_the_waiting_line_show_them_as_text(
    shell: Shell, crowd: tuple[str, str, str]
) -> None:
    """Also where the screen is drawn again and again."""
    assert crowd
    top = shell.terminal("top", columns=200)
    top.wait_for("PWNED")
    top.press("q")
    assert_harmless(shown(top))

    waiting = shell.terminal("run", "--on", "agent/a", "--", "true", columns=300)
    waiting.wait_for("PWNED")
    waiting.press("\x03")
    assert_harmless(shown(waiting))


def test_json_has_them_whole_and_escaped(shell: Shell, crowd: tuple[str, str, str]) -> None:
    """A program gets what was said; a terminal that shows the JSON obeys nothing."""
    lease, ticket, job = crowd
    for words in (["status"], ["queue"], ["why", lease], ["why", ticket], ["jobs"], ["show", job]):
        printed = shell.run(*words, "--json").stdout
        assert_harmless(printed)
        assert HOSTILE in _texts(json.loads(printed))
        assert all(line.isprintable() for line in printed.split("\n"))


def _texts(value: object) -> set[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return set().union(*map(_texts, value))
    return {value} if isinstance(value, str) else set()


def test_letters_of_all_scripts_stay_readable_in_json(shell: Shell) -> None:
    """Only what is not printed is escaped."""
    shell.holding("agent/a", task="日本 naïve \U0001f600")

    assert "日本 naïve \U0001f600" in shell.run("status", "--json").stdout


def test_the_log_of_a_job_is_harmless_on_a_terminal_and_whole_in_a_pipe(shell: Shell) -> None:
    """Colours stay, unless nobody wants them; the rest of its power is gone."""
    output = f"\x1b[31mred\x1b[0m {HOSTILE}\x1b[2J end\n"
    script = shell.directory / "job.py"
    script.write_text(f"import sys; sys.stdout.buffer.write({output.encode()!r})")
    job = shell.run("submit", "--quiet", "--", sys.executable, str(script)).stdout.strip()
    assert shell.run("wait", job).returncode == 0
    wanted = "red evil\r\nheadway: all is well end\r\n"

    for words in (["logs", job], ["logs", "-f", job]):
        assert shown(shell.terminal(*words)).startswith(f"\x1b[31mred\x1b[0m{wanted[3:]}")
        plain = shell.terminal(*words, env={"NO_COLOR": "1"})
        assert shown(plain).startswith(wanted)
        assert shell.run(*words).stdout == output
    shell.run("worker", "stop")


def test_an_answer_is_harmless_on_a_terminal_and_whole_in_a_pipe(
    shell: Shell, tmp_path: Path
) -> None:
    """An agent repeats what it has read somewhere."""
    answer = f"\x1b[32mdone\x1b[0m {HOSTILE}\x1b[2J"
    events = [
        {"type": "system", "subtype": "init", "session_id": "s1"},
        {"type": "result", "subtype": "success", "is_error": False, "result": answer},
    ]
    (tmp_path / "answer").write_text("".join(json.dumps(event) + "\n" for event in events))
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\ncat > /dev/null; cat {tmp_path}/answer\n")
    program.chmod(0o755)
    shell.environ["PATH"] = f"{tmp_path}:{shell.environ['PATH']}"

    seen = shown(shell.terminal("agent", "claude", "do it", "-q"))

    assert seen == "\x1b[32mdone\x1b[0m evil\r\nheadway: all is well\r\n"
    assert shell.run("agent", "claude", "do it", "-q").stdout == f"{answer}\n"
    lines = shell.run("agent", "claude", "do it", "--json").stdout
    assert [power for power in POWERS if power in lines] == []
    assert answer in _texts([json.loads(line) for line in lines.splitlines()])


def test_an_error_that_names_another_process_names_it_as_text() -> None:
    """Such as the one that blocks the store."""
    process = subprocess.Popen([sys.executable, "-c", "input()", HOSTILE], stdin=subprocess.PIPE)
    try:
        until(lambda: "PWNED" in describe(process.pid), "its command line")
        assert describe(process.pid).isprintable()
    finally:
        process.communicate()


def test_an_error_repeats_nothing_raw(shell: Shell) -> None:
    """Also what was typed, or pasted."""
    for words in (
        ["run", "--", f"/no/{HOSTILE}"],
        ["why", HOSTILE],
        ["run", f"--{HOSTILE}"],
        ["logs", f"--{HOSTILE}"],
        ["logs", HOSTILE],
    ):
        done = shell.run(*words)
        assert done.returncode
        assert "PWNED" in done.stderr
        assert [power for power in POWERS if power in done.stderr] == []

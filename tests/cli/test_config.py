"""``headway config``, and what a bad home or a bad setting does to every command."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from typing import TYPE_CHECKING

import pytest

from headway import setting_table

if TYPE_CHECKING:
    from tests.cli.kit import Shell

COMMANDS = [
    ["status"],
    ["status", "--json"],
    ["queue"],
    ["why", "x"],
    ["check", "agent"],
    ["limits"],
    ["limits", "set", "agent", "4"],
    ["limits", "unset", "agent"],
    ["limits", "reload"],
    ["pause", "agent"],
    ["resume", "agent"],
    ["cancel", "x"],
    ["release", "x", "--force"],
]
BAD = '[limits]\nagent = "2"\n"llm//x" = 3\n[queue]\nbost = "5m"\n'


def write(shell: Shell, text: str) -> None:
    """Put a settings file into the home."""
    shell.home.mkdir()
    (shell.home / "config.toml").write_text(text)


def test_path_is_printed_whether_the_file_is_there_or_not(shell: Shell) -> None:
    """An editor can be given the path, and asking makes no home."""
    assert shell.run("config", "path").stdout == f"{shell.home}/config.toml\n"
    assert not shell.home.exists()


def test_show_has_every_setting_with_its_source(shell: Shell) -> None:
    """A default, a line of the file and a variable are told apart."""
    write(
        shell,
        'paused = ["llm/openai"]\n[queue]\nboost = "5m"\n[limits]\nagent = 4\n'
        '[llm.providers]\n"localhost:8000" = "mine"\n',
    )

    seen = shell.run(
        "config",
        "show",
        "--json",
        env={"HEADWAY_STORE_TIMEOUT": "9s", "HEADWAY_LIMITS": "agent=9,llm/*=8"},
    )

    file = str(shell.home / "config.toml")
    rows = [tuple(row.values()) for row in json.loads(seen.stdout)]
    assert {name for name, _, _ in rows} > set(setting_table.SETTINGS)
    assert [row for row in rows if not row[0].startswith(("gateway.", "jobs.", "watchdog."))] == [
        ("home", str(shell.home), "HEADWAY_HOME"),
        ("queue.boost", "5m", file),
        ("queue.max_waiting", 100_000, "default"),
        ("queue.max_jobs", 10_000, "default"),
        ("cooldown.max_wait", "10m", "default"),
        ("llm.providers", {"localhost:8000": "mine"}, file),
        ("store.url", "home", "default"),
        ("store.namespace", "default", "default"),
        ("store.lease_seconds", 15, "default"),
        ("store.eviction", "refuse", "default"),
        ("store.password", "off", "default"),
        ("store.password_file", "off", "default"),
        ("store.timeout", "9s", "HEADWAY_STORE_TIMEOUT"),
        ("paused", ["llm/openai"], file),
        ('limits."agent"', 4, file),
        ('limits."llm/*"', 8, "HEADWAY_LIMITS"),
    ]


def test_show_prints_a_table_for_people(shell: Shell) -> None:
    """On a fresh home everything but the home is a default."""
    lines = shell.run("config", "show").stdout.splitlines()

    assert lines[0].split() == ["SETTING", "VALUE", "SOURCE"]
    assert lines[2].split() == ["queue.boost", "10m", "default"]
    assert lines[-1].split() == ['limits."agent"', "3", "default"]
    assert ["llm.providers", "-", "default"] in [line.split() for line in lines]
    write(shell, '[llm.providers]\n"localhost:8000" = "mine"\n')
    assert '{ localhost:8000 = "mine" }' in shell.run("config", "show").stdout


def test_check_is_content_with_good_settings(shell: Shell) -> None:
    """A good file is said to be good, and a missing one is fine."""
    assert "not there, so the defaults count" in shell.run("config", "check").stdout
    write(shell, "[limits]\nagent = 4\n")

    seen = shell.run("config", "check")

    assert seen.returncode == 0
    assert seen.stdout == f"{shell.home}/config.toml: good, 1 limit, 0 paused\n"


def test_check_reports_all_problems_together(shell: Shell) -> None:
    """Each has its line, with place, value and fix; the code is 78."""
    write(shell, BAD)

    seen = shell.run("config", "check", env={"HEADWAY_STORE_TIMEOUT": "soon"})

    assert seen.returncode == 78
    problems = seen.stderr.splitlines()
    assert len(problems) == 4
    assert all(problem.startswith("headway: ") for problem in problems)
    for part in (
        "\"agent\" = '2'",
        "'llm//x'",
        "did you mean queue.boost?",
        "HEADWAY_STORE_TIMEOUT",
    ):
        assert any(part in problem for problem in problems)


def test_check_warns_of_a_variable_that_nobody_reads(shell: Shell) -> None:
    """A misspelled variable would otherwise do nothing, silently."""
    seen = shell.run("config", "check", env={"HEADWAY_STORE_TIMOUT": "9s"})

    assert seen.returncode == 0
    assert "HEADWAY_STORE_TIMOUT is not a variable of Headway" in seen.stderr


@pytest.mark.parametrize("words", [*COMMANDS, ["config", "show"]], ids=" ".join)
def test_bad_settings_stop_every_command_with_78(shell: Shell, words: list[str]) -> None:
    """All problems are listed, nothing is done and no trace is shown."""
    write(shell, BAD)

    seen = shell.run(*words)

    assert seen.returncode == 78
    assert len(seen.stderr.splitlines()) == 3
    assert not seen.stdout
    assert (shell.home / "config.toml").read_text() == BAD


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_home_that_is_a_file_is_code_69(shell: Shell, words: list[str]) -> None:
    """One line says what is wrong with the home and what to do."""
    shell.home.write_text("")

    seen = shell.run(*words)

    assert seen.returncode == 69
    assert seen.stderr == (
        f"headway: store {shell.home} is unavailable: it is not a directory; check its owner,"
        " mode and file system, or set HEADWAY_HOME to another directory\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="needs a directory where nobody may write")
def test_a_home_that_cannot_be_made_is_code_69(shell: Shell) -> None:
    """Not even root can make a directory in /proc."""
    seen = shell.run("status", env={"HEADWAY_HOME": "/proc/headway"})

    assert seen.returncode == 69
    assert seen.stderr.startswith("headway: store /proc/headway is unavailable: ")
    assert seen.stderr.count("\n") == 1


def test_a_store_that_is_busy_for_too_long_is_code_69(shell: Shell) -> None:
    """Someone sits on the store: the wait is bounded, and the line says who it is."""
    shell.run("status")
    with open(shell.home / "slots.lock", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)

        seen = shell.run("limits", "set", "agent", "2", env={"HEADWAY_STORE_TIMEOUT": "100ms"})

    assert seen.returncode == 69
    assert "is unavailable" in seen.stderr
    assert str(os.getpid()) in seen.stderr
    assert "Traceback" not in seen.stderr


def test_check_warns_of_a_limit_that_looks_misspelt(shell: Shell) -> None:
    """It names what is in use, and puts nothing in force."""
    shell.holding("agent/opencode")
    (shell.home / "config.toml").write_text('[limits]\n"agent/opencod" = 1\n')

    seen = shell.run("config", "check")

    assert seen.returncode == 0
    assert seen.stderr == (
        "headway: warning: nothing uses 'agent/opencod', but these are in use: agent/opencode\n"
    )
    assert "was changed by hand" in shell.run("doctor").stdout


def test_check_of_a_home_that_nobody_uses_leaves_it_as_it_is(shell: Shell) -> None:
    """A look at who uses what makes no database."""
    write(shell, "[limits]\nagent = 1\n")

    assert shell.run("config", "check").stderr == ""

    names = sorted(file.name for file in shell.home.iterdir())
    assert names == ["config.toml", "config.toml.parsed"]


def test_limits_with_more_than_slots_are_shown_as_they_are_written(shell: Shell) -> None:
    """A table for people, and an object for programs."""
    write(
        shell,
        '[limits]\n"llm/openai" = { slots = 4, requests_per_minute = 60 }\n'
        '"llm/x" = { requests_per_minute = "unlimited" }\n',
    )

    table = shell.run("config", "show").stdout
    rows = {
        row["name"]: row["value"]
        for row in json.loads(shell.run("config", "show", "--json").stdout)
    }

    assert 'limits."llm/openai"          { slots = 4, requests_per_minute = 60 } ' in table
    assert '{ requests_per_minute = "unlimited" } ' in table
    assert rows['limits."llm/openai"'] == {"slots": 4, "requests_per_minute": 60}
    assert rows['limits."llm/x"'] == {"requests_per_minute": "unlimited"}
    assert shell.run("config", "check").stdout.endswith("good, 2 limits, 0 paused\n")


def test_check_reports_what_is_wrong_in_a_table(shell: Shell) -> None:
    """Each part by its name, all together."""
    write(
        shell, '[limits]\nagent = { requests_per_minute = 5 }\n"llm/x" = { slots = 0, rpm = 1 }\n'
    )

    seen = shell.run("config", "check")

    assert seen.returncode == 78
    assert "requests_per_minute is for keys of LLM requests, under llm" in seen.stderr
    assert '"llm/x".slots = 0 is not a limit' in seen.stderr
    assert "'rpm' is not a part of a limit" in seen.stderr

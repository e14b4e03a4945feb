"""The settings of jobs and watchdogs: file, variables, defaults, and what is refused."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from headway import ConfigError, config, setting_table
from headway.cli.config import command

if TYPE_CHECKING:
    from pathlib import Path

DEFAULTS = {
    "max_jobs": 10_000,
    "approve": "never",
    "expire_seconds": 86_400.0,
    "retries": 0,
    "grace_seconds": 10.0,
    "keep_seconds": 30 * 86_400.0,
    "keep_count": 1000,
    "max_log_bytes": 10_000_000,
    "notify": (),
    "notify_command": None,
    "max_runtime_seconds": None,
    "idle_warn_seconds": None,
    "idle_kill_seconds": None,
    "max_output_bytes": None,
    "min_free_memory_bytes": None,
}
# For each setting: how it is written in the file and in a variable, and what it means.
GOOD: list[tuple[str, str, str, Any]] = [
    ("queue.max_jobs", "5", "5", 5),
    ("jobs.approve", '"retries"', "retries", "retries"),
    ("jobs.approve", '"always"', "always", "always"),
    ("jobs.expire", '"2h"', "2h", 7200.0),
    ("jobs.expire", "90", "90", 90.0),
    ("jobs.expire", '"never"', "never", None),
    ("jobs.retries", "3", "3", 3),
    ("jobs.grace", '"500ms"', "500ms", 0.5),
    ("jobs.keep", '"7d"', "7d", 7 * 86_400.0),
    ("jobs.keep", '"never"', "never", None),
    ("jobs.keep_count", "1", "1", 1),
    ("jobs.max_log", '"1MB"', "1MB", 1_000_000),
    ("jobs.max_log", "4096", "4096", 4096),
    ("jobs.notify", '["ntfy://a", "json://b"]', "ntfy://a json://b", ("ntfy://a", "json://b")),
    ("jobs.notify_on", '["failed", "killed"]', "failed killed", ("failed", "killed")),
    ("jobs.notify_command", '"cat >> x"', "cat >> x", "cat >> x"),
    ("watchdog.max_runtime", '"2h"', "2h", 7200.0),
    ("watchdog.max_runtime", '"off"', "off", None),
    ("watchdog.idle_warn", '"5m"', "5m", 300.0),
    ("watchdog.idle_kill", "600", "600", 600.0),
    ("watchdog.max_output", '"100MB"', "100MB", 100_000_000),
    ("watchdog.max_output", '"off"', "off", None),
    ("watchdog.min_free_memory", '"1.5GB"', "1.5GB", 1_500_000_000),
]
BAD: list[tuple[str, str]] = [
    ("queue.max_jobs", "0"),
    ("queue.max_jobs", '"5"'),
    ("queue.max_jobs", "true"),
    ("queue.max_jobs", "1.5"),
    ("jobs.approve", '"sometimes"'),
    ("jobs.approve", "true"),
    ("jobs.expire", "0"),
    ("jobs.expire", '"soon"'),
    ("jobs.expire", "nan"),
    ("jobs.expire", "true"),
    ("jobs.retries", "-1"),
    ("jobs.retries", '"1"'),
    ("jobs.retries", "true"),
    ("jobs.retries", "1" + "0" * 30),
    ("jobs.grace", '"0s"'),
    ("jobs.grace", '"off"'),
    ("jobs.keep", '"off"'),
    ("jobs.keep", "-1"),
    ("jobs.keep_count", "0"),
    ("jobs.keep_count", "1" + "0" * 30),
    ("jobs.max_log", "0"),
    ("jobs.max_log", '"10"'),
    ("jobs.max_log", '"off"'),
    ("jobs.max_log", "1.5"),
    ("jobs.notify", "5"),
    ("jobs.notify", "[5]"),
    ("jobs.notify", '[""]'),
    ("jobs.notify_on", '["sometimes"]'),
    ("jobs.notify_on", "[1]"),
    ("jobs.notify_command", "5"),
    ("watchdog.max_runtime", "0"),
    ("watchdog.max_runtime", '"never"'),
    ("watchdog.idle_warn", "false"),
    ("watchdog.idle_kill", '"-5s"'),
    ("watchdog.max_output", "0"),
    ("watchdog.max_output", '"10mb"'),
    ("watchdog.min_free_memory", "1.5"),
]


def write(home: Path, name: str, value: str, *more: tuple[str, str]) -> None:
    """Put settings into the home's file."""
    home.mkdir(exist_ok=True)
    text = "".join(f"{name} = {value}\n" for name, value in ((name, value), *more))
    (home / "config.toml").write_text(text)


def field(name: str) -> str:
    """What a setting is called in Python."""
    return setting_table.SETTINGS[name].field


def test_without_a_file_everything_has_its_default(home: Path) -> None:
    """Nothing is killed, nobody has to approve, and everything is bounded."""
    settings = config.load(str(home), {})

    assert {name: getattr(settings, name) for name in DEFAULTS} == DEFAULTS
    assert set(settings.notify_on) == {
        event for event in setting_table.JOB_EVENTS if event != "queued"
    }


@pytest.mark.parametrize(("name", "written", "variable", "meant"), GOOD)
def test_file_and_variable_mean_the_same(
    home: Path, name: str, written: str, variable: str, meant: object
) -> None:
    """Each can be written in both."""
    environ = {setting_table.SETTINGS[name].variable: variable}
    assert getattr(config.load(str(home), environ), field(name)) == meant
    write(home, name, written)

    assert getattr(config.load(str(home), {}), field(name)) == meant


def test_the_variable_beats_the_file(home: Path) -> None:
    """And only that one."""
    write(home, "jobs.retries", "5", ("jobs.keep_count", "7"))

    settings = config.load(str(home), {"HEADWAY_JOBS_RETRIES": "2"})

    assert (settings.retries, settings.keep_count) == (2, 7)


@pytest.mark.parametrize(("name", "written"), BAD)
def test_a_bad_value_is_refused_with_file_and_name(home: Path, name: str, written: str) -> None:
    """And with the value, unless that may be a secret."""
    write(home, name, written)

    with pytest.raises(ConfigError) as caught:
        config.load(str(home), {})

    (problem,) = caught.value.problems
    assert str(home / "config.toml") in problem
    assert name in problem
    if not setting_table.SETTINGS[name].is_secret:
        assert written.strip('[]"').lower() in problem.lower()


@pytest.mark.parametrize(
    "line",
    [
        'jobs.notify = ["json://user:hush@host", 5]',
        'jobs.notify = ["hush"]',
        'jobs.notify = "hush"',
        'jobs.notify = {url = "json://hush"}',
        'jobs.notify_command = ["curl", "hush"]',
        'jobs.notfy = ["json://user:hush@host"]',
        'notify = ["json://user:hush@host"]',
    ],
)
def test_what_may_be_a_secret_is_not_shown_in_an_error(home: Path, line: str) -> None:
    """Errors end up in logs and in chats; the name says enough."""
    home.mkdir()
    (home / "config.toml").write_text(line)

    with pytest.raises(ConfigError) as caught:
        config.load(str(home), {})

    assert line.partition(" =")[0] in str(caught.value)
    assert "hush" not in str(caught.value)


SHADOWS = [
    ("watchdog.idle_kill", "watchdog.max_runtime"),
    ("watchdog.idle_warn", "watchdog.max_runtime"),
    ("watchdog.idle_warn", "watchdog.idle_kill"),
]


@pytest.mark.parametrize(("later", "earlier"), SHADOWS)
@pytest.mark.parametrize("fast", [9, 10])
def test_timers_that_shadow_each_other_are_refused_with_both_names(
    home: Path, later: str, earlier: str, fast: int
) -> None:
    """Wherever each of them comes from."""
    write(home, later, "10", (earlier, str(fast)))
    with pytest.raises(ConfigError) as caught:
        config.load(str(home), {})
    problems = [str(caught.value)]
    write(home, later, "10")
    with pytest.raises(ConfigError) as caught:
        config.load(str(home), {setting_table.SETTINGS[earlier].variable: f"{fast}s"})
    problems.append(str(caught.value))
    with pytest.raises(ConfigError) as caught:
        config.defaults(
            {
                setting_table.SETTINGS[later].variable: "10s",
                setting_table.SETTINGS[earlier].variable: f"{fast}s",
            }
        )
    problems.append(str(caught.value))

    for problem in problems:
        assert f"{later} (10 s)" in problem
        assert f"{earlier} ({fast} s)" in problem


def test_timers_in_a_good_order_are_taken(home: Path) -> None:
    """Warn, then kill, then the longest run."""
    write(
        home,
        "watchdog.idle_warn",
        "5",
        ("watchdog.idle_kill", "10"),
        ("watchdog.max_runtime", "11"),
    )
    settings = config.load(str(home), {})

    assert (settings.idle_warn_seconds, settings.idle_kill_seconds) == (5.0, 10.0)
    assert settings.max_runtime_seconds == 11.0


@pytest.mark.parametrize("source", ["file", "environment"])
def test_show_hides_where_people_are_told(
    home: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """Addresses have secrets in them, and a command may."""
    if source == "file":
        write(
            home,
            "jobs.notify",
            '["json://user:hush@host"]',
            ("jobs.notify_command", '"curl -H hush"'),
        )
    else:
        monkeypatch.setenv("HEADWAY_JOBS_NOTIFY", "json://user:hush@host")
        monkeypatch.setenv("HEADWAY_JOBS_NOTIFY_COMMAND", "curl -H hush")

    table, listed = (CliRunner().invoke(command, words) for words in (["show"], ["show", "--json"]))
    for shown in (table, listed):
        assert shown.exit_code == 0, shown.output
        assert "hush" not in shown.output
        assert "not shown" in shown.output
    rows = {row["name"]: row for row in json.loads(listed.output)}
    assert rows["jobs.notify"]["value"] == rows["jobs.notify_command"]["value"]
    assert os.environ["HEADWAY_HOME"] == rows["home"]["value"]


def test_show_has_every_setting_of_jobs(home: Path) -> None:
    """Each with its default on a fresh home."""
    shown = CliRunner().invoke(command, ["show", "--json"])
    rows = {row["name"]: row for row in json.loads(shown.output)}

    assert rows.keys() >= setting_table.SETTINGS.keys()
    assert rows["jobs.expire"] == {"name": "jobs.expire", "value": "24h", "source": "default"}
    assert not home.exists()

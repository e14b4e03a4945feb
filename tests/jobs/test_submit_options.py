"""The words of ``headway submit``."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headway.cli import USAGE, Failure
from headway.cli.submit_options import OPTIONS, as_click, parse

NOTHING_SAID: dict[str, Any] = {
    "keys": [],
    "task": None,
    "priority": 0,
    "weight": 1,
    "hold": None,
    "expire": None,
    "retries": None,
    "retry_delay": None,
    "retry_on": [],
    "dedupe": None,
    "max_runtime": None,
    "idle_warn": None,
    "idle_kill": None,
    "max_output": None,
    "notify": [],
    "notify_on": None,
}


def test_a_command_alone_leaves_everything_to_the_settings() -> None:
    """It is queued, a worker is started, and a sentence is printed."""
    given = parse(["--", "agent", "fix it"])

    assert given.command == ["agent", "fix it"]
    assert dict(given.options) == NOTHING_SAID
    assert (given.when_full, given.start, given.quiet, given.as_json) == (
        "queue",
        True,
        False,
        False,
    )


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--on", "llm/x"], "keys", ["llm/x"]),
        (["--on", "llm/x", "--on=agent/y"], "keys", ["llm/x", "agent/y"]),
        (["--task", "issue 16"], "task", "issue 16"),
        (["--priority", "-5"], "priority", -5),
        (["--priority=100"], "priority", 100),
        (["--weight", "3"], "weight", 3),
        (["--hold"], "hold", True),
        (["--expire", "24h"], "expire", 86_400.0),
        (["--expire", "90"], "expire", 90.0),
        (["--expire", "never"], "expire", "never"),
        (["--retries", "0"], "retries", 0),
        (["--retry-delay", "1m"], "retry_delay", 60.0),
        (["--retry-delay", "0"], "retry_delay", 0.0),
        (["--retry-on", "interrupted", "--retry-on=75"], "retry_on", ["interrupted", 75]),
        (["--retries", "2", "--retries", "3"], "retries", 3),
        (["--dedupe", "--x"], "dedupe", "--x"),
        (["--dedupe=a=b"], "dedupe", "a=b"),
        (["--max-runtime", "1h30m"], "max_runtime", 5400.0),
        (["--max-runtime", "off"], "max_runtime", "off"),
        (["--idle-warn", "1.5"], "idle_warn", 1.5),
        (["--idle-kill", "10m"], "idle_kill", 600.0),
        (["--idle-kill", "off"], "idle_kill", "off"),
        (["--max-output", "100MB"], "max_output", 100_000_000),
        (["--max-output", "4096"], "max_output", 4096),
        (["--max-output", "off"], "max_output", "off"),
        (["--notify", "a://b", "--notify", "c://d"], "notify", ["a://b", "c://d"]),
        (["--notify-on", "failed", "--notify-on=killed"], "notify_on", ["failed", "killed"]),
    ],
)
def test_an_option_says_one_thing(words: list[str], name: str, value: object) -> None:
    """And leaves the others alone."""
    given = parse([*words, "--", "agent"])

    assert dict(given.options) == {**NOTHING_SAID, name: value}
    assert given.command == ["agent"]


def test_what_concerns_the_caller_is_said_apart() -> None:
    """It is not part of the job."""
    given = parse(["--when-full", "wait", "--no-start", "--json", "-q", "--after=16", "agent"])

    assert (given.when_full, given.start, given.quiet, given.as_json) == ("wait", False, True, True)
    assert parse(["--quiet", "agent"]).quiet
    assert parse(["--after", "16", "--after=build", "agent"]).after == ["16", "build"]
    assert dict(given.options) == NOTHING_SAID


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["agent", "--hold"], ["agent", "--hold"]),
        (["--hold", "agent", "--", "x"], ["agent", "--", "x"]),
        (["--", "--hold"], ["--hold"]),
        (["--task", "t", "--", "--", "x"], ["--", "x"]),
        (["--", "agent", "", "new\nline"], ["agent", "", "new\nline"]),
    ],
)
def test_what_follows_the_options_is_left_as_it_is(words: list[str], command: list[str]) -> None:
    """With or without two dashes between."""
    assert parse(words).command == command


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "what shall be run"),
        (["--"], "what shall be run"),
        (["--hold"], "what shall be run"),
        (["--", ""], "what shall be run"),
        (["--nonsense", "agent"], "--nonsense"),
        (["-x", "agent"], "-x"),
        (["--hold=yes", "agent"], "--hold takes no value"),
        (["--task"], "--task needs a value"),
        (["--task", "--", "agent"], "--task needs a value"),
        (["--task", "", "agent"], "task"),
        (["--on", "a//b", "agent"], "a//b"),
        (["--priority", "high", "agent"], "--priority.*'high'"),
        (["--priority", "101", "agent"], "--priority.*'101'"),
        (["--priority", "1.5", "agent"], "--priority.*'1.5'"),
        (["--weight", "0", "agent"], "--weight.*'0'"),
        (["--weight", "", "agent"], "--weight"),
        (["--retries", "-1", "agent"], "--retries.*'-1'"),
        (["--retries", "1001", "agent"], "--retries.*'1001'"),
        (["--retries", "9" * 5000, "agent"], "--retries"),
        (["--after", "0", "agent"], "--after.*'0'"),
        (["--after", "9" * 5000, "agent"], "--after"),
        (["--after", "", "agent"], "--after"),
        (["--expire", "soon", "agent"], "--expire.*'soon'"),
        (["--expire", "off", "agent"], "--expire.*'off'"),
        (["--expire", "9" * 5000, "agent"], "--expire"),
        (["--max-runtime", "long", "agent"], "--max-runtime.*'long'"),
        (["--max-runtime", "never", "agent"], "--max-runtime.*'never'"),
        (["--idle-warn", "-5", "agent"], "--idle-warn.*'-5'"),
        (["--idle-kill", "", "agent"], "--idle-kill"),
        (["--max-output", "many", "agent"], "--max-output.*'many'"),
        (["--max-output", "0", "agent"], "--max-output"),
        (["--max-output", "\u0663", "agent"], "--max-output"),
        (["--max-output", "9" * 5000, "agent"], "--max-output"),
        (["--max-output", "9" * 400 + "MB", "agent"], "--max-output"),
        (["--when-full", "panic", "agent"], "--when-full.*queue, wait, reject.*'panic'"),
    ],
    ids=lambda words: " ".join(words)[:40] if isinstance(words, list) else "",
)
def test_wrong_usage_is_told_by_name(words: list[str], said: str) -> None:
    """With the code for it, and where to read how it is done."""
    with pytest.raises(Failure) as caught:
        parse(words)
    message, code = caught.value.args
    assert code == USAGE
    assert re.search(said, message)
    assert message.endswith("\n  see: headway submit --help")


def test_click_shows_the_same_options() -> None:
    """Help, completion and the reference are made of them."""
    shown: list[Any] = as_click().params

    assert [parameter.name for parameter in shown[:-1]] == [option.name for option in OPTIONS]
    assert shown[-1].name == "command"

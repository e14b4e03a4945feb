"""``headway limits``: showing and changing what is allowed."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until

from headway import Governor

if TYPE_CHECKING:
    from tests.cli.kit import Shell


def test_the_default_is_listed_with_its_source(shell: Shell) -> None:
    """On a fresh home the one limit is the built-in one."""
    lines = shell.run("limits").stdout.splitlines()

    assert lines[1].split() == ["agent", "3", "default", "0", "-"]
    assert len(lines) == 2


def test_patterns_are_listed_as_they_were_written(shell: Shell) -> None:
    """A pattern shows its limit for each, and which keys use it."""
    shell.run("limits", "set", "llm/*", "8")
    shell.run("limits", "set", "llm/anthropic", "unlimited")
    shell.run("pause", "llm/google")
    shell.holding("llm/openai/gpt-5")

    table = shell.run("limits").stdout
    as_json = json.loads(shell.run("limits", "--json").stdout)

    assert "llm/*          8 each     file     llm/openai 1" in table
    assert "llm/anthropic  unlimited  file     0" in table
    assert "paused: llm/google" in table
    assert as_json == {
        "limits": [
            {
                "key": "agent",
                "limit": 3,
                "requests_per_minute": None,
                "source": "default",
                "counts_for": ["agent"],
            },
            {
                "key": "llm/*",
                "limit": 8,
                "requests_per_minute": None,
                "source": "file",
                "counts_for": ["llm/google", "llm/openai"],
            },
            {
                "key": "llm/anthropic",
                "limit": "unlimited",
                "requests_per_minute": None,
                "source": "file",
                "counts_for": ["llm/anthropic"],
            },
        ],
        "paused": ["llm/google"],
    }


def test_a_limit_is_set_in_file_and_store_and_comments_survive(shell: Shell) -> None:
    """A person's file keeps its looks, and the limit counts at once."""
    shell.home.mkdir()
    file = shell.home / "config.toml"
    file.write_text('# mine\n[limits]\n"agent" = 2  # two are enough\n')

    seen = shell.run("limits", "set", "llm/anthropic", "4")

    assert seen.returncode == 0
    assert seen.stdout == "llm/anthropic: 4 slots (was unlimited), 0 in use\n"
    assert file.read_text() == (
        '# mine\n[limits]\n"agent" = 2  # two are enough\n"llm/anthropic" = 4\n'
    )
    assert [(x["key"], x["limit"]) for x in shell.status()["limits"]] == [
        ("agent", 2),
        ("llm/anthropic", 4),
    ]


def test_lowering_says_how_many_must_end(shell: Shell) -> None:
    """Below what is in use nothing is granted, and one learns until when."""
    for _ in range(3):
        shell.holding("agent")

    seen = shell.run("limits", "set", "agent", "2").stdout

    assert seen == "agent: 2 slots (was 3), 3 in use: nothing is granted until 2 have ended\n"
    assert "until 1 has ended" not in seen


def test_raising_lets_waiters_in_at_once(shell: Shell) -> None:
    """A waiting process is running when the command has ended."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent")
    process = shell.hold("agent")
    until(shell.waits(1))

    seen = shell.run("limits", "set", "agent", "2").stdout

    assert seen == "agent: 2 slots (was 1), all in use\n"
    assert process.stdout
    assert process.stdout.readline()


def test_setting_the_same_again_says_so(shell: Shell) -> None:
    """Nothing has changed, and that is the answer."""
    assert shell.run("limits", "set", "agent", "3").stdout == "agent: 3 slots as before, 0 in use\n"


def test_a_tighter_key_above_is_mentioned(shell: Shell) -> None:
    """A limit that can never be reached comes with the one that binds."""
    seen = shell.run("limits", "set", "agent/opencode", "9").stdout

    assert seen.endswith("; but agent above it has 3, which counts too\n")
    assert "but" not in shell.run("limits", "set", "agent/opencode", "3").stdout


def test_a_limit_on_a_paused_key_says_that_it_is_paused(shell: Shell) -> None:
    """More slots help nobody as long as a pause stands."""
    shell.run("pause", "agent")

    assert shell.run("limits", "set", "agent", "5").stdout.endswith(
        "; agent is paused, so nobody is let in\n"
    )


@pytest.mark.parametrize("limit", ["2.5", "0", "-1", "abc", "", "1e3", "²", "9" * 30, "True"])
def test_what_is_no_limit_is_refused(shell: Shell, limit: str) -> None:
    """A bad value is bad usage, and nothing is written."""
    seen = shell.run("limits", "set", "agent", limit)

    assert seen.returncode == 64
    assert f"{limit!r} is not a limit; give a whole number of slots" in seen.stderr
    assert not (shell.home / "config.toml").exists()


def test_a_misspelled_key_warns_with_what_is_in_use(shell: Shell) -> None:
    """One clean line on stderr names the key that was probably meant."""
    shell.holding("agent/opencode")

    seen = shell.run("limits", "set", "agent/opencod", "2")

    assert seen.returncode == 0
    assert seen.stderr == (
        "headway: warning: nothing uses 'agent/opencod', but these are in use: agent/opencode\n"
    )
    assert not shell.run("limits", "set", "agent/opencode", "2").stderr


def test_unset_says_what_counts_now(shell: Shell) -> None:
    """Without its line a key has the next less specific one, the default, or none."""
    shell.run("limits", "set", "agent", "7")
    shell.run("limits", "set", "llm/*", "8")
    shell.run("limits", "set", "llm/openai", "2")

    said = [shell.run("limits", "unset", key).stdout for key in ("llm/openai", "llm/*", "agent")]

    assert said == [
        "llm/openai: line taken away; llm/* counts: 8 slots\n",
        "llm/*: line taken away; keys it stood for have what other lines say\n",
        "agent: line taken away; the default counts: 3 slots\n",
    ]
    assert [(x["key"], x["limit"]) for x in shell.status()["limits"]] == [("agent", 3)]


def test_unset_of_nothing_is_no_error(shell: Shell) -> None:
    """Who wants a line gone has what they want."""
    seen = shell.run("limits", "unset", "llm/openai")

    assert seen.returncode == 0
    assert seen.stdout == ("llm/openai has no line to take away; it has no limit of its own\n")


def test_reload_puts_an_edit_in_force(shell: Shell) -> None:
    """A process that waits is let in when the file has been edited and reloaded."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent")
    waiter = shell.hold("agent")
    until(shell.waits(1))
    file = shell.home / "config.toml"
    file.write_text(file.read_text().replace("1", "2"))

    seen = shell.run("limits", "reload")

    assert seen.returncode == 0
    assert seen.stdout == "1 limit in force; see: headway limits\n"
    assert waiter.stdout
    assert waiter.stdout.readline()


def test_reload_counts_the_default_too(shell: Shell) -> None:
    """On a fresh home one limit is in force: the built-in one."""
    fresh = shell.run("limits", "reload").stdout
    shell.run("limits", "set", "llm/*", "8")
    shell.run("pause", "llm/openai")
    later = shell.run("limits", "reload").stdout

    assert fresh == "only the default (agent 3) in force; see: headway limits\n"
    assert later == "1 limit, the default (agent 3) and 1 pause in force; see: headway limits\n"


def test_a_limit_offered_by_the_environment_that_is_not_used_warns(shell: Shell) -> None:
    """The file stands, and one line says so."""
    shell.run("limits", "set", "agent", "4")

    seen = shell.run("limits", env={"HEADWAY_LIMITS": "agent=9"})

    assert seen.returncode == 0
    assert seen.stderr.startswith("headway: warning: limit 9 for 'agent' from environment is not")
    assert seen.stderr.count("\n") == 1


def test_reload_warns_of_a_misspelled_key_once(shell: Shell) -> None:
    """Opening the home and reloading say the same, so it is said once."""
    shell.holding("agent/opencode")
    (shell.home / "config.toml").write_text('[limits]\n"agent/opencod" = 1\n')
    warning = (
        "headway: warning: nothing uses 'agent/opencod', but these are in use: agent/opencode\n"
    )

    assert shell.run("limits", "reload").stderr == warning
    assert shell.run("limits", "reload").stderr == warning
    assert shell.run("limits").stderr == ""


# -- budgets of requests ------------------------------------------------------------------


def test_a_line_shows_what_it_mentions_and_what_it_counts_for(shell: Shell) -> None:
    """Slots from one line and the budget from another: both count for the key."""
    shell.run("limits", "set", "llm/*", "8")
    shell.run("limits", "set", "llm/openai", "--requests-per-minute", "60")
    shell.run("limits", "set", "llm/*/*", "--requests-per-minute", "9")
    shell.holding("llm/openai/gpt-5")

    table = shell.run("limits").stdout
    rows = {row["key"]: row for row in json.loads(shell.run("limits", "--json").stdout)["limits"]}

    assert [" ".join(line.split()) for line in table.splitlines()] == [
        "KEY LIMIT REQ/MIN SOURCE IN USE WAITING",
        "agent 3 - default 0 -",
        "llm/* 8 each - file llm/openai 1 -",
        "llm/*/* - 9 each file llm/openai/gpt-5 1 -",
        "llm/openai - 60 file 1 -",
    ]
    assert rows["llm/*"]["counts_for"] == ["llm/openai"]
    assert rows["llm/openai"] == {
        "key": "llm/openai",
        "limit": None,
        "requests_per_minute": 60,
        "source": "file",
        "counts_for": ["llm/openai"],
    }
    assert rows["llm/*/*"]["counts_for"] == ["llm/openai/gpt-5"]


def test_what_is_not_given_stays_as_it_is(shell: Shell) -> None:
    """Slots and budget are set one by one or together, and the sentence speaks of both."""
    said = [
        shell.run("limits", "set", "llm/openai", *words).stdout
        for words in (
            ["4"],
            ["--requests-per-minute", "60"],
            ["6"],
            ["--requests-per-minute", "unlimited"],
            ["unlimited", "--requests-per-minute", "1"],
        )
    ]

    assert said == [
        "llm/openai: 4 slots (was unlimited), 0 in use\n",
        (
            "llm/openai: 4 slots as before, 60 requests a minute (was unlimited), 0 in use,"
            " 0 requests lately\n"
        ),
        (
            "llm/openai: 6 slots (was 4), 60 requests a minute as before, 0 in use,"
            " 0 requests lately\n"
        ),
        "llm/openai: 6 slots as before, unlimited requests a minute (was 60), 0 in use\n",
        (
            "llm/openai: unlimited slots (was 6), 1 request a minute (was unlimited), 0 in use,"
            " 0 requests lately\n"
        ),
    ]
    assert '"llm/openai" = {slots = "unlimited", requests_per_minute = 1}' in (
        (shell.home / "config.toml").read_text()
    )


def test_a_budget_that_is_spent_says_when_it_has_room(shell: Shell) -> None:
    """Lowered below what was used, it lets nobody in for a while."""
    shell.run("limits", "set", "llm/openai", "--requests-per-minute", "3")
    for _ in range(2):
        shell.run("run", "--on", "llm/openai", "--", "true")

    seen = shell.run("limits", "set", "llm/openai", "--requests-per-minute", "1").stdout

    assert re.fullmatch(
        r"llm/openai: unlimited slots as before, 1 request a minute \(was 3\), 0 in use,"
        r" 2 requests lately, the next in \d+ s\n",
        seen,
    )


def test_a_tighter_budget_above_is_mentioned(shell: Shell) -> None:
    """So is a cool-down, because of which nobody is let in."""
    shell.run("limits", "set", "llm", "--requests-per-minute", "30")
    with Governor(f"sqlite:///{shell.home}") as governor:
        governor.cool_down("llm", 300, reason="529")

    seen = shell.run("limits", "set", "llm/openai", "--requests-per-minute", "60").stdout

    assert seen.endswith(
        "; llm is cooling, 5 min left (529)"
        "; but llm above it has 30 requests a minute, which counts too\n"
    )
    seen = shell.run("limits", "set", "llm/openai", "--requests-per-minute", "30").stdout
    assert "above it" not in seen


def test_a_pattern_has_its_budget_for_each(shell: Shell) -> None:
    """Only what its own line mentions is said."""
    shell.holding("llm/openai")

    said = [
        shell.run("limits", "set", "llm/*", *words).stdout
        for words in (["--requests-per-minute", "60"], ["8"], ["--requests-per-minute", "60"])
    ]

    assert said == [
        "llm/*: 60 requests a minute each; counts for llm/openai\n",
        "llm/*: 8 slots each, 60 requests a minute each as before; counts for llm/openai\n",
        (
            "llm/*: 8 slots each as before, 60 requests a minute each as before;"
            " counts for llm/openai\n"
        ),
    ]


def test_unset_takes_both_parts_away(shell: Shell) -> None:
    """What counts then may stand on two other lines."""
    shell.run("limits", "set", "llm/*", "8")
    shell.run("limits", "set", "*/openai", "6")
    shell.run("limits", "set", "llm/openai", "4", "--requests-per-minute", "60")
    (shell.home / "config.toml").write_text(
        (shell.home / "config.toml").read_text().replace("= 8", "= {requests_per_minute = 90}")
    )

    said = shell.run("limits", "unset", "llm/openai").stdout

    assert said == (
        "llm/openai: line taken away; */openai counts: 6 slots;"
        " llm/* counts: 90 requests a minute\n"
    )


@pytest.mark.parametrize("budget", ["2.5", "0", "-1", "abc", "", "9" * 30])
def test_what_is_no_budget_is_refused(shell: Shell, budget: str) -> None:
    """A bad value is bad usage, and nothing is written."""
    seen = shell.run("limits", "set", "llm", "--requests-per-minute", budget)

    assert seen.returncode == 64
    assert f"{budget!r} is not a budget; give a whole number of requests a minute" in seen.stderr
    assert not (shell.home / "config.toml").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["llm"], "Give a number of slots, --requests-per-minute, or both."),
        (["agent", "--requests-per-minute", "5"], "is for keys of LLM requests, under llm"),
        (["*", "3", "--requests-per-minute", "5"], "is for keys of LLM requests, under llm"),
        (["llm", "--request-per-minute", "5"], "No such option"),
    ],
)
def test_what_cannot_be_set_is_bad_usage(shell: Shell, words: list[str], problem: str) -> None:
    """With the reason, and nothing is written."""
    seen = shell.run("limits", "set", *words)

    assert seen.returncode == 64
    assert problem in seen.stderr
    assert not (shell.home / "config.toml").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("limits", "set", "llm/antropic", "1"), "did you mean llm/anthropic?"),
        (("pause", "agnt"), "did you mean agent?"),
        (("pause", "buidl"), "did you mean build?"),
    ],
)
def test_a_likely_misspelling_is_told_also_where_nothing_runs(
    shell: Shell, words: tuple[str, ...], hint: str
) -> None:
    """It is done all the same: the name may be meant so."""
    shell.run("limits", "set", "build", "2")

    done = shell.run(*words)

    assert done.returncode == 0
    assert hint in done.stderr

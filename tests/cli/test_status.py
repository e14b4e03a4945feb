"""``headway status``: what people and programs see of a home."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.kit import Shell

MODEL = "llm/anthropic/claude-opus-4-20250514"


def row(table: str, key: str) -> list[str]:
    """The words of the line that begins with a word."""
    return next(line.split() for line in table.splitlines() if line.split()[:1] == [key])


def test_a_fresh_home_shows_the_default_and_what_to_do(shell: Shell) -> None:
    """On a fresh home there is one limit, from the default, and a hint how to begin."""
    seen = shell.run("status")

    assert seen.returncode == 0
    assert row(seen.stdout, "agent") == ["agent", "0/3", "-", "default"]
    assert "Nothing runs, nobody waits. Start something: headway run -- CMD" in seen.stdout
    assert not seen.stderr


def test_the_first_line_says_which_home_is_shown(shell: Shell) -> None:
    """People have several, and servers too; the person's own directory is a tilde."""
    seen = {**shell.environ, "HOME": str(shell.home.parent)}
    facts = json.loads(shell.run("status", "--json").stdout)

    assert shell.run("status").stdout.startswith(f"home {shell.home}\n\nKEY")
    assert shell.run("status", env=seen).stdout.startswith(f"home ~/{shell.home.name}\n")
    assert (facts["home"], facts["server"]) == (str(shell.home), None)


def test_a_bare_headway_shows_the_status(shell: Shell) -> None:
    """Without a command one gets the status."""
    assert shell.run().stdout == shell.run("status").stdout


def test_json_has_the_promised_shape(shell: Shell) -> None:
    """Programs find the names that are written down, with true values."""
    shell.run("limits", "set", "agent", "1")
    lease = shell.holding("agent/opencode", task="issue-1")
    ticket = shell.waiting("agent/claude", task="issue-2", priority=5)

    seen = shell.status()

    agent = next(limit for limit in seen["limits"] if limit["key"] == "agent")
    assert agent == {
        "key": "agent",
        "limit": 1,
        "source": "file",
        "used": 1,
        "reserved": 0,
        "free": 0,
        "waiting": 1,
        "paused": False,
        "cooling_until": None,
        "cooling_reason": None,
        "probing": False,
        "requests_per_minute": "unlimited",
        "requests_lately": 0,
        "next_request_at": None,
    }
    (running,) = seen["leases"]
    assert (running["id"], running["task"], running["keys"]) == (
        lease,
        "issue-1",
        ["agent/opencode"],
    )
    assert set(running) == {"id", "task", "keys", "weight", "since", "holder", "stopped"}
    assert set(running["holder"]) == {"pid", "host", "command"}
    (waiting,) = seen["waiting"]
    assert waiting["id"] == ticket
    assert waiting["priority"] == 5
    assert waiting["position"] == 1
    assert waiting["blocked_by"] == {"key": "agent", "reason": "full"}
    assert waiting["estimated_wait_seconds"] is None
    assert {"since", "keys", "task"} < set(waiting)


def test_who_runs_and_who_waits_is_listed(shell: Shell) -> None:
    """Leases and tickets appear with task, key and id, and limits with their use."""
    shell.run("limits", "set", "agent", "1")
    lease = shell.holding("agent/opencode", task="issue-1")
    ticket = shell.waiting("agent/claude", task="issue-2")

    seen = shell.run("status").stdout

    assert row(seen, "agent") == ["agent", "1/1", "1", "file", "full"]
    assert row(seen, "agent/opencode") == ["agent/opencode", "1/unlimited", "-", "-"]
    assert row(seen, lease)[:3] == [lease, "issue-1", "agent/opencode"]
    waiting = next(line.split() for line in seen.splitlines() if ticket in line)
    assert waiting[:4] == ["1", ticket, "issue-2", "agent/claude"]
    assert waiting[-3:] == ["agent", "full", "?"]
    assert "1 running" in seen
    assert "1 waiting" in seen


def test_a_limit_from_a_pattern_names_it(shell: Shell) -> None:
    """The source of a limit says on which line it stands if that is a pattern."""
    shell.run("limits", "set", "llm/*", "8")
    shell.holding(MODEL)

    assert row(shell.run("status").stdout, "llm/anthropic")[1:] == ["1/8", "-", "file:", "llm/*"]


def test_a_pause_is_shown_below_it_too(shell: Shell) -> None:
    """A paused key says so, and so do those below it."""
    shell.holding("llm/openai/gpt-5")
    shell.run("pause", "llm")

    seen = shell.run("status").stdout

    assert row(seen, "llm")[-1] == "paused"
    assert row(seen, "llm/openai/gpt-5")[-3:] == ["paused", "at", "llm"]


def test_a_paused_key_that_nobody_used_is_shown(shell: Shell) -> None:
    """A pause is never invisible."""
    shell.run("pause", "llm/openai")

    assert row(shell.run("status").stdout, "llm/openai")[-1] == "paused"


def test_a_lowered_limit_drains(shell: Shell) -> None:
    """A key over its limit says by how much."""
    shell.holding("agent/a")
    shell.holding("agent/b")
    shell.run("limits", "set", "agent", "1")

    assert row(shell.run("status").stdout, "agent")[-4:] == ["over", "by", "1,", "draining"]


def test_one_key_narrows_the_view(shell: Shell) -> None:
    """With a key one sees it, what is above and below, and a word about its neighbours."""
    shell.holding("agent/opencode", task="mine")
    shell.holding("agent/claude", task="theirs")
    shell.holding("llm/openai", task="other")

    seen = shell.run("status", "agent/opencode").stdout
    as_json = json.loads(shell.run("status", "agent/opencode", "--json").stdout)

    assert "mine" in seen
    assert "theirs" not in seen
    assert "llm" not in seen
    assert "1 more on agent; see them: headway status agent" in seen
    assert [limit["key"] for limit in as_json["limits"]] == ["agent", "agent/opencode"]
    assert [lease["task"] for lease in as_json["leases"]] == ["mine"]


def test_a_long_queue_is_cut_here_and_points_to_the_whole(shell: Shell) -> None:
    """Of many waiters the first ten are shown, and where the others are."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent")
    for number in range(12):
        shell.waiting("agent", task=f"task-{number}")

    seen = shell.run("status").stdout

    assert "12 waiting" in seen
    assert "task-9" in seen
    assert "task-10" not in seen
    assert "and 2 more; all of them: headway queue" in seen


def test_a_terminal_of_80_columns_is_not_exceeded(shell: Shell) -> None:
    """Long names give way in a narrow window; ids stay whole, and the model can be told."""
    lease = shell.holding(MODEL, task="a-very-long-task-name-for-the-nightly-refactoring")

    terminal = shell.terminal("status")

    assert terminal.wait() == 0
    lines = [line.rstrip("\r") for line in terminal.text.splitlines()]
    assert max(len(line) for line in lines) <= 80
    running = next(line for line in lines if line.startswith(lease))
    assert "a-very-long-t…" in running
    assert "/claude-opus" in running


def test_nothing_is_cut_in_a_pipe(shell: Shell) -> None:
    """Where no terminal is, names are whole."""
    task = "a-very-long-task-name-for-the-nightly-refactoring" * 3
    shell.holding(MODEL, task=task)

    assert task in shell.run("status").stdout


@pytest.mark.parametrize(
    ("environ", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_is_for_terminals_that_want_it(
    shell: Shell, environ: dict[str, str], *, coloured: bool
) -> None:
    """A full key is yellow on a terminal, unless its owner said no."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent")

    terminal = shell.terminal("status", env=environ)

    assert terminal.wait() == 0
    assert ("\x1b[33m" in terminal.raw) is coloured
    assert ("\x1b[" in terminal.raw) is coloured
    assert "full" in terminal.text


def test_a_pipe_gets_no_colour(shell: Shell) -> None:
    """There is no escape sequence in what a program reads."""
    shell.holding("agent")

    assert "\x1b" not in shell.run("status", env={"TERM": "xterm-256color"}).stdout


def test_a_task_cannot_drive_the_terminal(shell: Shell) -> None:
    """Control characters in someone's label are not printed as such."""
    shell.holding("agent", task="evil\x1b[2Jtask\nnext")

    seen = shell.run("status").stdout

    assert "\x1b" not in seen
    assert "evil?[2Jtask next" in seen


def test_a_dead_holder_is_gone(shell: Shell) -> None:
    """After kill -9 of a holder the status shows a free slot."""
    process = shell.hold("agent")
    assert process.stdout
    process.stdout.readline()

    process.kill()
    process.wait()

    assert row(shell.run("status").stdout, "agent")[1] == "0/3"


def test_a_reader_that_goes_away_is_no_error(shell: Shell) -> None:
    """``headway status | true`` is silent."""
    reading, writing = os.pipe()
    os.close(reading)

    process = shell.start("status", stdout=writing)
    os.close(writing)
    _, said = process.communicate(timeout=30)

    assert not said
    assert process.returncode == 0

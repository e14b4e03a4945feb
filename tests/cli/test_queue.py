"""``headway queue``: everyone who waits, and what for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.kit import until

if TYPE_CHECKING:
    from tests.cli.kit import Shell


def test_an_empty_queue_says_so(shell: Shell) -> None:
    """Nobody waits, in words and as JSON."""
    assert shell.run("queue").stdout == "Nobody waits.\n"
    assert json.loads(shell.run("queue", "--json").stdout) == []


def test_each_waiter_stands_under_what_blocks_it(shell: Shell) -> None:
    """Per blocking key there is a title with the reason, and rows in the order of the line."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent/opencode")
    late = shell.waiting("agent/opencode", task="late")
    early = shell.waiting("agent/opencode", task="early", priority=5)
    shell.run("pause", "llm/openai")
    paused = shell.waiting("llm/openai/gpt-5")

    seen = shell.run("queue").stdout.split("\n\n")

    agent = next(part.splitlines() for part in seen if part.startswith("agent:"))
    assert agent[0] == "agent: full, 1/1 in use, 2 waiting"
    assert agent[1].split()[:6] == ["#", "ID", "TASK", "ON", "PRIO", "FOR"]
    assert agent[2].split()[:5] == ["1", early, "early", "agent/opencode", "5"]
    assert agent[3].split()[:5] == ["2", late, "late", "agent/opencode", "0"]
    openai = next(part.splitlines() for part in seen if part.startswith("llm/openai:"))
    assert openai[0] == "llm/openai: paused, 0/unlimited in use, 1 waiting"
    assert openai[2].split()[:2] == ["1", paused]


def test_json_is_the_list_of_the_status(shell: Shell) -> None:
    """Programs get the same rows here as there."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent")
    shell.waiting("agent", task="next")

    assert json.loads(shell.run("queue", "--json").stdout) == shell.status()["waiting"]
    assert shell.status()["waiting"]


def test_a_wait_is_estimated_from_what_was_seen(shell: Shell) -> None:
    """Once a slot was given back, waiters are told how long it may take."""
    shell.run("limits", "set", "agent", "1")
    first = shell.hold("agent")
    assert first.stdin
    assert first.stdout
    first.stdout.readline()
    first.stdin.close()
    first.wait()
    shell.holding("agent")
    ticket = shell.waiting("agent")

    row = next(line for line in shell.run("queue").stdout.splitlines() if ticket in line)

    assert " ~" in row


def test_a_possible_deadlock_is_named(shell: Shell) -> None:
    """A thread that waits for the slot of whoever started it is shown as such, everywhere."""
    shell.run("limits", "set", "a", "1")
    shell.run("run", "--on", "a", "--", "true")  # a usual time is known, and yet none is told
    program = shell.hold("a", then=["a"])
    assert program.stdout
    program.stdout.readline()
    assert program.stdin
    program.stdin.write("go\n")
    program.stdin.flush()
    until(shell.waits(1))

    (ticket,) = shell.status()["waiting"]
    assert ticket["blocked_by"]["reason"] == "possible_deadlock"
    assert ticket["estimated_wait_seconds"] is None
    assert "a: in a possible deadlock, 1/1 in use, 1 waiting" in shell.run("queue").stdout
    assert "a possible deadlock" in shell.run("status").stdout
    why = shell.run("why", ticket["id"]).stdout
    assert "may be waiting for this very ticket" in why
    assert 'parent="current"' in why
    assert "may take   for ever" in why
    doctor = shell.run("doctor").stdout
    assert "a possible deadlock on a" in doctor.replace("\n", " ")
    assert "All is well" not in doctor


def test_forty_waiters_fit_on_80_columns(shell: Shell) -> None:
    """A long queue of long names is listed whole, in lines that fit."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent")
    for _ in range(40):
        shell.hold("agent/opencode", "llm/anthropic/claude-opus-4-20250514", task="long " * 20)
    until(shell.waits(40))

    terminal = shell.terminal("queue")

    assert terminal.wait() == 0
    lines = [line.rstrip("\r") for line in terminal.text.splitlines()]
    assert max(len(line) for line in lines) <= 80
    for ticket in shell.status()["waiting"]:
        assert any(f" {ticket['id']} " in line for line in lines)

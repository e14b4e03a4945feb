"""``headway cancel``: ending waits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import PROGRAM, until

if TYPE_CHECKING:
    from tests.cli.kit import Shell


@pytest.fixture
def full(shell: Shell) -> str:
    """A home whose one slot is taken; the lease's id."""
    shell.run("limits", "set", "agent", "1")
    return shell.holding("agent", task="holder")


def test_a_cancelled_waiter_is_told_and_the_next_moves_up(shell: Shell, full: str) -> None:
    """The program gets its error, and whoever was behind it is first now."""
    first = shell.hold("agent", task="first")
    until(shell.waits(1))
    behind = shell.waiting("agent")

    seen = shell.run("cancel", "first")

    assert seen.returncode == 0
    assert "(first) cancelled; it waited" in seen.stdout
    assert first.stdout
    assert first.stdout.readline() == "Cancelled\n"
    assert [(x["id"], x["position"]) for x in shell.status()["waiting"]] == [(behind, 1)]
    assert [x["id"] for x in shell.status()["leases"]] == [full]


def test_several_are_cancelled_by_id_prefix_and_task(shell: Shell, full: str) -> None:
    """Each word may be of another kind."""
    whole, start = shell.waiting("agent"), shell.waiting("agent")
    shell.waiting("agent", task="named")

    seen = shell.run("cancel", whole, start[:5], "named")

    assert (seen.returncode, len(seen.stdout.splitlines())) == (0, 3)
    assert shell.status()["waiting"] == []
    assert full


def test_a_lease_is_not_cancelled(shell: Shell, full: str) -> None:
    """What runs is left alone, with a word about what would end it."""
    seen = shell.run("cancel", full)

    assert seen.returncode == 1
    assert seen.stderr == (
        f"headway: {full} (holder) runs, so there is no wait to cancel;"
        f" to take its slot back: headway release {full}\n"
    )
    assert shell.status()["leases"]


def test_one_that_is_not_there_does_not_stop_the_others(shell: Shell, full: str) -> None:
    """All that can be cancelled is, and the code tells that something was missing."""
    shell.waiting("agent", task="there")

    seen = shell.run("cancel", "missing", "there")

    assert seen.returncode == 1
    assert "nothing is called 'missing'" in seen.stderr
    assert "(there) cancelled" in seen.stdout
    assert shell.status()["waiting"] == []
    assert full


def test_no_id_is_bad_usage(shell: Shell) -> None:
    """Nothing is cancelled by leaving the name out."""
    assert shell.run("cancel").returncode == 64


def test_a_command_of_headway_run_is_ended_by_its_task_and_can_be_looked_up(shell: Shell) -> None:
    """From another terminal; afterwards `why` tells how it ended."""
    front = shell.start("run", "--on", "agent/x", "--task", "issue-7", "--", "sleep", "60")
    until(shell.holds(1), "the start")

    ended = shell.run("cancel", "issue-7")

    assert ended.returncode == 0
    assert "(issue-7) is being ended: SIGTERM was sent to sleep 60" in ended.stdout
    assert front.wait(20) == 143
    story = shell.run("why", "issue-7").stdout
    assert "(issue-7) has ended; it held agent/x." in story
    assert "exit code  143 (signal 15)" in story
    facts = json.loads(shell.run("why", "issue-7", "--json").stdout)
    assert facts["state"] == "finished"
    assert (facts["run"]["command"], facts["run"]["code"]) == ("sleep 60", 143)


def test_a_stopped_waiter_is_ended(shell: Shell) -> None:
    """It goes on for that, and its shell is told."""
    shell.run("limits", "set", "k", "1")
    shell.holding("k")
    terminal = shell.terminal_for("bash", "--norc", "--noprofile", "-i", env={"PS1": "$ "})
    terminal.wait_for("$ ")
    terminal.press(f"{PROGRAM} run --on k --task first -- true\n")
    terminal.wait_for("for k (full)")
    terminal.press("\x1a")
    terminal.wait_for("Stopped")
    until(lambda: any(x["stopped"] for x in shell.status()["waiting"]), "its being shown")

    assert shell.run("cancel", "first").returncode == 0

    until(lambda: shell.status()["waiting"] == [], "its leaving")
    terminal.press("wait %1; echo code $?\n")
    terminal.wait_for("code 143")
    terminal.press("exit\n")
    terminal.wait()

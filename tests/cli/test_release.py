"""``headway release``: taking a lease back by hand."""

from __future__ import annotations

import json
import os
import pwd
import re
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until

if TYPE_CHECKING:
    from tests.cli.kit import Shell


def test_force_gives_the_slot_to_the_next_and_tells_the_holder(shell: Shell) -> None:
    """The waiter runs, and the holder, whose work goes on, knows that its lease is lost."""
    shell.run("limits", "set", "agent", "1")
    holder = shell.hold("agent", task="old")
    assert holder.stdin
    assert holder.stdout
    lease = holder.stdout.readline().strip()
    waiter = shell.hold("agent", task="new")
    until(shell.waits(1))

    seen = shell.run("release", "old", "--force")

    assert seen.returncode == 0
    assert seen.stdout == (
        f"{lease} (old) released: agent is free for the next in line."
        f" Its holder, pid {holder.pid}, is told; its work goes on.\n"
    )
    assert waiter.stdout
    assert waiter.stdout.readline()

    def told() -> bool:
        assert holder.stdin
        assert holder.stdout
        holder.stdin.write("\n")
        holder.stdin.flush()
        return holder.stdout.readline() == "lost\n"

    until(told, "word of the loss")
    assert holder.poll() is None


def _without_age(story: str) -> str:
    """It is told a moment later."""
    return re.sub(r"when +.* ago", "when", story)


def test_who_took_a_lease_back_is_on_record(shell: Shell) -> None:
    """``why`` tells it also when the holder is gone, and ``doctor`` that there is something."""
    holder = shell.hold("agent/x", task="old")
    assert holder.stdout
    lease = holder.stdout.readline().strip()
    shell.run("release", "old", "--force", env={"HEADWAY_TASK": "clearing up"})
    holder.communicate("")

    story, user = shell.run("why", lease).stdout, pwd.getpwuid(os.getuid()).pw_name

    assert f"{lease} (old) was taken back by hand; it held agent/x." in story
    assert f"held by    pid {holder.pid} (" in story
    assert f"taken by   {user}, task clearing up, pid " in story
    assert "release old --force)" in story
    again = shell.run("why", "old").stdout
    assert _without_age(again) == _without_age(story)
    told = f"1 lease taken back by hand, the last one {lease} (old) by {user}"
    assert told in shell.run("doctor").stdout


def test_a_terminal_is_on_record(shell: Shell) -> None:
    """Where it was done."""
    lease = shell.holding("agent")
    terminal = shell.terminal("release", lease, "--force")
    assert terminal.wait() == 0

    by = json.loads(shell.run("why", lease, "--json").stdout)["by"]

    assert by["terminal"].startswith("/dev/")


def test_what_runs_now_goes_before_what_is_on_record(shell: Shell) -> None:
    """A task that was given a slot again is told about as it is."""
    shell.holding("agent", task="twice")
    shell.run("release", "twice", "--force")
    shell.holding("agent", task="twice")

    assert "twice) runs; it holds agent" in shell.run("why", "twice").stdout


def test_without_a_terminal_force_is_needed(shell: Shell) -> None:
    """Where nobody can be asked, nothing is taken."""
    lease = shell.holding("agent")

    seen = shell.run("release", lease)

    assert seen.returncode == 64
    assert "add --force" in seen.stderr
    assert shell.status()["leases"]


@pytest.mark.parametrize(("answer", "left", "code"), [("y", 0, 0), ("n", 1, 1), ("", 1, 1)])
def test_a_terminal_is_asked(shell: Shell, answer: str, left: int, code: int) -> None:
    """Only a yes takes the lease; the question says whose it is and what it means."""
    lease = shell.holding("agent", task="old")

    terminal = shell.terminal("release", lease)
    terminal.wait_for("Take it back? [y/N]:")
    terminal.press(f"{answer}\n")

    assert terminal.wait() == code
    assert f"{lease} (old) holds agent for" in terminal.text
    assert "its work goes on without a slot" in terminal.text
    assert len(shell.status()["leases"]) == left


def test_ctrl_c_at_the_question_takes_nothing(shell: Shell) -> None:
    """Whoever changes their mind has changed nothing."""
    lease = shell.holding("agent")

    terminal = shell.terminal("release", lease)
    terminal.wait_for("Take it back?")
    terminal.press("\x03")

    assert terminal.wait() == 130
    assert "Traceback" not in terminal.text
    assert shell.status()["leases"]


def test_a_ticket_that_waits_is_not_released(shell: Shell) -> None:
    """It holds nothing; cancel is the word."""
    shell.run("limits", "set", "agent", "1")
    shell.holding("agent")
    ticket = shell.waiting("agent")

    seen = shell.run("release", ticket, "--force")

    assert seen.returncode == 1
    assert f"headway cancel {ticket}" in seen.stderr
    assert shell.status()["waiting"]


def test_a_lease_that_is_not_there_is_code_1(shell: Shell) -> None:
    """A wrong name releases nothing."""
    assert shell.run("release", "nobody", "--force").returncode == 1

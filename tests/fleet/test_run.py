"""``headway run`` on a server: whoever of those round a command is killed, what runs counts."""

from __future__ import annotations

import os
import signal
import subprocess
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.cli.kit import PROGRAM, until

if TYPE_CHECKING:
    from tests.cli.kit import Shell
    from tests.fleet.conftest import Persons
    from tests.fleet.server import Server

pytestmark = pytest.mark.linux

TIMED_OUT = 124


def running(shell: Shell, **options: Any) -> subprocess.Popen[str]:
    """A command that runs and has the only slot, until its input is closed."""
    process = shell.start(
        *("run", "--on", "k", "--", "sh", "-c", "echo running; exec cat"),
        stdin=subprocess.PIPE,
        **options,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "running\n"
    return process


def let_go(process: subprocess.Popen[str]) -> None:
    """Let the command end."""
    assert process.stdin is not None
    process.stdin.close()


def ask(shell: Shell, *, timeout: str = "60s") -> int:
    """What becomes of one who wants the slot as well."""
    done = shell.run("run", "--on", "k", "--timeout", timeout, "--", "true")
    return done.returncode


def heard_of(server: Server, lease: dict[str, Any]) -> float:
    """Until when the server believes that its holder lives."""
    holder = lease["id"].partition("-")[0]
    return float(server.client.zscore("{headway:default}:holders", holder))


def supervisor_of(front: subprocess.Popen[str]) -> psutil.Process:
    """The process between what was started and the command."""
    (supervisor,) = psutil.Process(front.pid).children()
    return supervisor


def test_the_command_counts_though_its_front_was_killed(person: Persons) -> None:
    """Until it is gone: then, and not before, the next one runs."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "k", "1")
    front = running(ann)

    front.kill()

    assert ask(bob, timeout="500ms") == TIMED_OUT
    let_go(front)
    assert ask(bob) == 0


def test_the_command_counts_though_its_supervisor_was_killed(
    person: Persons, server: Server
) -> None:
    """The server hears of it from the front, and nobody else of that machine need be there."""
    ann, bob = person("ann"), person("bob")
    bob.run("limits", "set", "k", "1")
    ann.environ["HEADWAY_STORE_LEASE_SECONDS"] = "60"
    front = running(ann)
    (lease,) = bob.status()["leases"]
    heard_until = partial(heard_of, server, lease)
    before = heard_until()

    supervisor_of(front).kill()

    until(lambda: heard_until() > before, "a word for the dead")
    assert ask(bob, timeout="500ms") == TIMED_OUT
    let_go(front)
    assert ask(bob) == 0
    assert front.wait() == 0


def test_a_group_that_is_killed_gives_its_slot_back(person: Persons) -> None:
    """With everything in it, at once."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "k", "1")
    front = running(ann, start_new_session=True)
    supervisor = supervisor_of(front)
    until(lambda: os.getpgid(supervisor.pid) != front.pid, "the supervisor's own session")

    os.killpg(front.pid, signal.SIGKILL)

    assert ask(bob) == 0


def test_a_rest_that_outlives_its_guards_together_is_not_counted(person: Persons) -> None:
    """Nobody is left who could speak for it; the server hears nothing, and the next one runs."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "k", "1")
    front = running(ann)

    os.kill(supervisor_of(front).pid, signal.SIGKILL)
    front.kill()

    assert ask(bob) == 0


def test_a_run_inside_a_run_goes_ahead_on_its_slot(person: Persons) -> None:
    """The lease is lent through the environment, also where another home is set in between."""
    ann = person("ann")
    ann.run("limits", "set", "k", "1")
    inner = ("headway", "run", "--on", "k", "--timeout", "30s", "--")

    done = ann.run("run", "--on", "k", "--", *inner, *inner, "echo", "inside")

    assert (done.stdout, done.returncode) == ("inside\n", 0), done.stderr
    assert ann.status()["leases"] == []


def test_a_waiter_stopped_by_ctrl_z_is_passed_over_and_keeps_its_place(person: Persons) -> None:
    """Also for those on other machines, who see that it is stopped."""
    ann, bob = person("ann"), person("bob")
    ann.run("limits", "set", "k", "1")
    holder = running(bob)
    terminal = ann.terminal_for("bash", "--norc", "--noprofile", "-i", env={"PS1": "$ "})
    terminal.wait_for("$ ")
    terminal.press(f"{PROGRAM} run --on k --task first -- echo it ra''n\n")
    terminal.wait_for("for k (full)")
    second = bob.start("run", "--on", "k", "--task", "second", "--", "cat", stdin=subprocess.PIPE)
    until(bob.waits(2), "the queueing")

    terminal.press("\x1a")
    terminal.wait_for("Stopped")
    (stopped,) = until(lambda: [x for x in bob.status()["waiting"] if x["stopped"]], "the stop")
    let_go(holder)

    until(lambda: [x["task"] for x in bob.status()["leases"]] == ["second"], "the passing over")
    assert (stopped["task"], stopped["position"]) == ("first", 1)
    terminal.press("fg\n")
    until(lambda: not any(x["stopped"] for x in bob.status()["waiting"]), "the going on")
    second.communicate("")
    terminal.wait_for("it ran")
    terminal.press("exit\n")
    terminal.wait()

"""``headway run`` and signals: stopping, going on, hanging up, and each of them at a bad moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.cli.kit import PROGRAM, until

if TYPE_CHECKING:
    from tests.cli.kit import Shell

pytestmark = pytest.mark.linux

_READ_A_LINE = ("sh", "-c", "echo $$; read line; exit 4")
# As agents do that read the terminal's keys themselves.
_STOP_THE_GROUP = """
import os, signal
os.kill(0, signal.SIGSTOP)
print("go" + "es on", flush=True)
print("got", input())
"""
_EXEC_WITH_ALARM = """
import os, signal, sys
signal.alarm(1)
os.execv(sys.argv[1], sys.argv[1:])
"""
_SIGNAL_ON_THE_WAY_OUT = """
import os, signal
from headway import supervisor

block = supervisor.signal.pthread_sigmask
def signal_again(how, signals):
    supervisor.signal.pthread_sigmask = block
    os.kill(os.getpid(), signal.SIGTERM)
def work(_):
    supervisor.signal.pthread_sigmask = signal_again
    os.kill(os.getpid(), signal.SIGTERM)
os._exit(supervisor.supervise(work))
"""
_SIGNAL_IN_A_CALLBACK = """
import os, signal
from headway import supervisor

class Dropped:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
def work(_):
    Dropped()
    while True:
        signal.pause()
os._exit(supervisor.supervise(work))
"""


def _start_reader(shell: Shell) -> tuple[subprocess.Popen[str], psutil.Process, psutil.Process]:
    """A command that reads a line: its front, its supervisor and itself."""
    words = ("run", "--on", "k", "--", *_READ_A_LINE)
    front = shell.start(*words, stdin=subprocess.PIPE, start_new_session=True)
    assert front.stdout is not None
    command = psutil.Process(int(front.stdout.readline()))
    until(lambda: os.readlink(f"/proc/{front.pid}/fd/1") == os.devnull, "the front's being told")
    supervisor = command.parent()
    assert supervisor is not None
    return front, supervisor, command


def _fill(shell: Shell) -> subprocess.Popen[str]:
    """Someone who holds the only slot of ``k`` until its stdin is closed."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    return holder


def _stop(process: psutil.Process, front: subprocess.Popen[str]) -> None:
    """Stop a process, and wait until the front has taken note."""
    naps = psutil.Process(front.pid).num_ctx_switches().voluntary
    process.send_signal(signal.SIGSTOP)
    until(lambda: process.status() == psutil.STATUS_STOPPED, "the stop")
    until(
        lambda: psutil.Process(front.pid).num_ctx_switches().voluntary > naps, "the front's notice"
    )


def _ends_with(front: subprocess.Popen[Any]) -> int | None:
    try:
        until(lambda: front.poll() is not None, "the front's end")
    finally:
        front.kill()
    return front.returncode


@pytest.mark.parametrize("who", ["supervisor", "command"])
def test_who_was_stopped_alone_can_go_on_alone(shell: Shell, who: str) -> None:
    """The front does not stay behind."""
    front, supervisor, command = _start_reader(shell)
    process = {"supervisor": supervisor, "command": command}[who]
    _stop(process, front)

    process.send_signal(signal.SIGCONT)
    assert front.stdin is not None
    front.stdin.write("\n")
    front.stdin.close()

    assert _ends_with(front) == 4


def test_a_supervisor_stopped_in_line_goes_on_alone(shell: Shell) -> None:
    """The front waits for it meanwhile."""
    holder = _fill(shell)
    front = shell.start("run", "--on", "k", "--", "true")
    until(shell.waits(1), "the queueing")
    (supervisor,) = psutil.Process(front.pid).children()
    _stop(supervisor, front)

    supervisor.send_signal(signal.SIGCONT)
    holder.communicate("")

    assert _ends_with(front) == 0


def test_a_command_that_stops_its_group_goes_on_with_it(shell: Shell) -> None:
    """After the first ``fg``, not the second."""
    agent = shell.directory / "agent.py"
    agent.write_text(_STOP_THE_GROUP)
    terminal = shell.terminal_for("bash", "--norc", "--noprofile", "-i", env={"PS1": "$ "})
    terminal.wait_for("$ ")
    terminal.press(f"{PROGRAM} run --on k -- {sys.executable} {agent}\n")
    terminal.wait_for("Stopped")

    terminal.press("fg\n")
    terminal.wait_for("goes on")
    terminal.press("a word\n")

    terminal.wait_for("got a word")
    terminal.press("exit\n")
    terminal.wait()


def test_a_terminal_that_goes_away_ends_the_command(shell: Shell) -> None:
    """As the first program in a window, the front is the only one to be told."""
    terminal = shell.terminal("run", "--on", "k", "--", "sh", "-c", "echo up; exec sleep 60")
    terminal.wait_for("up")

    terminal.hang_up()

    assert terminal.wait() == 128 + signal.SIGHUP
    assert shell.status()["leases"] == []


def test_a_terminal_that_goes_away_ends_the_wait(shell: Shell) -> None:
    """Nobody would see what the command does."""
    holder = _fill(shell)
    terminal = shell.terminal("run", "--on", "k", "--", "true")
    terminal.wait_for("for k (full)")

    terminal.hang_up()

    assert terminal.wait() == 128 + signal.SIGHUP
    assert shell.status()["waiting"] == []
    holder.communicate("")


def test_an_alarm_that_the_caller_has_set_reaches_the_command(shell: Shell) -> None:
    """The kernel sends it, as it does what comes from a terminal, but to one process only."""
    command = (PROGRAM, "run", "--on", "k", "--", "sleep", "60")
    front = subprocess.Popen(
        [sys.executable, "-c", _EXEC_WITH_ALARM, *command], env=shell.environ, text=True
    )

    # The first, should it strike before there is a supervisor.
    assert _ends_with(front) in {-signal.SIGALRM, 128 + signal.SIGALRM}
    assert shell.status()["leases"] == []


def test_a_second_signal_may_come_while_the_first_is_seen_to(shell: Shell) -> None:
    """Also in the last moment, when no more are wanted."""
    command = [sys.executable, "-c", _SIGNAL_ON_THE_WAY_OUT]
    front = subprocess.Popen(command, env=shell.environ)

    assert _ends_with(front) == 128 + signal.SIGTERM


def test_a_signal_ends_the_wait_also_from_within_a_callback(shell: Shell) -> None:
    """Where Python shows what is raised, and goes on."""
    command = [sys.executable, "-c", _SIGNAL_IN_A_CALLBACK]
    front = subprocess.Popen(command, env=shell.environ, stderr=subprocess.DEVNULL)

    assert _ends_with(front) == 128 + signal.SIGTERM


def test_a_killed_front_leaves_no_ghost_where_sigterm_is_ignored(shell: Shell) -> None:
    """What the caller ignores, the supervisor does as well."""
    holder = _fill(shell)
    script = f"trap '' TERM; exec {PROGRAM} run --on k -- echo ran"
    front = subprocess.Popen(
        ["sh", "-c", script], env=shell.environ, text=True, stdout=subprocess.PIPE
    )
    until(shell.waits(1), "the queueing")

    front.kill()

    until(shell.waits(0), "its leaving")
    holder.communicate("")
    assert front.communicate()[0] == ""


def test_without_a_supervisor_the_front_passes_signals_on(shell: Shell) -> None:
    """And stops with the command."""
    front, supervisor, command = _start_reader(shell)
    supervisor.kill()
    until(lambda: command.ppid() == front.pid, "the inheritance")

    command.send_signal(signal.SIGSTOP)
    until(lambda: psutil.Process(front.pid).status() == psutil.STATUS_STOPPED, "the stop")
    front.send_signal(signal.SIGCONT)
    until(lambda: command.status() != psutil.STATUS_STOPPED, "the going on")
    front.terminate()

    assert _ends_with(front) == 128 + signal.SIGTERM
    assert shell.status()["leases"] == []


def test_a_supervisor_killed_as_soon_as_it_started_the_command(shell: Shell) -> None:
    """The command counts, even if the front has not heard of it yet."""
    holder = _fill(shell)
    front = shell.start("run", "--on", "k", "--", *_READ_A_LINE, stdin=subprocess.PIPE)
    until(shell.waits(1), "the queueing")
    (supervisor,) = psutil.Process(front.pid).children()
    front.send_signal(signal.SIGSTOP)
    holder.communicate("")
    assert front.stdout is not None
    command = psutil.Process(int(front.stdout.readline()))
    until(lambda: os.getsid(supervisor.pid) == supervisor.pid, "the supervisor's moving away")

    supervisor.kill()
    until(lambda: command.ppid() != supervisor.pid, "the inheritance")
    front.send_signal(signal.SIGCONT)

    assert shell.run("run", "--no-wait", "--on", "k", "--", "true").returncode == 75
    assert command.ppid() == front.pid
    front.communicate("\n")
    assert front.returncode == 4

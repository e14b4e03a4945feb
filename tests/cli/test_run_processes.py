"""``headway run`` and processes: trees, kills, signals. What still runs still counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.cli.kit import PROGRAM, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.kit import Shell

pytestmark = pytest.mark.linux

# Says which signals it gets, and ends with the last of them.
_COUNT_SIGNALS = """
import os, signal, sys
def show(number, _):
    print(number, flush=True)
    if number == signal.SIGUSR2:
        sys.exit()
for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
    signal.signal(getattr(signal, "SIG" + name), show)
print("ready", flush=True)
while True:
    signal.pause()
"""

# Its supervisor is killed when the command has been started, and before it could say so.
_MUTE_SUPERVISOR = """
import os, signal, sys
from headway import cli, programs

start = programs.start
def start_and_be_killed(*arguments, **options):
    start(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
programs.start = start_and_be_killed
cli.main()
"""


@pytest.fixture
def strays() -> Iterator[list[int]]:
    """Processes that a test leaves on purpose; ended after it."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _supervisor_of(front: subprocess.Popen[str]) -> psutil.Process:
    (supervisor,) = psutil.Process(front.pid).children()
    return supervisor


def _children(front: subprocess.Popen[str]) -> list[str]:
    return [child.name() for child in psutil.Process(front.pid).children()]


def test_what_is_left_of_a_command_is_named_to_others(shell: Shell, strays: list[int]) -> None:
    """A slot that only a left-over process holds is not shown as held by its command."""
    shell.run("run", "-q", "--on", "k", "--", "sh", "-c", "sleep 60 >/dev/null 2>&1 & exit 0")

    (lease,) = shell.status()["leases"]
    (rest,) = psutil.Process(lease["holder"]["pid"]).children()
    strays.append(rest.pid)

    until(lambda: f"(left over: sleep ({rest.pid})) sh -c" in shell.run("status").stdout)
    assert f"left over: sleep ({rest.pid})" in shell.run("why", lease["id"]).stdout


@pytest.mark.parametrize("start", ["sleep 60", "setsid sleep 60", "(setsid sleep 60 &)"])
def test_the_slot_is_held_until_the_whole_tree_is_gone(
    shell: Shell, strays: list[int], start: str
) -> None:
    """A command that forks and returns gives its code now and its slot when the rest is gone."""
    script = f"{start} >/dev/null 2>&1 & exit 3"
    front = shell.start("run", "--on", "k", "--", "sh", "-c", script)

    _, said = front.communicate()

    assert front.returncode == 3
    assert "k stays in use: the command left sleep (" in said
    strays.append(int(said.partition("left sleep (")[2].partition(")")[0]))
    assert len(shell.status()["leases"]) == 1
    os.kill(strays[0], signal.SIGKILL)
    until(shell.holds(0), "the end of the lease")


def test_what_is_left_counts_even_if_nobody_can_be_told(shell: Shell, strays: list[int]) -> None:
    """Whoever read stderr is gone."""
    script = "setsid sleep 60 >/dev/null 2>&1 & echo $!; exit 3"
    reading, writing = os.pipe()
    os.close(reading)
    front = shell.start("run", "--on", "k", "--", "sh", "-c", script, stderr=writing)
    os.close(writing)

    strays.append(int(_line(front)))

    assert front.wait() == 3
    assert len(shell.status()["leases"]) == 1


def test_detach_ok_gives_back_with_the_first_process(shell: Shell, strays: list[int]) -> None:
    """What it leaves is not counted, and not ended either."""
    script = "sleep 60 >/dev/null 2>&1 & echo $!"
    front = shell.start("run", "--detach-ok", "--on", "k", "--", "sh", "-c", script)

    out, said = front.communicate()

    strays.append(int(out))
    assert (said, front.returncode) == ("", 0)
    assert shell.status()["leases"] == []
    assert psutil.pid_exists(strays[0])


def test_a_short_lived_rest_is_not_worth_a_word(shell: Shell) -> None:
    """Children that end a moment after their parent are waited for."""
    script = "sleep 0.02 & exit 0"
    done = shell.run("run", "--on", "k", "--", "sh", "-c", script)

    assert (done.stderr, done.returncode) == ("", 0)
    assert shell.status()["leases"] == []


def test_killing_the_front_leaves_the_command_counted(shell: Shell, strays: list[int]) -> None:
    """Until it is gone: then, and not before, the next one runs."""
    shell.run("limits", "set", "k", "1")
    front = shell.start("run", "--on", "k", "--", "sh", "-c", "echo $$; exec sleep 60")
    strays.append(int(_line(front)))
    front.kill()
    front.wait()
    following = shell.start("run", "--on", "k", "--", "echo", "ran")
    until(shell.waits(1), "the queueing")

    assert len(shell.status()["leases"]) == 1
    assert following.poll() is None
    os.kill(strays[0], signal.SIGKILL)

    assert following.communicate()[0] == "ran\n"


def test_killing_the_whole_group_leaves_what_moved_away_counted(
    shell: Shell, strays: list[int]
) -> None:
    """The supervisor is not in the group, and what the command moved to a session neither."""
    script = "setsid sh -c 'echo $$; exec sleep 60' & wait"
    front = shell.start("run", "--on", "k", "--", "sh", "-c", script, start_new_session=True)
    strays.append(int(_line(front)))
    supervisor = _supervisor_of(front).pid
    until(lambda: os.getsid(supervisor) == supervisor, "the supervisor's moving away")

    os.killpg(front.pid, signal.SIGKILL)
    front.wait()

    assert len(shell.status()["leases"]) == 1
    os.kill(strays[0], signal.SIGKILL)
    until(shell.holds(0), "the end of the lease")


def test_killing_the_supervisor_leaves_the_command_counted(shell: Shell) -> None:
    """The front keeps a copy of its lock, inherits the command and learns its code."""
    shell.run("limits", "set", "k", "1")
    script = "echo up; read line; exit 5"
    front = shell.start("run", "--on", "k", "--", "sh", "-c", script, stdin=subprocess.PIPE)
    assert _line(front) == "up"
    _supervisor_of(front).kill()
    following = shell.start("run", "--on", "k", "--", "echo", "ran")
    until(shell.waits(1), "the queueing")
    until(lambda: _children(front) == ["sh"], "the inheritance")

    assert following.poll() is None
    front.communicate("\n")

    assert front.returncode == 5
    assert following.communicate()[0] == "ran\n"


def test_killing_the_supervisor_before_it_could_say_what_it_started(shell: Shell) -> None:
    """The front finds the command among those it inherits."""
    command = ("run", "--on", "k", "--", "sh", "-c", "sleep 0.01 & exit 5")
    done = subprocess.run(
        [sys.executable, "-c", _MUTE_SUPERVISOR, *command], env=shell.environ, check=False
    )

    assert done.returncode == 5
    assert shell.status()["leases"] == []


def test_a_killed_front_leaves_no_ghost_in_the_queue(shell: Shell) -> None:
    """Nobody would wait for what it waits for."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    waiting = shell.start("run", "--on", "k", "--", "echo", "ran")
    until(shell.waits(1), "the queueing")

    waiting.kill()

    until(shell.waits(0), "its leaving")
    holder.communicate("")
    assert waiting.communicate()[0] == ""


def test_a_lease_outlives_its_front_and_the_database(shell: Shell, strays: list[int]) -> None:
    """The supervisor says again what it holds when ``slots.db`` was deleted."""
    shell.run("limits", "set", "k", "1")
    front = shell.start("run", "--on", "k", "--", "sh", "-c", "echo $$; exec sleep 60")
    strays.append(int(_line(front)))
    front.kill()
    front.wait()
    for file in shell.home.glob("slots.db*"):
        file.unlink()

    assert shell.run("run", "--no-wait", "--on", "k", "--", "echo", "ran").returncode == 75
    assert len(shell.status()["leases"]) == 1


def test_signals_are_passed_on_once(shell: Shell) -> None:
    """Whoever sends them to the front means the command."""
    front = shell.start("run", "--on", "k", "--", sys.executable, "-c", _COUNT_SIGNALS)
    assert _line(front) == "ready"

    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT, signal.SIGQUIT):
        front.send_signal(signum)
        assert _line(front) == str(int(signum))
    front.send_signal(signal.SIGUSR2)

    assert front.communicate()[0] == "12\n"
    assert front.returncode == 0
    assert shell.status()["leases"] == []


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_ends_the_wait(shell: Shell, signum: signal.Signals) -> None:
    """With 128 + n; nothing is started and no ticket stays."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    waiting = shell.start("run", "--on", "k", "--", "echo", "ran")
    until(shell.waits(1), "the queueing")

    waiting.send_signal(signum)

    assert waiting.communicate()[0] == ""
    assert waiting.returncode == 128 + signum
    assert shell.status()["waiting"] == []
    holder.communicate("")


def test_timeout_in_front_ends_the_command(shell: Shell) -> None:
    """``timeout(1)`` signals its child and its group."""
    command = ["timeout", "-s", "TERM", "0.5", PROGRAM, "run", "--on", "k", "--", "sleep", "60"]
    done = subprocess.run(command, env=shell.environ, check=False, timeout=30)

    assert done.returncode == 124
    until(shell.holds(0), "the end of the lease")


def test_readers_of_a_pipe_wait_for_the_command_only(shell: Shell, strays: list[int]) -> None:
    """Not for the supervisor that minds what the command has left."""
    script = "sleep 60 >/dev/null 2>&1 </dev/null & echo $!"
    done = shell.run("run", "-q", "--on", "k", "--", "sh", "-c", script)

    strays.append(int(done.stdout))
    assert len(shell.status()["leases"]) == 1


def test_nested_runs_count_inside_and_outside(shell: Shell, strays: list[int]) -> None:
    """What the inner command leaves keeps the outer slot as well."""
    inner = f"{PROGRAM} run -q --on inner -- sh -c 'setsid sleep 60 >/dev/null 2>&1 & echo $!'"
    done = shell.run("run", "-q", "--on", "outer", "--", "sh", "-c", inner)

    strays.append(int(done.stdout))
    keys = sorted(key for lease in shell.status()["leases"] for key in lease["keys"])
    assert keys == ["inner", "outer"]
    os.kill(strays[0], signal.SIGKILL)
    until(shell.holds(0), "the end of both")


def test_whose_slot_was_given_back_is_said_by_name(shell: Shell) -> None:
    """Also by one who has just come and finds the dead."""
    shell.holding("other")
    dead = shell.hold("k")
    until(shell.holds(2), "the start")
    dead.kill()
    dead.wait()

    said = shell.run("run", "--on", "k", "--", "true").stderr

    assert f"from pid {dead.pid} (" in said


def test_what_outlives_a_nested_run_goes_ahead_on_the_outer_ones_slot(shell: Shell) -> None:
    """The run that started it has given its slot back; the one round that still has its own."""
    shell.run("limits", "set", "k", "1")
    os.mkfifo(shell.directory / "gate")
    late = f"read line < gate; exec {PROGRAM} run --on k --no-wait -- echo late"
    middle = f"{PROGRAM} run --on k --detach-ok -- sh -c '({late}) &'"

    done = shell.run("run", "-q", "--on", "k", "--", "sh", "-c", f"{middle}; echo go > gate")

    assert (done.stdout, done.stderr, done.returncode) == ("late\n", "", 0)


def test_too_low_a_limit_of_open_files_is_named(shell: Shell) -> None:
    """Wherever it strikes, in one line and with code 69; nothing is run without its slot."""
    shell.run("limits", "set", "k", "1")
    refused = 0
    for most in range(8, 30):
        script = f"ulimit -n {most}; exec {PROGRAM} run --on k -- echo ran"
        done = subprocess.run(
            ["sh", "-c", script], env=shell.environ, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            assert (done.stdout, done.stderr) == ("ran\n", "")
            continue
        refused += 1
        assert (done.returncode, done.stdout) == (69, ""), f"{most}: {done.stderr}"
        assert done.stderr.count("\n") == 1, f"{most}: {done.stderr}"
        assert f"the limit is {most}; raise it with ulimit -n" in done.stderr, most
    assert refused


def test_a_run_that_would_wait_for_the_run_round_it_is_refused(shell: Shell) -> None:
    """Exit 75; what it says is for a shell, not for Python."""
    shell.run("limits", "set", "k", "2")
    inner = (PROGRAM, "run", "--on", "k", "--weight", "2", "--", "echo", "ran")

    done = shell.run("run", "--on", "k", "--", *inner)

    assert (done.returncode, done.stdout) == (75, "")
    assert "no slot on k, now or later: this command runs inside what holds it" in done.stderr
    assert "ask for less (--weight), give k more slots (headway limits set k N)" in done.stderr
    assert "parent=" not in done.stderr


def test_a_run_in_another_home_in_between_is_no_obstacle(shell: Shell) -> None:
    """Inside a run of one home one of another, and inside that one of the first."""
    shell.run("limits", "set", "k", "1")
    inner = f"HEADWAY_HOME={shell.home} {PROGRAM} run --on k --no-wait -- echo inner"
    middle = f'HEADWAY_HOME={shell.directory}/other {PROGRAM} run --on k -- sh -c "{inner}"'

    done = shell.run("run", "--on", "k", "--", "sh", "-c", middle)

    assert (done.stdout, done.stderr, done.returncode) == ("inner\n", "", 0)

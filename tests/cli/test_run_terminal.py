"""``headway run`` on a terminal: keys, job control, the size of the window, the live line."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, cast

import psutil
import pytest
from tests.cli.kit import PROGRAM, until
from tests.slots.support import Worker

from headway import journal
from headway.cli import run, waiting_line
from headway.cli.run_options import parse
from headway.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.kit import Shell

    from headway.slot import Lease
    from headway.supervisor import Supervisor

_COUNT_INTERRUPTS = """
import signal, sys
seen = []
def count(*_):
    seen.append(1)
    print("interrupts:", len(seen), flush=True)
signal.signal(signal.SIGINT, count)
print("ready", flush=True)
for line in sys.stdin:
    if line.strip() == "end":
        break
    print("got", line.strip(), flush=True)
print("total:", len(seen), flush=True)
"""
_SHOW_SIZE = """
import os, signal, sys
show = lambda *_: print("columns", os.get_terminal_size().columns, flush=True)
signal.signal(signal.SIGWINCH, show)
show()
sys.stdin.readline()
"""


def test_the_command_has_the_real_terminal(shell: Shell) -> None:
    """It can ask questions, and is in the foreground."""
    question = (
        "import sys; print(sys.stdin.isatty(), sys.stdout.isatty()); print('hi', input('name? '))"
    )
    terminal = shell.terminal("run", "--", sys.executable, "-c", question)

    terminal.wait_for("True True")
    terminal.wait_for("name? ")
    terminal.press("Ada\n")
    terminal.wait_for("hi Ada")

    assert terminal.wait() == 0


def test_ctrl_c_reaches_the_command_once(shell: Shell) -> None:
    """Agents quit on the second one."""
    terminal = shell.terminal("run", "--on", "k", "--", sys.executable, "-c", _COUNT_INTERRUPTS)
    terminal.wait_for("ready")

    terminal.press("\x03")
    terminal.wait_for("interrupts: 1")
    terminal.press("still there\n")
    terminal.wait_for("got still there")
    terminal.press("end\n")

    terminal.wait_for("total: 1")
    assert terminal.wait() == 0


def test_ctrl_c_that_ends_the_command_gives_130(shell: Shell) -> None:
    """And the slot is free."""
    terminal = shell.terminal("run", "--on", "k", "--", "sh", "-c", "echo up; exec sleep 60")
    terminal.wait_for("up")

    terminal.press("\x03")

    assert terminal.wait() == 130
    assert shell.status()["leases"] == []


def test_ctrl_c_while_waiting_leaves_the_line(shell: Shell) -> None:
    """With 130; the command is not started."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    terminal = shell.terminal("run", "--on", "k", "--", "echo", "ran")
    terminal.wait_for("for k (full)")

    terminal.press("\x03")

    assert terminal.wait() == 130
    assert "ran" not in terminal.text
    assert "Traceback" not in terminal.text
    assert shell.status()["waiting"] == []
    holder.communicate("")


def test_ctrl_z_stops_and_fg_goes_on(shell: Shell) -> None:
    """The shell gets its prompt back; the stopped command keeps its slot."""
    terminal = shell.terminal_for("bash", "--norc", "--noprofile", "-i", env={"PS1": "$ "})
    terminal.wait_for("$ ")
    command = shlex.join(
        [PROGRAM, "run", "--on", "k", "--", sys.executable, "-c", _COUNT_INTERRUPTS]
    )
    terminal.press(command.replace("\n", "\\n").replace("'\\n", "$'\\n") + "\n")
    terminal.wait_for("ready\r\n")

    terminal.press("\x1a")
    terminal.wait_for("Stopped")
    assert len(shell.status()["leases"]) == 1
    terminal.press("fg\n")
    terminal.press("back again\n")
    terminal.wait_for("got back again")
    terminal.press("end\n")
    terminal.wait_for("total: 0")
    terminal.press("echo code $?\n")
    terminal.wait_for("code 0")

    terminal.press("exit\n")
    terminal.wait()


def test_ctrl_z_while_waiting_keeps_the_place(shell: Shell) -> None:
    """Stopped in line is still in line."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    terminal = shell.terminal_for("bash", "--norc", "--noprofile", "-i", env={"PS1": "$ "})
    terminal.wait_for("$ ")
    terminal.press(f"{PROGRAM} run --on k -- echo it ra''n\n")
    terminal.wait_for("for k (full)")

    terminal.press("\x1a")
    terminal.wait_for("Stopped")
    assert len(shell.status()["waiting"]) == 1
    terminal.press("fg\n")
    holder.communicate("")

    terminal.wait_for("it ran")
    terminal.press("exit\n")
    terminal.wait()


def test_a_waiter_stopped_by_ctrl_z_is_passed_over_and_goes_on_at_its_place(shell: Shell) -> None:
    """Whoever came later has the slot meanwhile; then it is its turn before theirs."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    terminal = shell.terminal_for("bash", "--norc", "--noprofile", "-i", env={"PS1": "$ "})
    terminal.wait_for("$ ")
    terminal.press(f"{PROGRAM} run --on k --task first -- echo it ra''n\n")
    terminal.wait_for("for k (full)")
    second = shell.start("run", "--on", "k", "--task", "second", "--", "cat", stdin=subprocess.PIPE)
    until(shell.waits(2), "the second's queueing")

    terminal.press("\x1a")
    terminal.wait_for("Stopped")
    (stopped,) = until(
        lambda: [x for x in shell.status()["waiting"] if x["stopped"]], "its being shown"
    )
    holder.communicate("")

    until(lambda: [x["task"] for x in shell.status()["leases"]] == ["second"], "the passing over")
    assert (stopped["task"], stopped["position"]) == ("first", 1)
    assert stopped["blocked_by"] == {"key": "k", "reason": "stopped"}
    assert "stopped" in shell.run("status").stdout
    assert "goes on" in shell.run("why", "first").stdout
    third = shell.start("run", "--on", "k", "--task", "third", "--", "cat", stdin=subprocess.PIPE)
    until(shell.waits(2), "the third's queueing")
    terminal.press("fg\n")
    until(lambda: not any(x["stopped"] for x in shell.status()["waiting"]), "the going on")
    assert [x["task"] for x in shell.status()["waiting"]] == ["first", "third"]
    second.communicate("")
    terminal.wait_for("it ran")

    third.communicate("")
    terminal.press("exit\n")
    terminal.wait()


def test_a_waiter_whose_group_is_stopped_keeps_nobody_waiting(shell: Shell) -> None:
    """What no program can catch stops the front, and its supervisor goes on."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    front = shell.start("run", "--on", "k", "--", "true", start_new_session=True)
    until(shell.waits(1), "the queueing")

    os.killpg(front.pid, signal.SIGSTOP)
    holder.communicate("")

    assert shell.run("run", "--on", "k", "--timeout", "10s", "--", "true").returncode == 0
    os.killpg(front.pid, signal.SIGCONT)
    assert front.wait(10) == 0


def test_a_stopped_command_is_shown_as_such(shell: Shell) -> None:
    """It keeps its slot, and others see why nothing happens there."""
    front = shell.start("run", "--on", "k", "--", "sh", "-c", "echo $$; kill -STOP $$; echo on")
    assert front.stdout is not None
    command = psutil.Process(int(front.stdout.readline()))

    try:
        (lease,) = until(lambda: [x for x in shell.status()["leases"] if x["stopped"]], "the stop")
        shown = shell.run("status").stdout, shell.run("why", lease["id"]).stdout
    finally:
        command.send_signal(signal.SIGCONT)

    assert front.communicate()[0] == "on\n"
    assert "stopped" in shown[0]
    assert "is stopped" in shown[1]


def test_a_new_size_of_the_window_arrives(shell: Shell) -> None:
    """Full-screen agents draw themselves anew."""
    terminal = shell.terminal("run", "--", sys.executable, "-c", _SHOW_SIZE)
    terminal.wait_for("columns 80")

    terminal.resize(113, 40)

    terminal.wait_for("columns 113")
    terminal.press("\n")
    assert terminal.wait() == 0


def test_the_live_line_shows_place_and_holders_and_goes_away(shell: Shell) -> None:
    """One line that is rewritten, and erased before the command has the screen."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--task", "one", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    terminal = shell.terminal("run", "--on", "k", "--", "echo", "it ran")

    terminal.wait_for("headway: place 1 of 1 · ")
    terminal.wait_for("for k (full) · held by one")
    holder.communicate("")

    assert terminal.wait() == 0
    assert "\n" not in terminal.raw[: terminal.raw.index("running after")]
    assert "\x1b[K" in terminal.raw
    assert terminal.text.rstrip().endswith("it ran")


def test_the_live_line_fits_a_narrow_window(shell: Shell) -> None:
    """It never wraps, or it could not be rewritten."""
    shell.run("limits", "set", "k", "1")
    task = "a very long name for a task " * 3
    holder = shell.start("run", "--on", "k", "--task", task, "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    terminal = shell.terminal("run", "--on", "k", "--", "true", columns=40)

    terminal.wait_for("place 1 of 1")
    holder.communicate("")
    terminal.wait()

    drawn = [part for part in terminal.text.split("\r") if "place" in part]
    assert drawn
    assert all(len(part) < 40 for part in drawn)


@pytest.mark.parametrize("columns", [80, 120])
def test_the_live_line_gives_its_end_away_first(shell: Shell, columns: int) -> None:
    """Place, estimate and time are always there; holders go, with a sign for it."""
    key = "llm/anthropic/claude-opus-4-20260101"
    shell.run("limits", "set", key, "2")
    shell.run("run", "--on", key, "--", "sleep", "0.2")
    holders = [shell.hold(key, task=f"a-long-name-of-a-task-{n}") for n in range(2)]
    until(shell.holds(2), "the start")
    terminal = shell.terminal("run", "--on", key, "--", "true", columns=columns)

    terminal.wait_for("waiting 2s")
    terminal.press("\x03")
    terminal.wait()

    line = next(part for part in terminal.text.split("\r") if "waiting 2s" in part)
    assert re.match(r"headway: place 1 of 1, \S+ left · waiting 2s for \S*claude\S+ \(full\)", line)
    assert ("held by" in line) == (columns == 120)
    assert len(line) < columns
    for holder in holders:
        holder.kill()


def test_in_the_background_plain_lines_are_printed(shell: Shell) -> None:
    """A live line would be drawn over what is typed; in the foreground it is there again."""
    shell.run("limits", "set", "k", "1")
    holder = shell.start("run", "--on", "k", "--task", "one", "--", "cat", stdin=subprocess.PIPE)
    until(shell.holds(1), "the start")
    terminal = shell.terminal_for("bash", "--norc", "--noprofile", "-i", env={"PS1": "$ "})
    terminal.wait_for("$ ")

    terminal.press(f"{PROGRAM} run --on k -- echo it ra''n &\n")
    terminal.wait_for("headway: waiting for k, which is full: place 1, held by one")
    began = time.monotonic()
    until(lambda: time.monotonic() - began > 1.5, "more than one tick of a live line")
    in_background = terminal.raw
    terminal.press("fg\n")
    terminal.wait_for("place 1 of 1 · waiting")
    holder.communicate("")
    terminal.wait_for("it ran")
    terminal.press("exit\n")
    terminal.wait()

    assert "place 1 of 1" not in in_background


def _live_line(
    monkeypatch: pytest.MonkeyPatch, look: Callable[[], object]
) -> waiting_line.WaitingLine:
    """One that is drawn, for a ticket that is looked for in this way."""
    monkeypatch.setattr(waiting_line, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    governor: Any = type("Governor", (), {"snapshot": staticmethod(look)})
    event: Any = type("Event", (), {"ticket_id": "x-1"})
    line = waiting_line.WaitingLine(governor, lambda: True)
    line.show(event)
    return line


def test_the_live_line_outlives_a_store_that_fails_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It tries again, and does not end with a trace on the terminal."""
    looks = []

    def fail() -> None:
        looks.append(1)
        raise StoreUnavailable("the home", "someone is inside")

    line = _live_line(monkeypatch, fail)
    until(lambda: len(looks) > 1, "the second look")
    line.end(None)


def test_others_may_have_something_to_say_while_the_live_line_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither waits for the other; what is said after the wait erases nothing of the command's."""
    looks = []

    def hear_of_trouble() -> Any:
        said = Worker(lambda: journal.log().warning("the server is slow"))
        said.end()
        looks.append(1)
        return type("Snapshot", (), {"waiting": ()})

    line = _live_line(monkeypatch, hear_of_trouble)
    until(lambda: len(looks) > 1, "the second look")
    line.end(None)
    capfd.readouterr()

    journal.log().warning("it is back")

    assert capfd.readouterr().err == "headway: warning: it is back\n"


def test_whoever_speaks_second_has_the_voice_that_the_first_one_prepares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for that."""
    second: list[Worker[object]] = []

    def prepare() -> None:
        second.append(Worker(journal.log))
        second[0].join(0.2)
        assert second[0].is_alive()

    monkeypatch.setattr(journal, "prepare", prepare)
    journal.log()
    second[0].end()


def test_a_dead_holder_is_told_on_a_line_of_its_own(shell: Shell) -> None:
    """In the place of the live line, which is erased for it."""
    shell.run("limits", "set", "k", "1")
    holder = shell.hold("k", task="one")
    until(shell.holds(1), "the start")
    terminal = shell.terminal("run", "--on", "k", "--", "echo", "it ran")
    terminal.wait_for("held by one")

    holder.kill()

    terminal.wait_for("it ran")
    assert terminal.wait() == 0
    assert "\r\x1b[Kheadway: warning: reclaimed " in terminal.raw


def test_a_message_waits_until_the_command_has_left_its_screen(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A line in the middle of what it draws would tear that; it has the time of day instead."""
    during: list[str] = []

    class Drawing:
        """A command that has the terminal while the server fails."""

        def run(self, *_: object, **__: object) -> int:
            journal.log().warning("the server is slow")
            during.append(capfd.readouterr().err)
            return 7

    class Held:
        """Its lease."""

        lifeline = None

        def environ(self) -> dict[str, str]:
            return {}

    monkeypatch.setattr(journal, "prepare", run._speak)
    monkeypatch.setattr("os.isatty", lambda _: True)
    drawing, held = cast("Supervisor", Drawing()), cast("Lease", Held())

    code = run._run(parse(["--", "true"]), "true", drawing, held, stopped=lambda _: None)

    assert code == 7

    assert during == [""]
    told = r"headway: \d\d:\d\d:\d\d warning: the server is slow\n"
    assert re.fullmatch(told, capfd.readouterr().err)
    journal.log().warning("it is back")
    assert capfd.readouterr().err == "headway: warning: it is back\n"

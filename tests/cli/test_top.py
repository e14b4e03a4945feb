"""``headway top`` on a terminal, with keys pressed and processes killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import termios
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.cli.kit import _ESCAPES, until

import headway
from headway.cli.board import bar, share_out, shorten_middle
from headway.cli.endings import Cards
from headway.cli.output import shorten_keys
from headway.cli.watching import Diary
from headway.views import BlockedBy, HolderView, LeaseView, LimitView, Snapshot, WaitingView

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.kit import Shell, Terminal

_HOME_OF_CURSOR = "\x1b[H"
_HOLD = """
import sys, threading, time, headway
def hold(task):
    with headway.slot("agent/test", task=task):
        time.sleep(600)
for task in sys.argv[1:]:
    threading.Thread(target=hold, args=(task,), daemon=True).start()
time.sleep(600)
"""


_HOLD_UNTIL_TOLD = """
import sys, headway
with headway.slot("llm/x", task=sys.argv[1]):
    sys.stdin.readline()
"""


class Crowd:
    """Processes that hold and wait on ``agent/test``."""

    def __init__(self, shell: Shell) -> None:
        self._environ = shell.environ
        self.governor = headway.Governor(f"sqlite:///{shell.home}")
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, *tasks: str) -> subprocess.Popen[bytes]:
        """Ask for a slot for each task, in one process; wait until all have asked."""
        process = subprocess.Popen([sys.executable, "-c", _HOLD, *tasks], env=self._environ)
        self._processes.append(process)
        until(lambda: set(tasks) <= {*self.running(), *self.waiting()}, f"asking for {tasks}")
        return process

    def start_polite(self, task: str) -> subprocess.Popen[bytes]:
        """Hold a slot on ``llm/x`` until stdin is closed."""
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLD_UNTIL_TOLD, task],
            env=self._environ,
            stdin=subprocess.PIPE,
        )
        self._processes.append(process)
        until(lambda: task in self.running(), f"asking for {task}")
        return process

    def running(self) -> list[str]:
        """The tasks that run."""
        return [lease.task or "" for lease in self.governor.snapshot().leases]

    def waiting(self) -> list[str]:
        """The tasks that wait, in their order."""
        return [ticket.task or "" for ticket in self.governor.snapshot().waiting]

    def end(self) -> None:
        """End them all."""
        for process in self._processes:
            process.kill()
            process.communicate()
        self.governor.close()


@pytest.fixture
def crowd(shell: Shell) -> Iterator[Crowd]:
    """Nobody yet."""
    crowd = Crowd(shell)
    try:
        yield crowd
    finally:
        crowd.end()


def frame(terminal: Terminal) -> str:
    """What is on the screen now, as it was drawn last."""
    _ = terminal.text  # reads what there is
    return _ESCAPES.sub("", terminal.raw.rpartition(_HOME_OF_CURSOR)[2])


def shows(terminal: Terminal, *texts: str) -> None:
    """Wait until all of these are on the screen at once."""
    try:
        until(lambda: all(text in frame(terminal) for text in texts))
    except AssertionError:
        raise AssertionError(f"{texts} not on the screen:\n{frame(terminal)}") from None


def is_restored(terminal: Terminal) -> bool:
    """Whether the terminal is as it was: no other screen, a cursor, echo and whole lines."""
    _ = terminal.text
    flags = termios.tcgetattr(terminal._descriptor)[3]
    return bool(
        terminal.raw.rfind("\x1b[?1049l") > terminal.raw.rfind("\x1b[?1049h")
        and terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")
        and flags & termios.ECHO
        and flags & termios.ICANON
    )


def test_shows_what_runs_and_what_waits_and_quits(shell: Shell, crowd: Crowd) -> None:
    """Bars, leases and the line are there; q ends it and leaves the terminal as it was."""
    for number in range(1, 6):
        crowd.start(f"issue-{number}")
    top = shell.terminal("top")
    shows(top, "3 running · 2 waiting", "3/3  2 waiting", "1  issue-4", "2  issue-5")
    shows(top, "RUNNING 3", "issue-1", "agent/test", "agent is full", "q quit")
    lines = frame(top).split("\n")
    assert len(lines) == 24
    assert max(len(line.rstrip("\r")) for line in lines) <= 80
    top.press("q")
    assert top.wait() == 0
    assert is_restored(top)


def test_an_empty_home(shell: Shell) -> None:
    """With nothing in it, the home says so."""
    top = shell.terminal("top")
    shows(top, "0/3", "nothing runs", "nobody waits", "nothing happened since you look")
    top.press("jc?")
    shows(top, "esc lets go")
    top.press("q")
    assert top.wait() == 0


def test_cancels_a_waiter_after_asking(shell: Shell, crowd: Crowd) -> None:
    """The chosen waiter goes only after a yes, and is told that it was cancelled."""
    crowd.start("one", "two", "three")
    crowd.start("four")
    late = shell.start("run", "--on", "agent/test", "--task", "late", "--", "true")
    until(lambda: crowd.waiting() == ["four", "late"])
    top = shell.terminal("top")
    shows(top, "1  four", "2  late")
    top.press("j")
    shows(top, "▸1  four")
    top.press("\x1b[B")
    shows(top, "▸2  late")
    top.press("c")
    shows(top, "Cancel late, which waits in line?")
    top.press("n")
    shows(top, "c cancel")
    assert crowd.waiting() == ["four", "late"]
    top.press("c")
    shows(top, "Cancel late")
    top.press("y")
    assert late.wait() == 125
    shows(top, "cancelled", "WAITING 1")
    assert crowd.waiting() == ["four"]
    top.press("q")
    assert top.wait() == 0


def test_tells_of_the_death_of_a_holder(shell: Shell, crowd: Crowd) -> None:
    """A holder that is killed is told from one that gave back, and the next one runs."""
    victim = crowd.start("victim")
    crowd.start("two", "three")
    crowd.start("heir")
    polite = crowd.start_polite("polite")
    top = shell.terminal("top", rows=40)
    shows(top, "1  heir", "polite")
    victim.kill()
    shows(top, "died       victim", "granted    heir", "nobody waits")
    polite.communicate()
    shows(top, "released   polite")


def test_tells_of_changed_limits(shell: Shell, crowd: Crowd) -> None:
    """A limit that is changed and a key that is paused are seen at once."""
    top = shell.terminal("top")
    shows(top, "0/3")
    crowd.governor.set_limit("agent", 5)
    crowd.governor.pause("agent")
    shows(top, "0/5  paused", "3 → 5 slots", "is paused")


def test_follows_the_size_of_the_window(shell: Shell, crowd: Crowd) -> None:
    """After a resize the picture fills the new window, whatever size was once exported."""
    crowd.start(*(f"a-task-with-quite-a-long-name-{number}" for number in range(9)))
    top = shell.terminal("top", env={"LINES": "24"})
    shows(top, "WAITING 6")
    top.resize(120, 40)
    until(lambda: frame(top).count("\n") == 39, "40 rows")
    shows(top, crowd.waiting()[-1])
    top.resize(60, 15)
    until(lambda: frame(top).count("\n") == 14, "15 rows")
    shows(top, "q quit")


def test_a_long_line_scrolls_with_the_choice(shell: Shell, crowd: Crowd) -> None:
    """Of forty who wait the chosen one is always on the screen."""
    crowd.start("a", "b", "c")
    crowd.start(*(f"w{number}" for number in range(40)))
    last = crowd.waiting()[-1]
    top = shell.terminal("top")
    shows(top, "WAITING 40", "more")
    assert f"40  {last}" not in frame(top)
    top.press("k")
    shows(top, f"▸40  {last}")


@pytest.mark.parametrize("ending", ["ctrl-c", "sigterm", "sighup"])
def test_puts_the_terminal_back(shell: Shell, ending: str) -> None:
    """However it is ended, the terminal is as it was."""
    top = shell.terminal("top")
    shows(top, "nothing runs")
    assert not is_restored(top)
    if ending == "ctrl-c":
        top.press("\x03")
    else:
        os.kill(top.pid, signal.SIGTERM if ending == "sigterm" else signal.SIGHUP)
    assert top.wait() == {"ctrl-c": 130, "sigterm": 143, "sighup": 129}[ending]
    assert is_restored(top)
    assert "Traceback" not in top.text


def test_can_be_stopped_and_go_on(shell: Shell) -> None:
    """Ctrl-Z gives the terminal back, and going on takes it again."""
    top = shell.terminal("top")
    shows(top, "nothing runs")
    top.press("\x1a")
    process = psutil.Process(top.pid)
    until(lambda: process.status() == psutil.STATUS_STOPPED, "the stop")
    assert is_restored(top)
    seen = len(top.raw)
    process.resume()
    until(lambda: "nothing runs" in _ESCAPES.sub("", top.raw[seen:] if top.text else ""))
    assert not is_restored(top)
    top.press("q")
    assert top.wait() == 0
    assert is_restored(top)


def test_a_store_that_is_away_for_a_while(shell: Shell, crowd: Crowd) -> None:
    """A home that cannot be reached is told in a line, and the view goes on when it is back."""
    crowd.start("still-here")
    top = shell.terminal("top")
    shows(top, "still-here")
    away = shell.home.with_name("away")
    shell.home.rename(away)
    shows(top, "unavailable", "still-here")
    away.rename(shell.home)
    until(lambda: "unavailable" not in frame(top), "the end of the trouble")
    top.press("q")
    assert top.wait() == 0


def test_without_colour(shell: Shell, crowd: Crowd) -> None:
    """NO_COLOR is respected, and the choice can be seen all the same."""
    crowd.start("a", "b", "c")
    crowd.start("waiter")
    coloured = shell.terminal("top")
    shows(coloured, "1  waiter")
    assert re.search(r"\x1b\[[0-9;]*3[0-7]m", coloured.raw)
    plain = shell.terminal("top", env={"NO_COLOR": "1"})
    shows(plain, "1  waiter")
    plain.press("j")
    shows(plain, "▸1  waiter")
    assert not re.search(r"\x1b\[[0-9;]*m", plain.raw)


def test_without_a_terminal(shell: Shell, crowd: Crowd) -> None:
    """In a pipe there is one plain picture of everything and a line that says why."""
    crowd.start(*(f"t{number}" for number in range(30)))
    answer = shell.run("top")
    assert answer.returncode == 0
    assert "WAITING 27" in answer.stdout
    assert "\x1b" not in answer.stdout
    assert all(task in answer.stdout.split() for task in crowd.waiting())
    assert "this is no terminal" in answer.stderr


def test_power_over_the_terminal_is_not_given_away(shell: Shell, crowd: Crowd) -> None:
    """A task's name cannot send escape sequences."""
    crowd.start("evil\x1b[2Jtask\nline")
    top = shell.terminal("top")
    shows(top, "evil?[2Jtask line")


@pytest.mark.parametrize("interval", ["1ms", "soon", "-1"])
def test_a_bad_interval_is_bad_usage(shell: Shell, interval: str) -> None:
    """An interval that is none, or too short, is refused."""
    answer = shell.run("top", "--interval", interval)
    assert answer.returncode == 64
    assert "--interval" in answer.stderr


def _line(limit: int | str, used: int, reserved: int = 0) -> LimitView:
    return LimitView(
        "agent",
        limit,
        "file",
        used,
        reserved,
        free=0,
        waiting=0,
        paused=False,
        cooling_until=None,
        cooling_reason=None,
        probing=False,
        requests_per_minute="unlimited",
        requests_lately=0,
        next_request_at=None,
    )


def test_bars_never_lie() -> None:
    """A bar is full only when all is in use, and empty only when nothing is."""
    assert bar(_line(3, 2, 1)).plain == "━━━━━━━ ━━━━━━━ ╍╍╍╍╍╍╍"
    assert bar(_line(1000, 1)).plain == "━" + "─" * 23
    assert bar(_line(1000, 999)).plain == "━" * 23 + "─"
    assert bar(_line(1000, 1000)).plain == "━" * 24
    assert bar(_line(2, 5)).plain == "━━━━━━━━━━━ ━━━━━━━━━━━"


def test_rows_are_shared_out_in_turn() -> None:
    """Nobody gets more than it wants, and what is left goes round."""
    assert share_out(10, [2, 30, 1, 30]) == [2, 4, 1, 3]
    assert share_out(100, [2, 3]) == [2, 3]
    assert share_out(-1, [2, 3]) == [0, 0]


def test_keys_keep_their_last_name() -> None:
    """As much of it as fits; a key of one name has no other."""
    assert shorten_keys("llm/anthropic/opus", 12) == "llm/…/opus"
    assert shorten_keys("llm/anthropic/opus", 8) == "…/opus"
    assert shorten_keys("llm/anthropic/claude-opus-4", 8) == "…/cla…-4"
    assert shorten_keys("team-backend-experiments", 8) == "team…nts"
    for key in ("agent", "team-backend", "llm/openai", "a/b/c"):
        assert all(len(shorten_keys(key, columns)) <= columns for columns in range(5, 20))


def test_labels_keep_both_ends() -> None:
    """A label that is too long loses its middle and fits."""
    assert shorten_middle("short", 10) == "short"
    assert shorten_middle("a-very-long-name-17", 10) == "a-ver…e-17"
    assert [len(shorten_middle("abcdefghij", columns)) for columns in range(1, 9)] == [*range(1, 9)]


def test_what_made_room_is_told_before_what_got_it(shell: Shell, crowd: Crowd) -> None:
    """Also if both happened between two looks."""
    diary, governor = Diary(Cards(str(shell.home / "live"))), crowd.governor
    with governor.slot("agent/test", task="first"):
        diary.read(governor.snapshot())
    with governor.slot("agent/test", task="second"):
        told = diary.read(governor.snapshot())

    assert [(event.kind, event.who) for event in told] == [
        ("released", "first"),
        ("granted", "second"),
    ]
    assert told[0].at <= told[1].at


def _worker(*, waits: bool = False) -> LeaseView | WaitingView:
    holder = HolderView(1, "here", "headway worker")
    if not waits:
        return LeaseView("worker-job5", None, ("agent/x",), 1, 0.0, holder)
    blocked = BlockedBy("agent", "full")
    return WaitingView("worker-job5", None, ("agent/x",), 1, 0, 1, blocked, 0.0, None, holder)


def _supervisor(name: str = "first", number: int = 5) -> LeaseView:
    holder = HolderView(2, "here", f"headway job {number}: true")
    return LeaseView(f"{name}-job{number}", None, ("agent/x",), 1, 0.0, holder)


def _seen(*ones: LeaseView | WaitingView) -> Snapshot:
    leases = [one for one in ones if isinstance(one, LeaseView)]
    return Snapshot((), tuple(leases), tuple(one for one in ones if isinstance(one, WaitingView)))


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([[_worker()], [_worker(), _supervisor()], [_supervisor()], []], "granted released"),
        ([[_worker()], [_supervisor()], []], "granted released"),
        ([[_worker(), _supervisor()], []], "granted released"),
        ([[_worker(waits=True)], [_supervisor()], []], "queued granted released"),
        ([[_supervisor()], [_worker()], [_supervisor("second")]], "granted released granted"),
        ([[_supervisor()], [_worker(waits=True)]], "granted released queued"),
        ([[_supervisor()], [_supervisor(), _supervisor("other", 6)]], "granted granted"),
    ],
)
def test_a_job_is_one_piece_of_work(
    looks: list[list[LeaseView | WaitingView]], told: str, tmp_path: Path
) -> None:
    """Though its worker asks for its slot and its supervisor takes it over; attempts are told."""
    diary = Diary(Cards(str(tmp_path)))
    for ones in [[], *looks]:
        diary.read(_seen(*ones))

    assert [event.kind for event in diary.events] == told.split()
    assert {event.who for event in diary.events} <= {"job5", "job6"}


def test_who_comes_back_to_a_server_was_there_all_along(tmp_path: Path) -> None:
    """Only who has not come back when it has heard from all is over, however that was."""
    endings = Cards(str(tmp_path))
    diary = Diary(endings)
    diary.read(_seen(_supervisor(), _supervisor("other", 6)))
    endings.is_settling = True
    diary.read(_seen())
    diary.read(_seen(_supervisor()))
    assert not diary.events
    endings.is_settling = False
    diary.read(_seen(_supervisor()))
    diary.read(_seen())

    assert [(event.kind, event.who) for event in diary.events] == [
        ("ended", "job6"),
        ("released", "job5"),
    ]


def test_a_command_of_headway_run_can_be_ended(shell: Shell) -> None:
    """Chosen like those who wait, and asked about first."""
    front = shell.start("run", "--on", "agent/x", "--task", "issue-7", "--", "sleep", "60")
    until(shell.holds(1), "the start")
    top = shell.terminal("top", columns=100)
    top.wait_for("RUNNING 1")

    top.press("c")
    top.wait_for("▸issue-7")
    top.press("c")
    top.wait_for("End issue-7, which runs (SIGTERM)?")
    top.press("y")

    assert front.wait(20) == 143
    top.press("q")
    top.wait()

"""``headway demo``: what it shows, what it leaves behind, and that it can fail."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.cli.kit import until

from headway.cli import claims
from headway.cli.story import Agent
from headway.views import HolderView, LeaseView, Snapshot

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.cli.kit import Shell

_NOTHING = Snapshot(limits=(), leases=(), waiting=())


@pytest.fixture
def temporary(shell: Shell, tmp_path: Path) -> Path:
    """Where the demo makes its home."""
    directory = tmp_path / "tmp"
    directory.mkdir()
    shell.environ["TMPDIR"] = str(directory)
    return directory


def _left_in(temporary: Path) -> list[Any]:
    """Homes that are still there, and processes that live in one."""
    homes: list[Any] = list(temporary.iterdir())
    for process in psutil.process_iter():
        try:
            if process.environ().get("HEADWAY_HOME", "").startswith(str(temporary)):
                homes.append(process.cmdline())
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return homes


def _read_until(demo: subprocess.Popen[str], text: str) -> None:
    """Read on until a line has this text."""
    assert demo.stdout is not None
    assert any(text in line for line in demo.stdout), f"{text!r} was not told"


def test_tells_its_story_in_plain_lines(shell: Shell, temporary: Path) -> None:
    """Without a terminal the story comes line by line, ends well and leaves nothing behind."""
    answer = shell.run("demo", "--fast")
    assert answer.returncode == 0, answer.stderr
    assert "issue-14  waits, number 1 in line" in answer.stdout
    assert "issue-12  is killed with -9 while running the tests" in answer.stdout
    assert "issue-14  has a slot, " in answer.stdout
    assert "3 at once   at most" in answer.stdout
    assert "8 of 8      served in the order in which they asked" in answer.stdout
    for command in ("headway run -- ", "headway top", "headway limits set agent 4"):
        assert command in answer.stdout
    assert answer.stderr == ""
    assert "\x1b" not in answer.stdout
    until(lambda: _left_in(temporary) == [], "the end of all that it started")
    assert not shell.home.exists()


def test_draws_its_story_on_a_terminal(shell: Shell, temporary: Path) -> None:
    """On a terminal there is a lane per agent, and the cursor is back at the end."""
    terminal = shell.terminal("demo", "--fast")
    terminal.wait_for("issue-18")
    terminal.wait_for("killed with -9")
    terminal.wait_for("died")
    terminal.wait_for("Now with your own agents")
    assert terminal.wait() == 0
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")
    assert "✗" in terminal.text
    until(lambda: _left_in(temporary) == [], "the end of all that it started")


def test_settings_from_outside_do_not_reach_it(shell: Shell, temporary: Path) -> None:
    """Bad and other settings of the caller change nothing in the demo."""
    shell.home.mkdir(mode=0o700)
    (shell.home / "config.toml").write_text("broken")
    env = {"HEADWAY_QUEUE_BOOST": "junk", "HEADWAY_LIMITS": "agent=1", "HEADWAY_LEASE": "x-1"}
    answer = shell.run("demo", "--fast", env=env)
    assert answer.returncode == 0, answer.stderr
    assert [entry.name for entry in shell.home.iterdir()] == ["config.toml"]
    until(lambda: _left_in(temporary) == [], "the end of all that it started")


@pytest.mark.parametrize("when", ["issue-12", "killed with -9"])
def test_ctrl_c_ends_all_that_it_started(shell: Shell, temporary: Path, when: str) -> None:
    """Interrupted at any time, it leaves no process, no home and no hidden cursor."""
    terminal = shell.terminal("demo")
    terminal.wait_for(when)
    terminal.press("\x03")
    assert terminal.wait() == 130
    until(lambda: _left_in(temporary) == [], "the end of all that it started")
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")
    assert "Traceback" not in terminal.text


def test_signals_end_all_that_it_started(shell: Shell, temporary: Path) -> None:
    """Ended from outside, however often, it cleans up once and completely."""
    demo = shell.start("demo")
    _read_until(demo, "waits, number 5")
    demo.send_signal(signal.SIGTERM)

    def repeated() -> bool:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            demo.send_signal(number)
        return demo.poll() is not None

    until(repeated, "the end")
    # Of those that come at once, Python handles the one with the lowest number first.
    assert demo.returncode in {128 + signal.SIGTERM, 128 + signal.SIGHUP, 128 + signal.SIGINT}
    until(lambda: _left_in(temporary) == [], "the end of all that it started")


def test_a_terminal_that_goes_away_ends_all_that_it_started(shell: Shell, temporary: Path) -> None:
    """Closing the window leaves no process and no home."""
    terminal = shell.terminal("demo")
    terminal.wait_for("5th in line")
    os.close(terminal._descriptor)
    terminal._descriptor = os.open(os.devnull, os.O_RDONLY)
    until(lambda: not _left_in(temporary), "the end of all")


def test_a_limit_that_is_not_kept_makes_it_fail(shell: Shell, temporary: Path) -> None:
    """Where more run at once than the demo promised, it says so and its exit code is not 0."""
    demo = shell.start("demo")
    (home,) = until(lambda: list(temporary.glob("headway-demo-*/config.toml")))
    _read_until(demo, "number 1 in line")
    env = {"HEADWAY_HOME": os.path.dirname(home)}
    assert shell.run("limits", "set", "agent", "8", env=env).returncode == 0
    _, stderr = demo.communicate()
    assert demo.returncode == 70
    assert "8 ran at once, the limit is 3" in stderr
    until(lambda: _left_in(temporary) == [], "the end of all that it started")


def test_an_agent_that_fails_makes_it_fail(shell: Shell, temporary: Path) -> None:
    """An agent that does not come to its end breaks the promise too."""
    demo = shell.start("demo")
    (home,) = until(lambda: list(temporary.glob("headway-demo-*")))
    agent = until(lambda: _agent_of(str(home), "issue-11"), "an agent")
    agent.send_signal(signal.SIGKILL)
    _, stderr = demo.communicate()
    assert demo.returncode == 70
    assert "issue-11 ended with code" in stderr
    until(lambda: _left_in(temporary) == [], "the end of all that it started")


def _agent_of(home: str, task: str) -> psutil.Process | None:
    for process in psutil.process_iter():
        try:
            environ = process.environ()
            if (environ.get("HEADWAY_HOME"), environ.get("HEADWAY_TASK")) == (home, task):
                return process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return None


def _agents() -> list[Agent]:
    """Four agents on three slots, of whom the second is killed, as it should be."""
    times = [(0.0, 3.0), (1.0, 4.0), (2.0, 5.0), (4.1, 6.0)]
    agents = [
        Agent(f"t{n}", [], granted_at=began, began_at=began, ended_at=ended, code=0)
        for n, (began, ended) in enumerate(times)
    ]
    agents[1].ended_at, agents[1].killed_at, agents[1].code = None, 4.0, -9
    return agents


def test_what_is_as_promised_is_not_complained_about() -> None:
    """A good run has no broken claim."""
    assert claims.peak(_agents()) == 3
    assert claims.broken(_agents(), _NOTHING) == []


def test_every_claim_can_be_broken() -> None:
    """Each promise that is not kept is told, and only that one."""
    over = _agents()
    over[3].began_at = 2.5
    assert claims.broken(over, _NOTHING) == ["4 ran at once, the limit is 3"]
    unfair = _agents()
    unfair[3].granted_at = 0.5
    assert "served t0, t3, t1, t2" in claims.broken(unfair, _NOTHING)[0]
    spared = _agents()
    spared[1].ended_at, spared[1].killed_at, spared[1].code = 4.0, None, 0
    assert claims.broken(spared, _NOTHING) == ["nobody was killed"]
    failed = _agents()
    failed[0].code, failed[0].complaints = 70, ["it broke"]
    assert claims.broken(failed, _NOTHING) == ["t0 ended with code 70: it broke"]
    lease = LeaseView("a-1", "t9", ("agent",), 1, 0.0, HolderView(1, "", ""))
    left = Snapshot(limits=(), leases=(lease,), waiting=())
    assert claims.broken(_agents(), left) == ["at the end there is still t9"]

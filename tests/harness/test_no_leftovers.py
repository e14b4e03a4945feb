"""No leftovers: whatever ends the work, the whole tree ends with it."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.harness.kit import Diary, is_alive, parent, until
from tests.harness.speech import begun, done, printed, said, spoken

from headway.harness import Cancellation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.kit import Stage

    from headway.harness import Result

# What programs and their tools do to get away. Each writes its pid to a file when it runs.
TREES = {
    "alone": 'echo $$ >> "$HERE/pids"; sleep 600',
    "native child": '(echo $$ >> "$HERE/pids"; exec sleep 600) & echo $! >> "$HERE/pids"; wait',
    "own session": """setsid sh -c 'echo $$ >> "$HERE/pids"; sleep 600' & wait""",
    "daemon": """
        (setsid sh -c '(setsid sh -c "echo \\$\\$ >> \\$HERE/pids; exec sleep 600" &) ; exit' &)
        echo $$ >> "$HERE/pids"; sleep 600""",
    "deaf": """
        trap '' TERM HUP INT QUIT
        sh -c 'trap "" TERM; echo $$ >> "$HERE/pids"; while :; do sleep 0.1; done' &
        echo $$ >> "$HERE/pids"; while :; do sleep 0.1; done""",
    "stopped": """
        setsid sh -c 'echo $$ >> "$HERE/pids"; kill -STOP $$; sleep 600' &
        echo $$ >> "$HERE/pids"; kill -STOP $$; sleep 600""",
    "without its environment": """
        env -i HERE="$HERE" setsid sh -c 'echo $$ >> "$HERE/pids"; sleep 600' & wait""",
}
EVERY = pytest.mark.parametrize("tree", list(TREES))


class Running:
    """An execution in a thread of this program."""

    def __init__(self, stage: Stage, script: str, **options: Any) -> None:
        self.diary, self.handle = Diary(), Cancellation()
        self.agent = stage.agent("claude", script, grace=options.pop("grace", "300ms"))
        self._results: list[Result] = []
        options = {"on_event": self.diary, "cancellation": self.handle, **options}
        self._thread = threading.Thread(target=self._run, args=(options,))
        self._thread.start()

    def _run(self, options: dict[str, Any]) -> None:
        self._results.append(self.agent.execute("x", **options))

    @property
    def result(self) -> Result:
        """When it is over."""
        self._thread.join()
        return self._results[0]

    @property
    def guardian(self) -> int:
        """The pid of the process between us and the agent."""
        self.diary.wait_for("started")
        (started,) = (event for event in self.diary.events if event.kind == "started")
        return parent(started.pid)  # type: ignore[attr-defined]


def _pids(stage: Stage) -> list[int]:
    """Of the tree, when it stands."""
    until(lambda: stage.lines("pids"), "a tree")
    return [int(pid) for pid in stage.lines("pids")]


def _stands(stage: Stage, tree: str) -> None:
    count = TREES[tree].count("pids")
    until(lambda: len(stage.lines("pids")) >= count, "the whole tree")
    if tree == "stopped":
        until(lambda: all(_state(pid) == "T" for pid in _pids(stage)), "its stop")


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0].decode()


@pytest.fixture(autouse=True)
def _nothing_is_left(stage: Stage) -> Iterator[None]:
    """Of all pids that were written down: nobody lives."""
    yield
    left = [pid for pid in map(int, stage.lines("pids")) if is_alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@EVERY
def test_after_a_cancel_the_tree_is_gone(stage: Stage, tree: str) -> None:
    """When the caller has its result, and not a moment later."""
    running = Running(stage, TREES[tree])
    _stands(stage, tree)

    running.handle.cancel()

    assert running.result.status == "cancelled"
    assert not [pid for pid in _pids(stage) if is_alive(pid)]
    assert not stage.processes()


@EVERY
def test_after_its_clock_the_tree_is_gone(stage: Stage, tree: str) -> None:
    """The same."""
    running = Running(stage, TREES[tree], max_runtime=1)

    assert running.result.status == "timed_out"
    assert not [pid for pid in _pids(stage) if is_alive(pid)]
    assert not stage.processes()


@EVERY
def test_after_the_agent_itself_the_tree_is_gone(stage: Stage, tree: str) -> None:
    """What it leaves behind does not run on, nor keep its answer back for ever."""
    stage.script("tree", TREES[tree])
    there = 'until [ -s "$HERE/pids" ]; do sleep 0.02; done'
    script = f'"$HERE/bin/tree" & {spoken("claude")}\n{there}'

    result = Running(stage, script).result

    assert (result.status, result.text) == ("succeeded", "All done.")
    assert not [pid for pid in _pids(stage) if is_alive(pid)]
    assert not stage.processes()


@pytest.mark.parametrize("tree", [tree for tree in TREES if "environment" not in tree])
def test_after_the_death_of_the_guardian_the_tree_is_gone(stage: Stage, tree: str) -> None:
    """Found by the mark in its environment."""
    running = Running(stage, TREES[tree])
    _stands(stage, tree)

    os.kill(running.guardian, signal.SIGKILL)

    result = running.result
    assert (result.status, result.reason) == ("failed", "the process that guarded it was killed")
    assert not [pid for pid in _pids(stage) if is_alive(pid)]
    assert not stage.processes()


def test_a_flood_without_a_guardian_ends_too(stage: Stage) -> None:
    """There is always more to read; that keeps nobody from ending it."""
    running = Running(stage, 'echo $$ >> "$HERE/pids"; exec yes')
    until(lambda: stage.lines("pids"), "the flood")

    os.kill(running.guardian, signal.SIGKILL)

    assert running.result.reason == "the process that guarded it was killed"


@pytest.mark.parametrize("signum", ["TERM", "INT", "HUP", "KILL", "STOP"])
def test_an_agent_that_turns_on_its_guardian(stage: Stage, signum: str) -> None:
    """It ends, and so does all of it; a guardian that was stopped can be woken to end it."""
    running = Running(stage, f'echo $$ >> "$HERE/pids"; kill -{signum} $PPID; exec sleep 600')
    if signum == "STOP":
        until(lambda: _state(parent(_pids(stage)[0])) == "T", "its stop")
        running.handle.cancel()

    assert running.result.status == ("cancelled" if signum == "STOP" else "failed")
    assert not stage.processes()


def test_it_is_asked_first_and_has_its_time(stage: Stage) -> None:
    """TERM, and what it does then is waited for."""
    script = """
        trap 'echo asked >> "$HERE/log"; sleep 0.3; echo ended >> "$HERE/log"; exit 0' TERM
        echo $$ >> "$HERE/pids"
        while :; do sleep 0.05; done"""
    running = Running(stage, script, grace="60s")
    _pids(stage)

    running.handle.cancel()

    assert running.result.status == "cancelled"
    assert stage.lines("log") == ["asked", "ended"]


def test_who_is_deaf_is_killed_after_the_grace_period(stage: Stage) -> None:
    """Not before."""
    script = """
        trap 'echo asked >> "$HERE/log"' TERM
        echo $$ >> "$HERE/pids"
        while :; do sleep 0.05; done"""
    running = Running(stage, script, grace="1s")
    _pids(stage)

    running.handle.cancel()

    result = running.result
    assert (result.status, result.exit_code) == ("cancelled", 137)
    assert stage.lines("log") == ["asked"]


def test_a_grandchild_that_keeps_the_pipe_open_keeps_nobody_waiting(stage: Stage) -> None:
    """Chatty or silent; and what it says is none of the agent's."""
    for noise in ("sleep 600", "yes"):
        script = f"setsid {noise} & {spoken('claude')}"

        assert Running(stage, script).result.text == "All done."
        assert not stage.processes()


def test_an_agent_that_closes_its_output_is_waited_for(stage: Stage) -> None:
    """It works on, and ends when it ends."""
    script = f"""{spoken("claude")}
        exec >&- 2>&-
        echo $$ >> "$HERE/pids"
        until [ -e "$HERE/go" ]; do sleep 0.02; done
        echo worked >> "$HERE/log" """
    running = Running(stage, script)
    _pids(stage)
    assert not running.diary.has("finished")
    stage.touch("go")

    assert running.result.ok
    assert stage.lines("log") == ["worked"]


def test_an_agent_that_dies_half_way_leaves_what_it_said(stage: Stage) -> None:
    """Its tool, in a session of its own, ends as well."""
    script = f"""{printed(*begun("claude"), *said("claude", "Let me"))}
        setsid sh -c 'echo $$ >> "$HERE/pids"; sleep 600' &
        until [ -s "$HERE/pids" ]; do sleep 0.02; done
        kill -9 $$"""

    result = Running(stage, script).result

    assert (result.status, result.text) == ("truncated", "Let me")
    assert not stage.processes()


def test_the_end_is_told_after_the_slot_is_free_and_the_tree_gone(stage: Stage) -> None:
    """``finished`` is the last event."""
    seen: list[tuple[int, list[int]]] = []
    script = f"(setsid sleep 600 &) ; {printed(*begun('claude'), *done('claude', 'x'))}"
    agent = stage.agent("claude", script, max_concurrent=1)

    def look(event: Any) -> None:
        if event.kind == "finished":
            seen.append((agent.guard.capacity(agent.key(None)).used, stage.processes()))

    agent.execute("x", on_event=look)

    assert seen == [(0, [])]

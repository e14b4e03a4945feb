"""The caller dies, in whatever way: no agent runs on, and its slot is kept until then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.harness.kit import is_alive, until

from headway import Governor

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.kit import Stage

DEAF = """
trap '' TERM HUP INT
setsid sh -c 'trap "" TERM; echo $$ >> "$HERE/pids"; while :; do sleep 0.05; done' &
echo $$ >> "$HERE/pids"
while [ ! -e "$HERE/go" ]; do sleep 0.05; done
"""
WILLING = """
setsid sh -c 'echo $$ >> "$HERE/pids"; sleep 600' &
echo $$ >> "$HERE/pids"
sleep 600
"""
EXECUTE = """
governor = headway.Governor() if "home" in sys.argv else None
agent = ClaudeCode(executable=stage.directory / "bin/claude", env=stage.environ,
                   governor=governor, grace=os.environ.get("GRACE", "200ms"))
"""
# And in the middle of that, a fork.
FORK = (
    EXECUTE
    + """
threading.Thread(target=agent.execute, args=("x",), daemon=True).start()
while len(stage.lines("pids")) < 2: time.sleep(0.01)
child = os.fork()
"""
)


def stands(stage: Stage) -> list[int]:
    """The pids of the agent and its tool, when they run."""
    until(lambda: len(stage.lines("pids")) == 2, "the agent and its tool")
    return [int(pid) for pid in stage.lines("pids")]


def gone(stage: Stage) -> None:
    """Wait until nothing is left: nobody but the guardian is there to see to it."""
    until(lambda: not any(map(is_alive, map(int, stage.lines("pids")))), "the end of the tree")
    stage.gone()


def end(program: subprocess.Popen[str]) -> tuple[int, str]:
    """How a program ended, and what it complained of."""
    _, errors = program.communicate(timeout=60)
    return program.returncode, errors


@pytest.mark.parametrize("script", [WILLING, DEAF])
def test_kill_9_of_the_caller(stage: Stage, script: str) -> None:
    """Leaves no agent running, willing or not."""
    stage.script("claude", script)
    program = stage.caller(EXECUTE + "agent.execute('x')")
    stands(stage)

    program.kill()

    gone(stage)


def test_kill_9_of_a_caller_whose_children_hold_its_wire(stage: Stage) -> None:
    """A fork has copies of everything, and lives on."""
    stage.script("claude", WILLING)
    program = stage.caller(
        FORK
        + """
if child == 0:
    os.execvp("sleep", ["sleep", "600"]) if "exec" in sys.argv else time.sleep(600)
print(child, flush=True)
time.sleep(600)
"""
    )
    assert program.stdout is not None
    child = int(program.stdout.readline())
    stands(stage)

    program.kill()

    try:
        until(lambda: not any(map(is_alive, map(int, stage.lines("pids")))), "the end of the tree")
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)
    gone(stage)


def test_the_slot_is_kept_until_the_tree_is_gone(stage: Stage, home: Path) -> None:
    """After ``kill -9`` of the caller another process waits until the last tool has ended."""
    stage.script("claude", DEAF)
    program = stage.caller(EXECUTE + "agent.execute('x')", "home", GRACE="3s")
    pids = stands(stage)
    with Governor(f"sqlite:///{home}") as governor:
        governor.set_limit("agent", 1)

        program.kill()
        program.wait()

        assert governor.capacity("agent").used == 1
        with governor.slot("agent/claude", timeout=60) as lease:
            assert not any(map(is_alive, pids))
            assert lease.waited_seconds > 0
        assert governor.capacity("agent").used == 0
    gone(stage)


@pytest.mark.parametrize("how", ["plain", "asyncio", "nested", "run_until_complete"])
def test_ctrl_c(stage: Stage, how: str) -> None:
    """In a program that is inside ``execute``: it raises, and nothing is left by then."""
    stage.script("claude", WILLING)
    run = {
        "plain": "agent.execute('x')",
        "asyncio": "asyncio.run(agent.aexecute('x'))",
        "nested": """
    async def main():
        # Nobody but us handles the signal while the loop is blocked.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        agent.execute('x')
    asyncio.run(main())""",
        "run_until_complete": """
    loop = asyncio.new_event_loop()
    task = loop.create_task(agent.aexecute('x'))
    try:
        loop.run_until_complete(task)
    finally:
        task.cancel()
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        loop.close()""",
    }[how]
    program = stage.caller(
        EXECUTE
        + f"""
try:
    {run.strip()}
except KeyboardInterrupt:
    pids = map(int, stage.lines("pids"))
    sys.exit(9 if any(os.path.exists(f"/proc/{{pid}}") for pid in pids) else 7)
"""
    )
    stands(stage)

    program.send_signal(signal.SIGINT)

    assert end(program) == (7, "")
    gone(stage)


@pytest.mark.parametrize("argument", ["", "home"])
def test_the_program_ends_while_an_agent_runs_in_a_daemon_thread(
    stage: Stage, home: Path, argument: str
) -> None:
    """It is ended first, so that its slot is not free before."""
    stage.script("claude", DEAF)
    program = stage.caller(
        EXECUTE
        + """
threading.Thread(target=agent.execute, args=("x",), daemon=True).start()
while len(stage.lines("pids")) < 2: time.sleep(0.01)
if governor:
    def hear(event):
        if event.kind == "released":
            alive = [pid for pid in stage.lines("pids") if os.path.exists(f"/proc/{pid}")]
            print("released over", alive, flush=True)
    governor.subscribe(hear)
""",
        argument,
        GRACE="1s",
    )
    pids = stands(stage)
    watch = Governor(f"sqlite:///{home}")
    watch.set_limit("agent", 1)
    if argument:
        with watch.slot("agent/claude", timeout=60):
            assert not any(map(is_alive, pids))
    output, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (0, "")
    assert output in {"", "released over []\n"}
    # The program itself has waited for them.
    assert not any(map(is_alive, pids))
    watch.close()
    gone(stage)


def test_a_forked_child_neither_waits_for_nor_ends_its_parents_agents(stage: Stage) -> None:
    """It may run agents of its own, and leave as it likes."""
    stage.script("claude", DEAF)
    program = stage.caller(
        FORK
        + """
if child == 0:
    other = Command("echo", "hello")
    assert other.execute("x").text == "hello\\n"
    print(agent.guard.capacity(agent.key(None)).used, flush=True)
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print(agent.guard.capacity(agent.key(None)).used, flush=True)
sys.stdin.readline()
""",
        GRACE="200ms",
    )
    pids = stands(stage)
    assert program.stdout is not None
    assert [program.stdout.readline().strip() for _ in range(3)] == ["0", "5", "1"]
    assert all(map(is_alive, pids))

    assert end(program) == (0, "")
    gone(stage)


def test_warnings_and_debug_mode_find_nothing(stage: Stage) -> None:
    """``python -W error -X dev`` with asyncio's debug mode: not a word."""
    stage.script("claude", "sleep 0.05; echo '{}'")
    code = (
        "import sys, asyncio\n"
        "from headway.harness import ClaudeCode\n"
        "agent = ClaudeCode(executable=sys.argv[1], max_concurrent=2)\n"
        "async def main():\n"
        "    return await asyncio.gather(*(agent.aexecute('x', on_event=lambda e: None)\n"
        "                                  for _ in range(4)))\n"
        "print([result.status for result in asyncio.run(main(), debug=True)])\n"
        "del agent\n"
    )
    environ = {**os.environ, **stage.environ, "PYTHONASYNCIODEBUG": "1"}

    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", code, stage.directory / "bin/claude"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.stdout == "['failed', 'failed', 'failed', 'failed']\n", done.stderr
    assert "Warning" not in done.stderr


@pytest.mark.parametrize("closed", ["0", "1", "2", "0 1", "1 2", "0 1 2"])
def test_a_caller_without_standard_streams(stage: Stage, closed: str) -> None:
    """A daemon has closed them; its agents read and write all the same."""
    stage.script("echoing", "cat; echo errors >&2")
    program = stage.caller(
        """
for number in sys.argv[1].split():
    os.close(int(number))
agent = Command(str(stage.directory / "bin/echoing"), env=stage.environ, max_concurrent=8)
async def main():
    return await asyncio.gather(*(agent.aexecute(f"prompt {i}") for i in range(8)))
found = [result.text for result in asyncio.run(main())]
(stage.directory / "found").write_text(repr(found) + "\\n")
os._exit(0)
""",
        closed,
    )
    program.wait(60)

    assert stage.file("found") == repr([f"prompt {i}" for i in range(8)])

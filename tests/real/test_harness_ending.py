"""Real agents behind the harness that are ended: nothing of them is left, here and upstream."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import until
from tests.real.harnessed import KINDS, harness, left_over
from tests.worker.kit import is_alive

from headway import Governor
from headway.harness import Cancellation

if TYPE_CHECKING:
    from tests.llm.server import Server
    from tests.real.kit import Equipped

pytestmark = pytest.mark.real


def test_cancelling_ends_the_request_too(equipped: Equipped, server: Server) -> None:
    """In the middle of a stream: the model is not asked any longer, and the slot is free."""

    async def scene() -> None:
        server.plan(hold="middle", words=20)
        agent, handle = harness(equipped, max_concurrent=1), Cancellation()
        running = asyncio.create_task(
            agent.aexecute("go on", cwd=equipped.directory, cancellation=handle)
        )
        await server.until_async(lambda s: s.held() == 1)
        handle.cancel("enough")
        result = await running

        assert (result.status, result.reason) == ("cancelled", "enough")
        assert left_over(equipped) == []
        await server.until_async(lambda s: s.in_flight() == 0)
        server.forget_plans()
        after = await agent.aexecute("say: next please", cwd=equipped.directory)
        assert after.text.strip() == "next please"

    asyncio.run(scene())


def test_a_tool_in_a_session_of_its_own_ends_too(equipped: Equipped, server: Server) -> None:
    """What the agent's shell started is gone when the result is there."""

    async def scene() -> None:
        command = "echo $$ > tool.pid; exec sleep 600"
        agent = harness(equipped)
        running = asyncio.create_task(
            agent.aexecute(f"[tool: {command}] say: never", cwd=equipped.directory)
        )
        proof = equipped.directory / "tool.pid"
        await asyncio.to_thread(
            until, lambda: proof.exists() and proof.read_text().strip(), "a tool"
        )
        assert left_over(equipped)
        running.cancel()

        with pytest.raises(asyncio.CancelledError):
            await running
        assert left_over(equipped) == []
        assert not is_alive(int(proof.read_text()))
        assert server.in_flight() == 0

    asyncio.run(scene())


def test_the_clock_ends_it(equipped: Equipped, server: Server) -> None:
    """A model that never answers, and a maximal runtime."""
    server.plan(hold="before")
    result = harness(equipped).execute("hello?", cwd=equipped.directory, max_runtime="8s")

    assert result.status == "timed_out"
    assert result.ended_by is not None
    assert result.ended_by[:3] == ("max_runtime", "max_runtime", "8 s")
    assert left_over(equipped) == []
    server.until(lambda s: s.in_flight() == 0)


_PROGRAM = """\
import sys
from headway import Governor
from headway.harness import {kind}

agent = {kind}(model=sys.argv[1], executable=sys.argv[2], auto_approve=True, governor=Governor())
agent.execute("[tool: echo up > up; sleep 600] say: never")
"""


def test_a_killed_program_leaves_no_agent(equipped: Equipped, server: Server) -> None:
    """``kill -9`` of the caller ends the agent and its tools; until then the slot is in use."""
    agent = harness(equipped)
    home = equipped.home / "headway"
    caller = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _PROGRAM.format(kind=KINDS[equipped.agent.name].__name__),
            str(agent.model),
            equipped.program,
        ],
        cwd=equipped.directory,
        env={**equipped.environ, "HEADWAY_HOME": str(home)},
    )
    try:
        until((equipped.directory / "up").exists, "a tool")
        with Governor(f"sqlite:///{home}") as governor:
            assert governor.capacity("agent").used == 1
            os.kill(caller.pid, signal.SIGKILL)
            until(lambda: governor.capacity("agent").used == 0, "the end of the agent")
            assert left_over(equipped) == []
        server.until(lambda s: s.in_flight() == 0)
    finally:
        caller.kill()
        caller.wait()

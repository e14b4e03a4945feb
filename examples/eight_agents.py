"""Eight small agents share three slots; one of them is killed half-way.

    python examples/eight_agents.py

Each agent is a process of its own that knows nothing of the others but the home.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time

import headway

AGENTS, SLOTS = 8, 3
KEY = "agent/demo"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headway-demo-") as home:
        governor = headway.Governor(f"sqlite:///{home}", limits={KEY: SLOTS})
        command = [sys.executable, __file__, "agent"]
        agents = {
            f"issue-{number}": subprocess.Popen(
                command,
                env={**os.environ, "HEADWAY_HOME": home, "HEADWAY_TASK": f"issue-{number}"},
            )
            for number in range(1, AGENTS + 1)
        }
        watch(governor, agents)
        governor.close()


def watch(governor: headway.Governor, agents: dict[str, subprocess.Popen[bytes]]) -> None:
    """Show the slots until all agents are done, and kill one of them on the way."""
    killed, done = "", 0
    while done < AGENTS:
        snapshot = governor.snapshot()
        running = [lease.task or "?" for lease in snapshot.leases]
        waiting = [ticket.task or "?" for ticket in snapshot.waiting]
        done = sum(agent.poll() is not None for agent in agents.values())
        print(f"running {running}  waiting {waiting}  done {done}", flush=True)
        if not killed and done >= 2 and running:
            killed = running[0]
            agents[killed].send_signal(signal.SIGKILL)
            print(f"-- kill -9 {killed}: its slot goes to the next in line", flush=True)
        time.sleep(0.2)
    print(f"\n{AGENTS} agents, never more than {SLOTS} at once; {killed} died and held nobody up.")


def agent() -> None:
    """Wait for a slot, then work for a while."""
    with headway.slot(KEY):
        time.sleep(random.uniform(0.6, 1.2))  # noqa: S311 - work of some length


if __name__ == "__main__":
    agent() if sys.argv[1:] == ["agent"] else main()

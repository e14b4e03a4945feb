"""Twenty prompts over two providers, under shared limits, with a live table.

python examples/fan_out.py              pretended agents: no account, no cost
python examples/fan_out.py --really     Claude Code and Codex, counted in your home
"""

from __future__ import annotations

import argparse
import asyncio
import pathlib
import sys
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from headway import Governor
from headway.harness import ClaudeCode, Codex
from headway.harness.events import Finished, Queued, Retrying, Started, Text, ToolCall

if TYPE_CHECKING:
    from headway.harness import Harness, Result
    from headway.harness.events import AgentEvent

PRETENDED = pathlib.Path(__file__).parent / "pretend"
STYLES = {"succeeded": "green", "failed": "red", "truncated": "red", "waiting": "dim"}


class Board:
    """What each task does just now."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[str, str, str]] = {}
        self._calls: Counter[str] = Counter()

    def add(self, task: str, program: str) -> None:
        self._rows[task] = (program, "waiting", "")

    def hear(self, event: AgentEvent) -> None:
        """Called with every event of every task."""
        assert event.task is not None
        program, state, doing = self._rows[event.task]
        if isinstance(event, Queued):
            state, doing = "waiting", f"place {event.position} for {event.key}"
        elif isinstance(event, Started):
            state, doing = "running", ""
        elif isinstance(event, ToolCall):
            self._calls[event.task] += 1
            doing = f"{event.tool} {event.arguments}"
        elif isinstance(event, Retrying):
            doing = f"tries again: {event.reason}"
        elif isinstance(event, Text):
            doing = event.text
        elif isinstance(event, Finished):
            state, doing = event.result.status, event.result.reason or event.result.text
        self._rows[event.task] = (program, state, doing)

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for heading, width in (("TASK", 8), ("AGENT", 6), ("STATE", 9), ("CALLS", 5)):
            table.add_column(heading, no_wrap=True, min_width=width)
        table.add_column("NOW", no_wrap=True)  # gives way where the window is narrow
        for task, (program, state, doing) in self._rows.items():
            calls, now = str(self._calls[task] or ""), " ".join(doing.split())
            table.add_row(task, program, state, calls, now, style=STYLES.get(state))
        return table


async def fan_out(agents: list[Harness], prompts: list[str]) -> list[Result]:
    """Give the prompts to the agents in turn; the limits decide how many run at once."""
    board, console = Board(), Console()
    with Live(board, console=console, refresh_per_second=8):
        async with asyncio.TaskGroup() as group:
            tasks = []
            for number, prompt in enumerate(prompts):
                agent, task = agents[number % len(agents)], f"issue-{number + 1}"
                board.add(task, agent.program)
                execution = agent.aexecute(
                    prompt,
                    task=task,
                    timeout="30m",
                    max_runtime="1h",
                    retries=1,
                    on_event=board.hear,
                )
                tasks.append(group.create_task(execution))
    if not console.is_terminal:
        console.print()  # Live leaves the cursor at the end of the table
    return [task.result() for task in tasks]


def main() -> None:
    """Run it, and say what it took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--really", action="store_true", help="use the real programs")
    really = parser.parse_args().really
    if really:
        governor = Governor()
        agents: list[Harness] = [ClaudeCode(governor=governor), Codex(governor=governor)]
    else:
        governor = Governor("memory://", limits={"agent": 5, "agent/codex": 2})
        agents = [
            ClaudeCode(governor=governor, executable=str(PRETENDED / "claude")),
            Codex(governor=governor, executable=str(PRETENDED / "codex")),
        ]
    prompts = [f"look at issue {number} and say what it needs" for number in range(1, 21)]
    try:
        results = asyncio.run(fan_out(agents, prompts))
    except KeyboardInterrupt:
        sys.exit("ended by Ctrl-C; nothing is left running")
    finally:
        governor.close()
    ends = ", ".join(f"{count} {end}" for end, count in Counter(r.status for r in results).items())
    tokens = sum(result.usage.output_tokens for result in results)
    longest = max(result.waited_seconds for result in results)
    print(f"{len(results)} tasks: {ends}; {tokens:,} tokens; the longest waited {longest:.0f} s")


if __name__ == "__main__":
    main()

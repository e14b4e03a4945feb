"""Records what the real agents print, for tests of how their events are read.

``python -m tests.real.record [AGENT [CASE]]`` writes ``tests/data/agents`` anew.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.llm.server import Server, serving
from tests.real.agents import AGENTS, Agent
from tests.real.anonymous import Anonymous
from tests.real.cases import CASES, Case
from tests.real.install import cache
from tests.real.kit import Equipped, equip

_RECORDINGS = Path(__file__).parent.parent / "data" / "agents"
_PATIENCE_SECONDS = 180
_ENOUGH = 16  # of what goes on and on
Ended = tuple[int | None, str, str]  # code, stdout, stderr
_SESSION = re.compile(r'"(?:sessionID|session_id|thread_id)":"([^"]+)"')


def main(wanted: list[str]) -> None:
    """Record all agents in all cases, or those that are named."""
    for agent in AGENTS:
        if wanted and agent.name != wanted[0]:
            continue
        for case in CASES:
            if len(wanted) < 2 or case.name in wanted[1:]:
                _record(agent, case)


def _record(agent: Agent, case: Case) -> None:
    with serving() as server, tempfile.TemporaryDirectory(prefix="record-") as place:
        server.plan(**case.ordered)
        equipped = equip(agent, Path(place), server.url)
        names = {
            str(equipped.directory): "/home/user/project",
            str(equipped.home): "/home/user",
            # Some turn the path of their project into a name.
            str(equipped.directory).replace("/", "-"): "-home-user-project",
            place: "/home",
            cache(): "/opt",
            os.environ["PATH"]: "/usr/bin",
        }
        session = _begun(equipped) if case.resumes else ""
        before = len(server.requests())
        outcome = _run(equipped, server, case, session)
        statuses = [each.status for each in server.requests()[before:]]
    print(
        f"{agent.name:9} {case.name:22} {outcome[0]} {statuses[:_ENOUGH]}",
        file=sys.stderr,
        flush=True,
    )
    _keep(agent, case, Anonymous(names), outcome, statuses)


def _begun(equipped: Equipped) -> str:
    found = _SESSION.search(equipped.ask("say: the first answer of a session").stdout)
    assert found
    return found[1]


def _run(equipped: Equipped, server: Server, case: Case, session: str) -> Ended:
    asked = equipped.command(case.prompt, model=case.model, session=session)
    command = _asking_for_help(asked) if case.asks_for_help else asked
    for name in case.without:
        equipped.environ.pop(name, None)
    process = equipped.start(command, **case.changes)
    if case.signal is not None:
        server.until(lambda s: s.held() == 1)
        process.send_signal(case.signal)
    try:
        stdout, stderr = process.communicate(timeout=_PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        return None, stdout, stderr
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, stdout, stderr


def _asking_for_help(asking: list[str]) -> list[str]:
    """Of the command that asks for an answer, be it the program or one of its own."""
    is_command = not asking[1].startswith("-")
    return [*asking[: 2 if is_command else 1], "--help"]


def _keep(
    agent: Agent, case: Case, anonymous: Anonymous, outcome: Ended, statuses: list[int | None]
) -> None:
    code, stdout, stderr = outcome
    if case.asks_for_help:
        stdout, stderr = stdout or stderr, ""  # opencode's goes to stderr
    directory = _RECORDINGS / agent.name
    directory.mkdir(parents=True, exist_ok=True)
    index = directory / "cases.json"
    known: dict[str, Any] = json.loads(index.read_text()) if index.exists() else {}
    kept = directory / f"{case.name}.{'txt' if case.asks_for_help else 'jsonl'}"
    known[case.name] = {
        "version": agent.version,
        "exit_code": code,  # null: was still at it after three minutes
        "requests": len(statuses),
        "server_said": " ".join(str(status) for status in statuses[:_ENOUGH]),
        "stderr": [anonymous.line(line)[:500] for line in stderr.splitlines()][:_ENOUGH],
    }
    lines = stdout.splitlines()[: _ENOUGH if code is None else None]
    kept.write_text("".join(f"{anonymous.line(line)}\n" for line in lines))
    index.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""The real agents through the gateway: nobody has to change them, and the limit holds."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest
from tests.gateway.kit import Running, running
from tests.real.agents import AGENTS, private_environment
from tests.real.kit import equip, program_of

from headway.gateway.tools import lines_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.llm.server import Server
    from tests.real.agents import Agent
    from tests.real.kit import Equipped

pytestmark = pytest.mark.real
_PREFIXES = {"opencode": "openai", "claude": "anthropic", "codex": "openai", "gemini": "gemini"}
_PATIENCE_SECONDS = 200
# Models that a program knows for itself, where it has to.
_KNOWN_MODELS = {"opencode": "openai/gpt-5"}


@pytest.fixture
def gateway(home: Path, server: Server) -> Iterator[Running]:
    """A gateway to the model server, with two slots for everything."""
    upstreams = dict.fromkeys(("openai", "anthropic", "gemini"), server.url)
    with running(home, upstreams) as gateway:
        gateway.governor.set_limit("llm", 2)
        yield gateway


def _behind(agent: Agent, place: Path, gateway: Running, task: str) -> Equipped:
    return equip(agent, place / task, f"{gateway.url}/t/{task}/{_PREFIXES[agent.name]}")


def _texts(processes: list[subprocess.Popen[str]]) -> list[str]:
    return [process.communicate(timeout=_PATIENCE_SECONDS)[0] for process in processes]


@pytest.mark.parametrize("count", [2, 6])
def test_copies_share_two_slots(
    agent: Agent, tmp_path: Path, gateway: Running, server: Server, count: int
) -> None:
    """The server never sees more than two at a time, and every answer is whole."""
    names = [f"copy{number}" for number in range(count)]
    server.plan(chunk_delay=0.05)
    processes = []
    for name in names:
        copy = _behind(agent, tmp_path, gateway, name)
        processes.append(copy.start(copy.command(f"say: the answer to {name} and its end")))

    for name, said in zip(names, _texts(processes), strict=True):
        assert f"the answer to {name} and its end" in said.replace('","', "")
    assert server.peak() <= 2
    assert [process.returncode for process in processes] == [0] * count
    assert {entry["task"] for entry in gateway.entries} == set(names)


def test_one_that_is_killed_makes_room(
    agent: Agent, tmp_path: Path, gateway: Running, server: Server
) -> None:
    """In the middle of its stream; the others get their answers."""
    gateway.governor.set_limit("llm", 1)
    server.plan(hold="middle", words=50, match="killed")
    first = _behind(agent, tmp_path, gateway, "first")
    killed = first.start(first.command("[words: 50] killed"))
    server.until(lambda s: s.held() == 1, _PATIENCE_SECONDS)
    second = _behind(agent, tmp_path, gateway, "second")
    waiting = second.start(second.command("say: my turn"))
    gateway.until(lambda: gateway.waiting() >= 1, "the wait")

    os.killpg(killed.pid, signal.SIGKILL)

    killed.communicate()
    assert "my turn" in _texts([waiting])[0]
    gateway.until(lambda: gateway.held() == 0, "the end")


def test_a_refusal_is_waited_for(
    agent: Agent, tmp_path: Path, gateway: Running, server: Server
) -> None:
    """The provider says when to come back, and everyone does as it says."""
    copy = _behind(agent, tmp_path, gateway, "limited")
    limited = "[status: 429] [retry-after: 1] [retry-delay: 1s] [times: 1] say: after the limit"
    answer = copy.ask(limited)

    assert "after the limit" in answer.stdout
    assert answer.code == 0
    assert "refused upstream" in [entry["outcome"] for entry in gateway.entries]
    assert len(server.requests(copy.agent.model)) <= 3


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_ten_minutes_of_waiting_are_survived(
    tmp_path: Path, gateway: Running, server: Server
) -> None:
    """By all of them: each is kept waiting in its own way, and Claude Code asks again by itself."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        copies = [_behind(agent, tmp_path, gateway, agent.name) for agent in AGENTS]
        processes = [copy.start(copy.command("say: at last")) for copy in copies]
        time.sleep(620)

    assert ["at last" in said for said in _texts(processes)] == [True] * len(AGENTS)
    gone = {entry["task"] for entry in gateway.entries if entry["outcome"] == "client gone"}
    assert gone == {"claude"}
    assert server.peak() == 1


def test_the_lines_that_are_printed_are_enough(
    agent: Agent, tmp_path: Path, gateway: Running
) -> None:
    """As ``headway gateway env`` prints them, for a tool with nothing else that leads there."""
    home, directory = tmp_path / "agent-home", tmp_path / "agent-work"
    directory.mkdir()
    environ = private_environment(home)
    environ |= agent.settings(home, "http://127.0.0.1:9")
    environ |= {"OPENAI_API_KEY": "dummy"}
    lines = lines_for(agent.name, gateway.url, "mine")
    if agent.name == "codex":
        _replace_provider(home / ".codex/config.toml", lines)
    else:
        (line,) = lines
        name, _, value = line.removeprefix("export ").partition("=")
        environ[name] = shlex.split(value)[0]
    if agent.name == "opencode":
        (home / ".config/opencode/opencode.json").unlink()
    words = agent.asking("say: hello from afar", model=_KNOWN_MODELS.get(agent.name, ""))
    command = [program_of(agent), *(word.removeprefix("fake/") for word in words)]
    done = subprocess.run(
        command,
        cwd=directory,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )

    assert "hello from afar" in done.stdout, done.stderr
    assert {entry["task"] for entry in gateway.entries} == {"mine"}
    assert any(entry["key"] for entry in gateway.entries)


def _replace_provider(path: Path, lines: list[str]) -> None:
    """Put the printed lines into a file that has a provider of its own."""
    text = path.read_text()
    kept = re.sub(
        r"^model_provider = .*\n|\[model_providers\.fake\][^\[]*", "", text, flags=re.MULTILINE
    )
    first, *rest = lines
    path.write_text("\n".join([first, kept, *rest, ""]))

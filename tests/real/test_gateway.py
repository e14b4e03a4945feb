"""The real agents through the gateway: nobody has to change them, and the limit holds."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import PROGRAM
from tests.gateway.kit import Running, running
from tests.real.agents import AGENTS, Claude, Codex, private_environment
from tests.real.kit import equip, program_of
from tests.unit.test_config import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.llm.server import Server
    from tests.real.agents import Agent
    from tests.real.kit import Equipped

pytestmark = pytest.mark.real
_PREFIXES = {"opencode": "openai", "claude": "anthropic", "codex": "openai", "gemini": "gemini"}
_PATIENCE_SECONDS = 200
# Its section of the page.
_TITLES = {"opencode": "opencode", "claude": "Claude Code", "codex": "Codex", "gemini": "Gemini"}
# Models that a program knows for itself, where it has to.
_KNOWN_MODELS = {"opencode": "openai/gpt-5", "codex": "gpt-5"}


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


@pytest.fixture
def environ(tmp_path: Path, home: Path, gateway: Running) -> dict[str, str]:
    """Of somebody who reads the page; the gateway listens where it says, but for the port."""
    environ = private_environment(tmp_path / "agent-home")
    programs = [os.path.dirname(PROGRAM), *(os.path.dirname(program_of(each)) for each in AGENTS)]
    return environ | {
        "PATH": os.pathsep.join([*programs, environ["PATH"]]),
        "HEADWAY_HOME": str(home),
        "HEADWAY_GATEWAY_PORT": str(gateway.port),
        "OPENAI_API_KEY": "dummy",
    }


def test_what_the_page_says_of_each_agent_is_enough(
    agent: Agent, tmp_path: Path, environ: dict[str, str], gateway: Running
) -> None:
    """For one with nothing else that leads to the gateway."""
    home = tmp_path / "agent-home"
    environ |= agent.settings(home, "http://127.0.0.1:9")
    environ["PATH"] = os.pathsep.join([os.path.dirname(program_of(agent)), environ["PATH"]])
    told = _page(gateway, _TITLES[agent.name])
    script = ""
    if agent.name == "codex":
        _without_provider(home / ".codex/config.toml", *told["toml"])
    else:
        (script,) = told["sh"]
    if agent.name == "opencode":
        (home / ".config/opencode/opencode.json").unlink()
    words = agent.asking("say: hello from afar", model=_KNOWN_MODELS.get(agent.name, ""))
    words = [agent.name, *(word.removeprefix("fake/") for word in words)]

    assert "hello from afar" in _done(f"{script}\n{shlex.join(words)}", environ)
    assert any(entry["key"] for entry in gateway.entries)


def test_what_the_page_begins_with(
    tmp_path: Path, environ: dict[str, str], gateway: Running
) -> None:
    """Word by word: Claude Code has its task, and the limit is in force."""
    environ |= Claude().settings(tmp_path / "agent-home", "http://127.0.0.1:9")
    setting_up, using = _page(gateway, "")["sh"]
    (limit,) = [line for line in setting_up.splitlines() if "limits" in line]

    said = _done(f"{limit}\n{using}", environ)

    assert "llm/anthropic: 2 slots" in said
    assert {entry["task"] for entry in gateway.entries if entry["key"]} == {"issue-16"}
    assert {entry["outcome"] for entry in gateway.entries} == {"ok"}


def test_codex_takes_its_line_as_an_option(
    tmp_path: Path, environ: dict[str, str], gateway: Running
) -> None:
    """For one run, word by word as the page has it; its settings stay as they are."""
    home = tmp_path / "agent-home"
    environ |= Codex().settings(home, "http://127.0.0.1:9")
    _without_provider(home / ".codex/config.toml")
    (command,) = _page(gateway, _TITLES["codex"])["sh"]

    _done(f"git init -q\n{command}", environ)

    assert {entry["task"] for entry in gateway.entries} == {"issue-16"}
    assert "ok" in {entry["outcome"] for entry in gateway.entries if entry["key"]}


def _page(gateway: Running, title: str) -> dict[str, list[str]]:
    """What is to be typed in a section of the page, by its language; at its top without a title."""
    text = Path(ROOT, "docs", "gateway.md").read_text(encoding="utf-8")
    first, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    section = next(each for each in sections if each.startswith(title)) if title else first
    told: dict[str, list[str]] = {"sh": [], "toml": []}
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        told[language].append(block.replace(":8642/", f":{gateway.port}/"))
    return told


def _done(script: str, environ: dict[str, str]) -> str:
    """What a shell prints that is given all this."""
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=environ["TMPDIR"],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _without_provider(path: Path, line: str = "") -> None:
    """Take a provider out of Codex's settings, and put this at their top."""
    text = path.read_text()
    kept = re.sub(
        r"^model_provider = .*\n|\[model_providers\.fake\][^\[]*", "", text, flags=re.MULTILINE
    )
    path.write_text(f"{line}\n{kept}")

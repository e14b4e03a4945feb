"""A real agent, installed and set up for one model server, ready to be asked."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.real.agents import Agent, private_environment
from tests.real.install import CannotInstall, install

if TYPE_CHECKING:
    from pathlib import Path

_PATIENCE_SECONDS = 200


def program_of(agent: Agent) -> str:
    """The agent's program; where there can be none, the test is skipped, or fails if it must not.

    ``HEADWAY_REQUIRE_REAL=1`` says that it must not.
    """
    try:
        return install(agent)
    except CannotInstall as reason:
        if os.environ.get("HEADWAY_REQUIRE_REAL") == "1":
            pytest.fail(str(reason))
        pytest.skip(str(reason))


@dataclass(frozen=True)
class Equipped:
    """An agent with a home of its own."""

    agent: Agent
    program: str
    home: Path
    directory: Path  # where it works
    environ: dict[str, str] = field(repr=False)

    def command(self, prompt: str, *, model: str = "", session: str = "") -> list[str]:
        return [self.program, *self.agent.asking(prompt, model=model, session=session)]

    def start(self, command: list[str], **changes: str) -> subprocess.Popen[str]:
        """Start a command of the agent's, in its directory, with nothing to read."""
        return subprocess.Popen(
            command,
            cwd=self.directory,
            env={**self.environ, **changes},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, prompt: str, *, model: str = "", session: str = "") -> Outcome:
        """One answer, to its end."""
        process = self.start(self.command(prompt, model=model, session=session))
        try:
            stdout, stderr = process.communicate(timeout=_PATIENCE_SECONDS)
        finally:
            process.kill()
        return Outcome(process.returncode, stdout, stderr)


@dataclass(frozen=True)
class Outcome:
    """How a run of an agent ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stdout.splitlines()]


def equip(agent: Agent, place: Path, url: str) -> Equipped:
    """Give the agent a home below the place, and settings that lead to the server there."""
    program = program_of(agent)
    home, directory = place / "agent-home", place / "agent-work"
    home.mkdir(parents=True)
    directory.mkdir()
    environ = {**private_environment(home), **agent.settings(home, url)}
    return Equipped(agent, program, home, directory, environ)

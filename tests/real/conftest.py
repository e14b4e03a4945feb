"""Fixtures of the tests with real agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.llm.conftest import server
from tests.real.agents import AGENTS, NEWEST, NEWEST_AGENTS, PINNED
from tests.real.install import version_of
from tests.real.kit import Equipped, equip, program_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.llm.server import Server
    from tests.real.agents import Agent

__all__ = ["agent", "equipped", "server"]


@pytest.fixture(
    scope="session",
    params=[*AGENTS, *NEWEST_AGENTS],
    ids=lambda agent: f"{agent.name}-newest" if agent.version == NEWEST else agent.name,
)
def agent(request: pytest.FixtureRequest) -> Agent:
    """Each real agent in turn, installed: the pinned version, and the newest if it is another."""
    chosen: Agent = request.param
    program_of(chosen)
    if chosen.version == NEWEST and version_of(chosen) == PINNED[chosen.name]:
        pytest.skip(f"the newest {chosen.name} is the pinned one")
    return chosen


@pytest.fixture
def equipped(agent: Agent, tmp_path: Path, server: Server) -> Equipped:
    """The agent with a home of its own, set up for the test's server."""
    return equip(agent, tmp_path, server.url)

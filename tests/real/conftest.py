"""Fixtures of the tests with real agents."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

# However pytest was started: the kits are found from the project's root.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.llm.server import Server, serving  # noqa: E402 - after the path is set
from tests.real.agents import AGENTS  # noqa: E402
from tests.real.kit import Equipped, equip, program_of  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.real.agents import Agent


@pytest.fixture
def server() -> Iterator[Server]:
    """A model server of the test's own."""
    with serving() as server:
        yield server


@pytest.fixture(scope="session", params=AGENTS, ids=lambda agent: agent.name)
def agent(request: pytest.FixtureRequest) -> Agent:
    """Each real agent in turn, installed."""
    chosen: Agent = request.param
    program_of(chosen)
    return chosen


@pytest.fixture
def equipped(agent: Agent, tmp_path: Path, server: Server) -> Equipped:
    """The agent with a home of its own, set up for the test's server."""
    return equip(agent, tmp_path, server.url)

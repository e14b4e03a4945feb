"""The real agents, by themselves, get answers from the model server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.llm.server import Server
    from tests.real.kit import Equipped

pytestmark = pytest.mark.real


def test_an_agent_gets_its_answer(equipped: Equipped, server: Server) -> None:
    """A plain question is answered, in events that carry the whole text."""
    outcome = equipped.ask("Please say: grüße aus dem modell")

    assert outcome.code == 0, outcome.stderr
    said = "".join(_texts(outcome.events))
    assert "grüße aus dem modell" in said
    assert [each.tag for each in server.requests()] == ["grüße aus dem modell"]
    assert server.in_flight() == 0


def test_an_agent_runs_a_tool(equipped: Equipped, server: Server) -> None:
    """A command is run where the agent works, and its result goes back to the model."""
    outcome = equipped.ask("[tool: echo written > proof.txt] say: it is done")

    assert outcome.code == 0, outcome.stderr
    assert (equipped.directory / "proof.txt").read_text() == "written\n"
    assert "it is done" in "".join(_texts(outcome.events))
    assert [each.ask.results for each in server.requests()] == [0, 1]


def _texts(value: object) -> list[str]:
    """Every string anywhere in the events."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []

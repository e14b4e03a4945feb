"""The page about the gateway says what the program prints."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from tests.unit.test_config import ROOT

from headway.gateway.tools import NAMES, lines_for

_PAGE = Path(ROOT, "docs", "gateway.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("tool", NAMES)
def test_the_lines_for_each_tool_are_there(tool: str) -> None:
    """As they are printed, or the command that prints them."""
    lines = "\n".join(lines_for(tool, "http://127.0.0.1:8642"))

    assert lines in _PAGE or f"headway gateway env {tool}" in _PAGE


def test_the_lines_for_codex_are_settings() -> None:
    """Its file can be read with them."""
    settings = tomllib.loads("\n".join(lines_for("codex", "http://127.0.0.1:8642", "a b")))

    provider = settings["model_providers"][settings["model_provider"]]
    assert provider["base_url"] == "http://127.0.0.1:8642/t/a%20b/openai/v1"

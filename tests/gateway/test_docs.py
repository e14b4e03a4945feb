"""The page about the gateway says what the program prints."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import httpx
import pytest
from tests.gateway.kit import running
from tests.unit.test_config import ROOT

from headway import ConfigError, config
from headway.gateway import dialects
from headway.gateway.tools import NAMES, line_for

_PAGE = Path(ROOT, "docs", "gateway.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("tool", NAMES)
def test_the_lines_for_each_tool_are_there(tool: str) -> None:
    """As they are printed, or the command that prints them."""
    assert (
        line_for(tool, "http://127.0.0.1:8642") in _PAGE or f"headway gateway env {tool}" in _PAGE
    )


def test_the_line_for_codex_is_a_setting() -> None:
    """Its file can be read with it."""
    settings = tomllib.loads(line_for("codex", "http://127.0.0.1:8642", "a b"))

    assert settings == {"openai_base_url": "http://127.0.0.1:8642/t/a%20b/openai/v1"}


def test_the_settings_on_the_page_are_settings(home: Path) -> None:
    """A gateway starts with them, and has what they say."""
    (settings,) = re.findall(r"(?s)```toml\n(\[gateway\.upstreams\].*?)```", _PAGE)
    home.mkdir()
    (home / "config.toml").write_text(settings)
    with running(home, {}, {"ANTHROPIC_API_KEY": "secret"}) as gateway:
        told = httpx.get(f"{gateway.url}/nowhere").text

    assert "/openrouter" in told
    known = config.load(str(home), {})
    assert known.gateway_upstreams["openai"] == "https://gateway.example.com/openai"
    assert known.gateway_credentials == {"anthropic": "ANTHROPIC_API_KEY"}


def test_what_a_token_must_be_is_said(home: Path) -> None:
    """Before one is refused, on both pages, in the words of the refusal."""
    with pytest.raises(ConfigError) as refused:
        config.load(str(home), {"HEADWAY_GATEWAY_TOKEN": "short"})
    (rule,) = re.findall(r"\d+ to \d+ letters and digits", str(refused.value))

    assert rule in _PAGE
    assert rule in Path(ROOT, "docs", "settings.md").read_text(encoding="utf-8")


def test_how_long_nothing_is_sent_is_said() -> None:
    """It has to be less than the patience of the real clients."""
    assert f"comments from {dialects.CHAT.patience_seconds:g} s on" in _PAGE
    assert f"blank lines from {dialects.GEMINI.patience_seconds:g} s on" in _PAGE
    assert dialects.CHAT.patience_seconds < 300
    assert dialects.GEMINI.patience_seconds < 60

"""The gateway's upstreams and credentials, as people write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway import ConfigError, config


def _write(home: str, text: str) -> None:
    os.makedirs(home, exist_ok=True)
    Path(home, "config.toml").write_text(text)


def test_upstreams_have_names_and_base_urls(home: str) -> None:
    """In the file, or in a variable."""
    _write(home, '[gateway.upstreams]\nmine = "http://localhost:8000/api/"\n')

    assert config.load(home, {}).gateway_upstreams == {"mine": "http://localhost:8000/api"}
    variable = {"HEADWAY_GATEWAY_UPSTREAMS": "a=https://a.example b=http://[::1]:9"}
    assert config.load(home, variable).gateway_upstreams == {
        "a": "https://a.example",
        "b": "http://[::1]:9",
    }


def test_credentials_are_names_of_variables(home: str) -> None:
    """Never the secrets themselves."""
    _write(home, '[gateway.credentials]\nanthropic = "ANTHROPIC_API_KEY"\n')

    settings = config.load(home, {})

    assert settings.gateway_credentials == {"anthropic": "ANTHROPIC_API_KEY"}


@pytest.mark.parametrize(
    "text",
    [
        'upstreams = "no table"',
        "[gateway.upstreams]\nmine = 5",
        '[gateway.upstreams]\nmine = "localhost:8000"',
        '[gateway.upstreams]\nmine = "ftp://localhost"',
        '[gateway.upstreams]\nmine = "https://user:secret@host/"',
        '[gateway.upstreams]\n"a/b" = "https://host"',
        '[gateway.upstreams]\n"" = "https://host"',
        '[gateway.upstreams]\nhealthz = "https://host"',
        '[gateway.upstreams]\nt = "https://host"',
        '[gateway.upstreams]\nk = "https://host"',
        '[gateway.credentials]\nanthropic = "sk-ant-secret"',
        '[gateway]\ntoken = "short"',
        "[gateway]\nport = 70000",
    ],
)
def test_what_makes_no_sense_is_refused_by_its_place(home: str, text: str) -> None:
    """Without repeating what may be a secret."""
    _write(home, text if text.startswith("[") else f"[gateway]\n{text}")

    with pytest.raises(ConfigError, match=r"config\.toml: gateway\.") as told:
        config.load(home, {})

    assert "secret" not in str(told.value)


def test_all_that_is_wrong_is_told_together(home: str) -> None:
    """Nobody has to try again and again."""
    _write(home, '[gateway.upstreams]\none = "nothing"\ntwo = 2\n')

    with pytest.raises(ConfigError, match=r"(?s)one is wrong.*two is wrong"):
        config.load(home, {})

"""Programs of this machine come in, web pages do not, and others only with the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from tests.gateway.kit import running

from headway import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.kit import Running
    from tests.llm.server import Server

_TOKEN = "0123456789abcdef"  # noqa: S105 - it guards nothing


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"host": "localhost.evil.example:8642"},
        {"host": ""},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"host": "localhost", "origin": "http://localhost.evil.example"},
    ],
)
def test_a_web_page_may_not_come_in(
    gateway: Running, server: Server, headers: dict[str, str]
) -> None:
    """Neither by an address of this machine nor by a name that leads to one."""
    answer = httpx.get(f"{gateway.url}/openai/v1/models", headers=headers)

    assert answer.status_code == 403
    assert server.requests() == []


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:99", "[::1]:5", "127.9.9.9"]
)
def test_programs_of_this_machine_come_in(gateway: Running, host: str) -> None:
    """By whatever name they know it, and pages that are of this machine too."""
    headers = {"host": host, "origin": "http://localhost:3000"}

    assert httpx.get(f"{gateway.url}/openai/v1/models", headers=headers).status_code == 200


def test_another_address_needs_a_token(home: Path) -> None:
    """Otherwise anybody near could spend the account."""
    with (
        pytest.raises(ConfigError, match=r"gateway\.token"),
        running(home, {}, host="0.0.0.0"),  # noqa: S104 - that is the question
    ):
        pass


def test_the_token_opens_the_door(home: Path, server: Server) -> None:
    """In a header or in the path, and it does not go on to the provider."""
    environ = {"HEADWAY_GATEWAY_TOKEN": _TOKEN}
    with running(home, {"openai": server.url}, environ) as gateway:
        url = f"{gateway.url}/openai/v1/models"
        known = {"x-headway-token": _TOKEN, "host": "box.example"}
        refused = [
            httpx.get(url),
            httpx.get(url, headers={"x-headway-token": _TOKEN + "x"}),
            httpx.get(f"{gateway.url}/k/wrong/openai/v1/models"),
        ]
        served = [
            httpx.get(url, headers=known),
            httpx.get(f"{gateway.url}/k/{_TOKEN}/openai/v1/models", headers={"host": "box"}),
        ]

    assert [each.status_code for each in refused] == [403] * 3
    assert [each.status_code for each in served] == [200] * 2
    assert _TOKEN not in str(server.requests())


def test_credentials_of_the_gateway_replace_those_of_the_tool(home: Path, server: Server) -> None:
    """So that the tools need none; each provider has its own header for them."""
    environ = {
        "HEADWAY_GATEWAY_CREDENTIALS": "openai=OPENAI_KEY anthropic=ANTHROPIC_KEY",
        "OPENAI_KEY": "secret-o",
        "ANTHROPIC_KEY": "secret-a",
    }
    upstreams = dict.fromkeys(("openai", "anthropic"), server.url)
    with running(home, upstreams, environ) as gateway:
        dummy = {"authorization": "Bearer dummy", "x-api-key": "dummy"}
        for path in ("/openai/v1/chat/completions", "/anthropic/v1/messages"):
            ask = {"model": "gpt", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}]}
            httpx.post(f"{gateway.url}{path}", json=ask, headers=dummy)
        told = str(gateway.entries)

    sent = [record.headers for record in server.requests()]
    assert (sent[0].get("Authorization"), "x-api-key" in sent[0]) == ("Bearer secret-o", False)
    assert (sent[1].get("x-api-key"), "Authorization" in sent[1]) == ("secret-a", False)
    assert "secret" not in told

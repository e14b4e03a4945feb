"""Programs of this machine come in, web pages do not, and others only with the token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from tests.gateway.kit import running

from headway import ConfigError
from headway.gateway.door import Door
from headway.gateway.heads import RequestHead
from headway.gateway.lines import Lines
from headway.gateway.routing import UPSTREAMS

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
        {"origin": "http://[::1"},
        {"origin": "http://localhost@evil.example"},
        {"host": "localhost", "origin": "http://localhost.evil.example"},
    ],
)
def test_a_web_page_may_not_come_in(
    gateway: Running, server: Server, headers: dict[str, str]
) -> None:
    """Neither by an address of this machine nor by a name that leads to one."""
    answer = httpx.get(f"{gateway.url}/openai/v1/models", headers=headers)

    assert answer.status_code == 403
    assert server.probes == []


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
        url = f"{gateway.url}/openai/v1/chat/completions"
        ask = {"model": "gpt", "messages": [{"role": "user", "content": "x"}]}
        known = {"x-headway-token": _TOKEN, "host": "box.example"}
        refused = [
            httpx.post(url, json=ask),
            httpx.post(url, json=ask, headers={"x-headway-token": _TOKEN + "x"}),
            httpx.post(url.replace("/openai", "/k/wrong/openai"), json=ask),
            httpx.post(url, json=ask, headers=known | {"origin": "https://evil.example"}),
        ]
        by_path = url.replace("/openai", f"/k/{_TOKEN}/openai")
        served = [
            httpx.post(url, json=ask, headers=known),
            httpx.post(by_path, json=ask, headers={"host": "box"}),
        ]

    assert [each.status_code for each in refused] == [403] * 4
    assert [each.status_code for each in served] == [200] * 2
    sent = [str([*record.headers.items()]) for record in server.requests()]
    assert len(sent) == 2
    assert _TOKEN not in "".join(sent)


def test_whether_it_runs_is_no_secret(home: Path) -> None:
    """How much it has to do is one, and so is all of it for web pages and wrong tokens."""
    with running(home, {}, {"HEADWAY_GATEWAY_TOKEN": _TOKEN}) as gateway:
        url = f"{gateway.url}/healthz"
        told = [
            httpx.get(url, headers=headers)
            for headers in ({}, {"x-headway-token": _TOKEN}, {"host": "evil.example"})
        ]
        wrong = httpx.get(f"{gateway.url}/k/wrong/healthz")
        known = httpx.get(f"{gateway.url}/k/{_TOKEN}/healthz")
        entries = gateway.entries

    bare, whole = {"status": "ok"}, {"status": "ok", "busy": 0}
    assert told[0].json() == {"headway": bare}
    assert told[1].json() == known.json() == {"headway": whole}
    assert (told[2].status_code, wrong.status_code) == (403, 403)
    assert "Host is" in told[2].text
    assert "token is wrong" in wrong.text
    assert [each["status"] for each in entries] == [403, 403]


def test_credentials_of_the_gateway_replace_those_of_the_tool(home: Path, server: Server) -> None:
    """So that the tools need none; each provider has its own header for them."""
    environ = {
        "HEADWAY_GATEWAY_CREDENTIALS": "openai=KEY_O anthropic=KEY_A gemini=KEY_G",
        "KEY_O": "secret-o",
        "KEY_A": "secret-a",
        "KEY_G": "secret-g",
    }
    upstreams = dict.fromkeys(("openai", "anthropic", "gemini"), server.url)
    with running(home, upstreams, environ) as gateway:
        dummy = {"authorization": "Bearer dummy", "x-api-key": "dummy", "x-goog-api-key": "dummy"}
        for path in (
            "/openai/v1/chat/completions",
            "/anthropic/v1/messages",
            "/gemini/v1beta/models/gpt:generateContent",
        ):
            said = [{"role": "user", "content": "x", "parts": [{"text": "x"}]}]
            ask = {"model": "gpt", "max_tokens": 9, "messages": said, "contents": said}
            httpx.post(f"{gateway.url}{path}", json=ask, headers=dummy)
        told = str(gateway.entries)

    sent = [record.headers for record in server.requests()]
    assert (sent[0].get("Authorization"), "x-api-key" in sent[0]) == ("Bearer secret-o", False)
    assert (sent[1].get("x-api-key"), "Authorization" in sent[1]) == ("secret-a", False)
    assert sent[2].get("x-goog-api-key") == "secret-g"
    assert "dummy" not in str([[*headers.values()] for headers in sent])
    assert "secret" not in told


def test_credentials_that_are_not_there_are_said(home: Path) -> None:
    """Otherwise every request would be refused, by the provider."""
    environ = {"HEADWAY_GATEWAY_CREDENTIALS": "openai=OPENAI_KEY"}
    with pytest.raises(ConfigError, match="OPENAI_KEY is not set"), running(home, {}, environ):
        pass


def test_pages_of_the_address_itself_come_in_with_the_token() -> None:
    """They are of the machine that it was opened for."""
    head = RequestHead()
    head.lines = [(b"x-headway-token", _TOKEN.encode()), (b"Origin", b"http://box.example:3000")]

    assert Door("box.example", _TOKEN).refusal(head) == ""
    assert "web page" in Door("another.example", _TOKEN).refusal(head)


def test_the_providers_are_built_in(home: Path) -> None:
    """Whatever other ones there are; and they are reached over TLS, at its port."""
    with running(home, {"mine": "http://127.0.0.1:9"}) as gateway:
        told = httpx.get(f"{gateway.url}/nowhere")

    assert told.status_code == 404
    assert all(f"/{name}" in told.text for name in (*UPSTREAMS, "mine"))
    for url in UPSTREAMS.values():
        assert Lines(url, patience_seconds=1)._port == 443

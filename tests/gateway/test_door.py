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
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},  # an <img>
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


@pytest.mark.parametrize("site", ["same-origin", "same-site", "none"])
def test_a_browser_may_ask_for_a_page_of_this_machine(gateway: Running, site: str) -> None:
    """Only requests that another site has caused are refused."""
    headers = {"sec-fetch-site": site}

    assert httpx.get(f"{gateway.url}/openai/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["CONNECT", "TRACE"])
def test_methods_that_make_no_sense_here_are_refused(
    gateway: Running, server: Server, method: str
) -> None:
    """A TRACE would send the credentials back to its sender."""
    client = gateway.connect()
    client.send(f"{method} /openai/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    assert client.rest().startswith(b"HTTP/1.1 405 ")
    assert server.probes == []


@pytest.mark.parametrize(
    "path",
    [
        "/openai/../admin",
        "/openai/v1/..",
        "/openai/%2e%2e/admin",
        "/openai/.%2E/admin",
        "/openai/v1/x%2f..%2f..%2fadmin",
        "/openai/..\\admin",
        "/../openai/v1/models",
    ],
)
def test_no_path_leaves_the_base_of_its_upstream(
    gateway: Running, server: Server, path: str
) -> None:
    """Whatever way two dots are written."""
    client = gateway.connect()
    client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())

    assert client.rest().startswith(b"HTTP/1.1 400 ")
    assert server.probes == []


@pytest.mark.parametrize(
    "path", [f"/t/a/k/{_TOKEN}/openai/x", f"//k/{_TOKEN}/openai/x", f"/openai/%30{_TOKEN[1:]}"]
)
def test_a_token_in_the_wrong_place_is_refused_and_not_logged(home: Path, path: str) -> None:
    """Neither with it alone nor with one in the right place as well."""
    with running(home, {}, {"HEADWAY_GATEWAY_TOKEN": _TOKEN}) as gateway:
        for headers in ({}, {"x-headway-token": _TOKEN}):
            client = gateway.connect()
            client.post(path, b"{}", **headers)

            assert b"wrong place" in client.rest()
        gateway.until(lambda: len(gateway.entries) == 2, "the log")
        logged = str(gateway.entries)

    assert _TOKEN not in logged
    assert _TOKEN[1:] not in logged


def test_the_token_is_checked_before_the_body_is_sent(home: Path) -> None:
    """A client that waits for the answer to its headers gets it, and not a single byte is kept."""
    with running(home, {}, {"HEADWAY_GATEWAY_TOKEN": _TOKEN}) as gateway:
        client = gateway.connect()
        client.send(b"POST /openai/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n")

        assert client.rest().startswith(b"HTTP/1.1 403 ")


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


@pytest.mark.parametrize("secret", ["secret\n", "sec\rret", "secret\x00"])
def test_credentials_that_no_header_can_contain_are_refused(home: Path, secret: str) -> None:
    """A line break would end the header, and perhaps the headers."""
    environ = {"HEADWAY_GATEWAY_CREDENTIALS": "openai=OPENAI_KEY", "OPENAI_KEY": secret}
    with pytest.raises(ConfigError, match="OPENAI_KEY") as error, running(home, {}, environ):
        pass
    assert "sec" not in str(error.value).replace("gateway.credentials", "")


def test_pages_of_the_address_itself_come_in_with_the_token() -> None:
    """They are of the machine that it was opened for."""
    head = RequestHead()
    head.lines = [(b"x-headway-token", _TOKEN.encode()), (b"Origin", b"http://box.example:3000")]

    assert Door("box.example", _TOKEN).refusal(head) is None
    refused = Door("another.example", _TOKEN).refusal(head)
    assert refused is not None
    assert "web page" in refused[1]


def test_the_providers_are_built_in(home: Path) -> None:
    """Whatever other ones there are; and they are reached over TLS, at its port."""
    with running(home, {"mine": "http://127.0.0.1:9"}) as gateway:
        told = httpx.get(f"{gateway.url}/nowhere")

    assert told.status_code == 404
    assert all(f"/{name}" in told.text for name in (*UPSTREAMS, "mine"))
    for url in UPSTREAMS.values():
        assert Lines(url, patience_seconds=1)._port == 443

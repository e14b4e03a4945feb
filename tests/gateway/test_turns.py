"""Every request waits its turn, in the one queue of the home, and leaves it however it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.gateway.kit import PATIENCE_SECONDS, running
from tests.llm.kit import DIALECTS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted
    from tests.llm.server import Server

_ASK = b'{"model": "gpt", "messages": []}'
_WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def _chat(gateway: Running, text: str, prefix: str = "", **headers: str) -> httpx.Response:
    body = {"model": "gpt", "messages": [{"role": "user", "content": text}]}
    url = f"{gateway.url}{prefix}/openai/v1/chat/completions"
    return httpx.post(url, json=body, headers=headers, timeout=PATIENCE_SECONDS)


def _obstacle(gateway: Running) -> str:
    blocked_by = gateway.governor.capacity("llm/openai/gpt").blocked_by
    return "" if blocked_by is None else blocked_by.reason


def test_a_request_has_its_slot_until_its_answer_has_ended(
    plain: Running, upstream: Scripted
) -> None:
    """And the next one is sent then, not before."""
    plain.governor.set_limit("llm/openai/gpt", 1)
    clients = [plain.connect(), plain.connect()]
    for client in clients:
        client.post("/openai/v1/chat/completions", _ASK)
    first = upstream.accept()
    first.until(b"\r\n\r\n")
    plain.until(lambda: plain.waiting() == 1, "the wait")
    first.take(len(_ASK))
    first.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{")
    clients[0].until(b"\r\n\r\n")
    assert (plain.held(), plain.waiting()) == (1, 1)

    first.send(b"}")

    first.until(b"\r\n\r\n")
    first.take(len(_ASK))
    first.send(_WHOLE)
    assert int(clients[1].until(b"\r\n\r\n").partition(b"x-headway-waited-ms: ")[2].split()[0]) > 0
    plain.until(lambda: plain.held() == 0, "the end")


def test_a_client_that_goes_leaves_the_line_at_once(plain: Running) -> None:
    """Nobody would want the answer."""
    plain.governor.set_limit("llm", 1)
    with plain.governor.slot("llm"):
        client = plain.connect()
        client.post("/openai/v1/chat/completions", _ASK)
        plain.until(lambda: plain.waiting() == 1, "the wait")

        client.close()

        plain.until(lambda: plain.waiting() == 0, "the end of the wait")
    plain.until(lambda: plain.entries, "the log")
    assert plain.entries[0]["outcome"] == "client gone"
    with plain.governor.slot("llm", wait=False):
        pass


def test_a_client_that_goes_ends_its_request(plain: Running, upstream: Scripted) -> None:
    """The upstream is hung up on, and the slot is free."""
    client = plain.connect()
    client.post("/openai/v1/chat/completions", _ASK)
    provider = upstream.accept()
    provider.until(b"\r\n\r\n")
    provider.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    client.until(b"\r\n\r\n")

    client.close()

    provider.rest()
    plain.until(lambda: plain.held() == 0, "the end of the lease")


@pytest.mark.parametrize(
    ("prefix", "headers", "seen"),
    [
        ("", {}, (None, 0)),
        ("/t/issue%2016", {}, ("issue 16", 0)),
        ("", {"x-headway-task": "mine", "x-headway-priority": "3"}, ("mine", 3)),
    ],
)
def test_whoever_waits_can_be_told_apart(
    gateway: Running,
    server: Server,
    prefix: str,
    headers: dict[str, str],
    seen: tuple[str | None, int],
) -> None:
    """By the path, or by headers; neither goes on to the provider."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        client = gateway.connect()
        body = json.dumps(
            {"model": "gpt", "messages": [{"role": "user", "content": "hi"}]}
        ).encode()
        client.post(f"{prefix}/openai/v1/chat/completions", body, **headers)
        gateway.until(lambda: gateway.waiting() == 1, "the wait")
        (waiting,) = gateway.governor.snapshot().waiting
    client.until(b"\r\n\r\n")

    assert (waiting.task, waiting.priority) == seen
    (record,) = server.requests()
    assert not any("headway" in name.lower() for name in record.headers)


def test_the_agents_of_one_task_can_share_a_cap(gateway: Running, server: Server) -> None:
    """``agent-llm/TASK`` counts all models and providers of it."""
    gateway.governor.set_limit("agent-llm/*", 1)
    server.plan(hold="before")
    wires = []
    for task, path in (("a", "chat/completions"), ("a", "responses"), ("b", "chat/completions")):
        wire = gateway.connect()
        content: dict[str, Any] = {"model": "gpt", "input": "x", "messages": []}
        wire.post(f"/t/{task}/openai/v1/{path}", json.dumps(content).encode())
        wires.append(wire)
        gateway.until(lambda: gateway.held() + gateway.waiting() == len(wires), "its turn")

    assert (gateway.held(), gateway.waiting()) == (2, 1)
    server.release(later_too=True)
    for wire in wires:
        assert b" 200 " in wire.until(b"\r\n\r\n")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_queue_timeout_is_the_gateways_own(home: Path, server: Server, dialect: str) -> None:
    """Its status, its headers, and a body that the provider's clients understand."""
    upstreams = dict.fromkeys(("openai", "anthropic", "gemini"), server.url)
    paths = {
        "chat": "/openai/v1/chat/completions",
        "responses": "/openai/v1/responses",
        "messages": "/anthropic/v1/messages",
        "gemini": "/gemini/v1beta/models/gpt:generateContent",
    }
    environ = {"HEADWAY_GATEWAY_QUEUE_TIMEOUT": "50ms"}
    with running(home, upstreams, environ) as gateway:
        gateway.governor.set_limit("llm", 1)
        with gateway.governor.slot("llm"):
            answer = httpx.post(f"{gateway.url}{paths[dialect]}", content=_ASK)

    assert answer.status_code == 429
    assert answer.headers["x-headway-error"] == "headway_queue_timeout"
    assert answer.headers["x-headway-key"].startswith("llm/")
    assert int(answer.headers["retry-after"]) >= 1
    assert "headway_queue_timeout" in answer.text
    assert server.requests() == []


def test_a_refusal_of_the_provider_stops_everyone_and_is_passed_on(gateway: Running) -> None:
    """With its own status, body and Retry-After."""
    refused = _chat(gateway, "[status: 429] [retry-after: 30]")

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
    assert "x-headway-error" not in refused.headers
    gateway.until(lambda: _obstacle(gateway) == "cooling", "the cool-down")
    gateway.governor.resume("llm/openai/gpt")
    assert _chat(gateway, "[say: again]").status_code == 200


def test_cheap_calls_take_no_slot(gateway: Running) -> None:
    """Lists of models and counts of tokens go ahead, whoever waits."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        models = httpx.get(f"{gateway.url}/openai/v1/models")

    assert models.status_code == 200
    assert "x-headway-ticket" not in models.headers


def test_a_cut_stream_is_told_and_seen(gateway: Running, server: Server) -> None:
    """The client sees that it is cut, and so does the log."""
    server.plan(words=20, cut="close")
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.post(
            f"{gateway.url}/openai/v1/chat/completions",
            json={"model": "gpt", "stream": True, "messages": [{"role": "user", "content": "x"}]},
        )

    gateway.until(lambda: gateway.entries, "the log")
    assert gateway.entries[0]["outcome"].startswith("upstream failed")


def test_what_is_under_way_survives_new_settings(home: Path, upstream: Scripted) -> None:
    """It goes on with the upstream that it began with, and that connection is closed then."""
    file, settings = home / "config.toml", f'[gateway.upstreams]\nopenai = "{upstream.url}"\n'
    home.mkdir()
    file.write_text(settings)
    with running(home, {}) as gateway:
        client = gateway.connect()
        client.post("/openai/v1/chat/completions", _ASK)
        provider = upstream.accept()
        provider.until(b"\r\n\r\n")
        provider.take(len(_ASK))
        file.write_text(settings + '"new" = "http://127.0.0.1:9"\n')
        gateway.until(
            lambda: httpx.get(f"{gateway.url}/new/v1/models").status_code == 502, "the new one"
        )

        provider.send(_WHOLE)

        client.until(b"\r\n\r\n")
        assert provider.rest() == b""

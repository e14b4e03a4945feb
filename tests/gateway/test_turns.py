"""Every request waits its turn, in the one queue of the home, and leaves it however it ends."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.gateway.kit import PATIENCE_SECONDS, Wire, running
from tests.gateway.scripted import ASK, WHOLE
from tests.llm.kit import DIALECTS

from headway import Governor, StoreUnavailable
from headway.gateway.refusals import Refusal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted
    from tests.llm.server import Server


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
        client.post("/openai/v1/chat/completions", ASK)
    first = upstream.accept()
    first.until(b"\r\n\r\n")
    plain.until(lambda: plain.waiting() == 1, "the wait")
    first.take(len(ASK))
    first.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{")
    clients[0].until(b"\r\n\r\n")
    assert (plain.held(), plain.waiting()) == (1, 1)

    first.send(b"}")

    first.message()
    first.send(WHOLE)
    assert int(clients[1].until(b"\r\n\r\n").partition(b"x-headway-waited-ms: ")[2].split()[0]) > 0
    plain.until(lambda: plain.held() == 0, "the end")


def test_a_client_that_goes_leaves_the_line_at_once(plain: Running) -> None:
    """Nobody would want the answer."""
    plain.governor.set_limit("llm", 1)
    with plain.governor.slot("llm"):
        client = plain.connect()
        client.post("/openai/v1/chat/completions", ASK)
        plain.until(lambda: plain.waiting() == 1, "the wait")

        client.close()

        plain.until(lambda: plain.waiting() == 0, "the end of the wait")
    plain.until(lambda: plain.entries, "the log")
    assert plain.entries[0]["outcome"] == "client gone"
    assert plain.entries[0]["waited_ms"] > 0
    with plain.governor.slot("llm", wait=False):
        pass


def test_a_client_that_goes_ends_its_request(plain: Running, upstream: Scripted) -> None:
    """The upstream is hung up on, and the slot is free."""
    client = plain.connect()
    client.post("/openai/v1/chat/completions", ASK)
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
        ("/t/", {}, (None, 0)),  # of a variable that was not set
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
    """By the path, or by headers; neither goes on to the provider. The ticket is told."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        client = gateway.connect()
        body = json.dumps(
            {"model": "gpt", "messages": [{"role": "user", "content": "hi"}]}
        ).encode()
        client.post(f"{prefix}/openai/v1/chat/completions", body, **headers)
        gateway.until(lambda: gateway.waiting() == 1, "the wait")
        (waiting,) = gateway.governor.snapshot().waiting
    head = client.until(b"\r\n\r\n")

    assert (waiting.task, waiting.priority) == seen
    assert f"\r\nx-headway-ticket: {waiting.id}\r\n".encode() in head
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
            answer = httpx.post(f"{gateway.url}{paths[dialect]}", content=ASK)

    assert answer.status_code == 429
    assert answer.headers["x-headway-error"] == "headway_queue_timeout"
    assert answer.headers["x-headway-key"] == "llm"  # which is full
    assert int(answer.headers["retry-after"]) >= 1
    error = answer.json()["error"]
    if dialect == "gemini":
        assert (error["code"], error["status"]) == (429, "RESOURCE_EXHAUSTED")
        error["type"] = error["details"][0]["reason"]
    assert error["type"] == "headway_queue_timeout"
    assert server.requests() == []


def test_a_refusal_of_the_provider_stops_everyone_and_is_passed_on(gateway: Running) -> None:
    """With its own status, body and Retry-After."""
    refused = _chat(gateway, "[status: 429] [retry-after: 30]")

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
    assert "x-headway-error" not in refused.headers
    gateway.until(lambda: _obstacle(gateway) == "cooling", "the cool-down")
    gateway.governor.resume("llm/openai/gpt")
    assert _chat(gateway, "[say: again]").status_code == 200


def test_a_refusal_counts_before_the_slot_is_free(
    plain: Running, upstream: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if its client has seen enough of it: the next one would run into the same."""
    cool_down, may_go_on = Governor.cool_down, threading.Event()

    def slowly(*arguments: Any, **options: Any) -> None:
        may_go_on.wait(PATIENCE_SECONDS)
        cool_down(*arguments, **options)

    monkeypatch.setattr(Governor, "cool_down", slowly)
    client, provider = upstream.asked(plain, "/openai/v1/chat/completions")
    provider.send(b"HTTP/1.1 429 No\r\nRetry-After: 30\r\nContent-Length: 9\r\n\r\n")
    client.until(b"\r\n\r\n")
    client.close()
    provider.rest()
    httpx.get(f"{plain.url}/healthz")

    assert plain.held() == 1
    may_go_on.set()
    plain.until(lambda: plain.held() == 0, "the end of the lease")
    assert _obstacle(plain) == "cooling"


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
        client, provider = upstream.asked(gateway, "/openai/v1/chat/completions")
        file.write_text(settings + '"new" = "http://127.0.0.1:9"\n')
        gateway.until(
            lambda: httpx.get(f"{gateway.url}/new/v1/models").status_code == 502, "the new one"
        )

        provider.send(WHOLE)

        client.until(b"\r\n\r\n")
        assert provider.rest() == b""


def test_an_upstream_that_stalls_is_given_up_after_new_settings(
    home: Path, upstream: Scripted
) -> None:
    """Whoever was under way with the old ones has not been forgotten."""
    file = home / "config.toml"
    settings = f'[gateway]\nupstream_patience = "3s"\nupstreams.openai = "{upstream.url}"\n'
    home.mkdir()
    file.write_text(settings)
    with running(home, {}) as gateway:
        client = gateway.connect()
        client.post("/openai/v1/chat/completions", ASK)
        upstream.accept().message()
        file.write_text(settings + 'upstreams.new = "http://127.0.0.1:9"\n')

        assert client.until(b"\r\n").startswith(b"HTTP/1.1 502 ")


def test_new_settings_count_when_the_store_is_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are tried again, and everything else goes on."""
    home.mkdir()
    areload, tries = Governor.areload, list[str]()

    async def fail_once(governor: Governor) -> Any:
        tries.append("again")
        if len(tries) == 1:
            raise StoreUnavailable(str(home), "the disk is full")
        return await areload(governor)

    monkeypatch.setattr(Governor, "areload", fail_once)
    with running(home, {}) as gateway:
        (home / "config.toml").write_text('[gateway.upstreams]\nnew = "http://127.0.0.1:9"\n')

        gateway.until(
            lambda: httpx.get(f"{gateway.url}/new/v1/models").status_code == 502, "the new one"
        )


def test_a_new_limit_counts_for_whoever_waits(home: Path, upstream: Scripted) -> None:
    """Nobody has to start anything to put it in force."""
    file = home / "config.toml"
    home.mkdir()
    file.write_text("[limits]\nllm = 1\n")
    with running(home, {"openai": upstream.url}) as gateway, gateway.governor.slot("llm"):
        gateway.connect().post("/openai/x", ASK)
        gateway.until(lambda: gateway.waiting() == 1, "the wait")

        file.write_text("[limits]\nllm = 2\n")

        upstream.accept().message()


def test_one_tool_may_have_several_priorities(plain: Running) -> None:
    """Each request has its own."""
    plain.governor.set_limit("llm", 1)
    with plain.governor.slot("llm"):
        for priority in ("3", "-2"):
            plain.connect().post("/t/me/openai/x", ASK, x_headway_priority=priority)
        plain.until(lambda: plain.waiting() == 2, "the wait")
        seen = {waiting.priority for waiting in plain.governor.snapshot().waiting}
        plain.hang_up()
        plain.until(lambda: plain.waiting() == 0, "the end")

    assert seen == {3, -2}


def test_a_queue_timeout_names_the_cap_of_its_task(home: Path, upstream: Scripted) -> None:
    """The model may have room: nobody is to look in the wrong place."""
    environ = {"HEADWAY_GATEWAY_QUEUE_TIMEOUT": "50ms"}
    with running(home, {"openai": upstream.url}, environ) as gateway:
        gateway.governor.set_limit("agent-llm/*", 1)
        with gateway.governor.slot("agent-llm/me"):
            client = gateway.connect()
            client.post("/t/me/openai/x", ASK)

            assert b"\r\nx-headway-key: agent-llm/me\r\n" in client.until(b"\r\n\r\n")


def test_a_refusal_of_everything_stops_the_whole_provider(gateway: Running) -> None:
    """Overloaded: other models of it wait as well."""
    assert _chat(gateway, "[status: 529] [retry-after: 30]").status_code == 529

    gateway.until(lambda: _obstacle(gateway) == "cooling", "the cool-down")
    blocked_by = gateway.governor.capacity("llm/openai/another").blocked_by
    assert blocked_by is not None
    assert (blocked_by.key, blocked_by.reason) == ("llm/openai", "cooling")


def test_nobody_waits_for_a_long_cool_down(gateway: Running) -> None:
    """It is said when it ends, and at which key."""
    gateway.governor.cool_down("llm/openai", 5000)

    refused = _chat(gateway, "hello")

    assert refused.status_code == 429
    assert refused.headers["x-headway-error"] == "headway_cooling_down"
    assert refused.headers["x-headway-key"] == "llm/openai"
    assert int(refused.headers["retry-after"]) > 4900


def test_whoever_is_taken_out_of_the_line_is_told(plain: Running) -> None:
    """By somebody who cancels its ticket."""
    plain.governor.set_limit("llm", 1)
    with plain.governor.slot("llm"):
        client = plain.connect()
        client.post("/openai/x", ASK)
        plain.until(lambda: plain.waiting() == 1, "the wait")
        (waiting,) = plain.governor.snapshot().waiting

        plain.governor.cancel(waiting.id)

        head = client.until(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 ")
    assert b"\r\nx-headway-error: headway_cancelled\r\n" in head


def test_a_store_that_fails_is_no_matter_of_too_many() -> None:
    """Whoever hears of 429 would look for who holds the slots."""
    refusal = Refusal.of(StoreUnavailable("sqlite:///x", "disk I/O error"), "llm/openai")

    assert (refusal.status, refusal.kind) == (503, "headway_unavailable")
    assert refusal.headers()["x-headway-key"] == "llm/openai"


@pytest.mark.parametrize("by", ["the client", "the upstream"])
def test_a_first_try_without_an_answer_proves_nothing(
    plain: Running, upstream: Scripted, by: str
) -> None:
    """After a cool-down one goes first; if that one is cut off, one other tries."""
    plain.governor.cool_down("llm/openai", 0.5)
    clients = list[Wire]()
    for _ in range(3):
        clients.append(plain.connect())
        clients[-1].post("/openai/v1/chat/completions", ASK)
        plain.until(lambda: plain.held() + plain.waiting() == len(clients), "its turn")
    provider = upstream.accept()
    provider.message()
    assert (plain.held(), plain.waiting()) == (1, 2)

    (clients[0] if by == "the client" else provider).close()

    second = upstream.accept()
    second.message()
    plain.until(lambda: plain.held() + plain.waiting() == 2, "the end of the first")
    assert (plain.held(), plain.waiting()) == (1, 1)
    second.send(WHOLE)
    second.message()


def test_a_stop_ends_a_connection_with_its_answer(plain: Running, upstream: Scripted) -> None:
    """One that began before, and is used by nobody else then."""
    idle, client = plain.connect(), plain.connect()
    idle.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert json.loads(idle.message()[1]) == {"headway": {"status": "ok", "busy": 0}}
    client.post("/openai/x", ASK)
    provider = upstream.accept()
    provider.message()
    idle.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert json.loads(idle.message()[1])["headway"]["busy"] == 1
    provider.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{")
    client.until(b"{")

    plain.stop()

    assert idle.rest() == b""
    provider.send(b"}")
    assert client.rest() == b"}"

"""What a request counts on: its model, wherever that stands, and nothing if it is a cheap one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from tests.gateway.kit import running
from tests.gateway.scripted import ASK

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.kit import Running
    from tests.llm.server import Server


@pytest.mark.parametrize(
    ("path", "body", "keys"),
    [
        ("/openai/v1/chat/completions", ASK, {"llm/openai/gpt"}),
        ("/gemini/v1beta/models/pro:generateContent", b'{"contents": []}', {"llm/gemini/pro"}),
        (
            "/t/me/gemini/v1beta/models/pro:streamGenerateContent?alt=sse",
            ASK,
            {"llm/gemini/pro", "agent-llm/me"},
        ),
        ("/openai/v1/unheard-of", b"\x00\xff", {"llm/openai"}),
    ],
)
def test_a_request_counts_on_its_model(
    gateway: Running, path: str, body: bytes, keys: set[str]
) -> None:
    """Which its path or its body names; on the provider alone if neither does."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        gateway.connect().post(path, body)
        gateway.until(lambda: gateway.waiting() == 1, "the wait")
        (waiting,) = gateway.governor.snapshot().waiting
        gateway.hang_up()
        gateway.until(lambda: gateway.waiting() == 0, "the end")

    assert set(waiting.keys) == keys


@pytest.mark.parametrize("priority", ["many", "1.5", "101"])
def test_a_wrong_priority_is_refused_with_what_is_right(gateway: Running, priority: str) -> None:
    """In words, not in those of a parser."""
    headers = {"x-headway-priority": priority}
    answer = httpx.post(f"{gateway.url}/openai/v1/x", content=ASK, headers=headers)

    assert answer.status_code == 400
    assert "whole number from -100 to 100" in answer.text
    assert priority in answer.text


def test_cheap_calls_take_no_slot(gateway: Running) -> None:
    """Lists of models and counts of tokens go ahead, whoever waits."""
    gateway.governor.set_limit("llm", 1)
    with gateway.governor.slot("llm"):
        answers = [
            httpx.get(f"{gateway.url}/openai/v1/models"),
            httpx.get(f"{gateway.url}/openai/v1/files"),
            httpx.post(f"{gateway.url}/anthropic/v1/messages/count_tokens?x", content=ASK),
            httpx.post(f"{gateway.url}/openai/v1/responses/input_tokens", content=ASK),
            httpx.post(f"{gateway.url}/gemini/v1beta/models/gpt:countTokens", content=ASK),
        ]

    assert answers[0].status_code == 200
    assert not any("x-headway-ticket" in answer.headers for answer in answers)


def test_what_takes_no_slot_can_be_set(home: Path, server: Server) -> None:
    """Then that alone takes none."""
    environ = {"HEADWAY_GATEWAY_EXEMPT": "v1/embeddings", "HEADWAY_GATEWAY_QUEUE_TIMEOUT": "50ms"}
    with running(home, {"openai": server.url}, environ) as gateway:
        gateway.governor.set_limit("llm", 1)
        with gateway.governor.slot("llm"):
            free = httpx.post(f"{gateway.url}/openai/v1/embeddings", content=ASK)
            counted = httpx.post(f"{gateway.url}/openai/v1/count_tokens", content=ASK)

    assert "x-headway-error" not in free.headers
    assert counted.headers["x-headway-error"] == "headway_queue_timeout"

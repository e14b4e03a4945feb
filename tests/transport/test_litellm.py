"""``headway.llm.litellm.install()``: every way that litellm has to a provider is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headway

if TYPE_CHECKING:
    from tests.llm.server import Server
    from tests.transport.pages import Desk

pytestmark = pytest.mark.timeout(300)

_ASK = """
import asyncio
import litellm
from headway.llm.litellm import install

OPENAI, ANTHROPIC = "openai/gpt-5-mini", "anthropic/claude-sonnet-4-5"

def said(text):
    return [{"role": "user", "content": text}]

def ask(model):
    return litellm.completion(model=model, messages=said("plain"))

def stream(model):
    return [*litellm.completion(model=model, messages=said("stream"), stream=True)]

async def aask(model):
    async for _ in await litellm.acompletion(model=model, messages=said("async"), stream=True):
        pass
    # Last, because its connection stays open: the next loop must not take it.
    await litellm.acompletion(model=model, messages=said("async"), max_retries=0)
"""
_EVERY_WAY = """
for model in (OPENAI, ANTHROPIC):
    ask(model), stream(model)
    for _ in range(2):  # two event loops
        asyncio.run(aask(model))
"""
_CALLS_OF_EACH_MODEL = 6


def _counted() -> dict[str, int | None]:
    with headway.Governor() as governor:
        return {row.key: row.requests_lately for row in governor.snapshot().limits}


@pytest.mark.parametrize("before", ["install()", "_EVERY_WAY\ninstall()", "install()\ninstall()"])
def test_every_way_to_a_provider_is_counted_once(desk: Desk, server: Server, before: str) -> None:
    """Plain, async and streamed, in two event loops; clients that were cached before count too."""
    warm = before.startswith("_EVERY_WAY")
    keys = ("llm/openai/gpt-5-mini", "llm/anthropic/claude-sonnet-4-5")
    desk.environ["HEADWAY_LLM_PROVIDERS"] = "127.0.0.1=openai 127.0.0.1/v1/messages=anthropic"
    with headway.Governor() as governor:
        for key in keys:
            governor.set_limit(key, {"slots": 1, "requests_per_minute": 1000})

    desk.end(desk.starts(_ASK + before.replace("_EVERY_WAY", _EVERY_WAY) + _EVERY_WAY))

    sent = _CALLS_OF_EACH_MODEL * 2 * (1 + warm)
    assert len(server.requests()) == sent
    counted = _counted()
    assert [counted[key] for key in keys] == [_CALLS_OF_EACH_MODEL] * 2


def test_bad_options_are_refused_before_litellm_is_loaded(desk: Desk) -> None:
    """With the words of the transports."""
    program = """
import sys
from headway.llm.litellm import install
try:
    install(timeout="soon")
except Exception as error:
    print(type(error).__name__, "litellm" in sys.modules)
"""

    assert desk.end(desk.starts(program)) == "ConfigError False\n"

"""The official clients through the gateway, by nothing but their base URL."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import pytest
from tests.transport.sdks import SDKS

from headway import Governor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.kit import Running
    from tests.llm.server import Server

# Some clients warn of themselves, and leave what they opened to the collector.
pytestmark = pytest.mark.filterwarnings("ignore")
_WORDS = "word1 word2 word3"


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """What the clients did not close ends with the test."""
    yield
    gc.collect()


@pytest.mark.parametrize("name", SDKS)
def test_calls_and_streams_come_back_whole(name: str, gateway: Running, server: Server) -> None:
    """Plain and async, many at once, at a limit of one."""
    gateway.governor.set_limit("llm", 1)
    server.plan(words=3)
    provider = SDKS[name].key.split("/")[1]
    # What its transport counts stays in this process: the limit is the gateway's.
    with Governor("memory://") as elsewhere:
        sdk = SDKS[name](f"{gateway.url}/{provider}", elsewhere)

        async def stream() -> str:
            return "".join([piece async for piece in sdk.astream("count")])

        async def many() -> list[str]:
            return await asyncio.gather(*(sdk.aask("count") for _ in range(4)), stream())

        assert sdk.ask("count") == _WORDS
        assert "".join(sdk.stream("count")) == _WORDS
        assert asyncio.run(many()) == [_WORDS] * 5

    assert server.peak() == 1
    gateway.until(lambda: len(gateway.entries) == 7, "the log")
    assert {entry["key"] for entry in gateway.entries} == {SDKS[name].key}
    assert {entry["outcome"] for entry in gateway.entries} == {"ok"}

"""The official clients, unchanged, against the model server."""

from __future__ import annotations

import asyncio
import gc
import sys
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest
from tests.slots.support import Held, Worker, assert_clean
from tests.transport.kit import Heard, used
from tests.transport.sdks import SDKS, Anthropic, Gemini, OpenAI, Sdk

from headway import Governor, QueueTimeout
from headway.llm import TruncatedStream, dropped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.llm.server import Server

# What the clients warn of, and leave to the collector, is their own.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(params=SDKS)
def make(request: pytest.FixtureRequest) -> type[Sdk]:
    """Each of the clients."""
    return SDKS[request.param]


@pytest.fixture(autouse=True)
def _nothing_goes_on() -> Iterator[None]:
    """What litellm was told, and what the clients did not close, ends with the test."""
    yield
    litellm: Any = sys.modules.get("litellm")
    if litellm is not None:
        litellm.client_session = litellm.aclient_session = None
        litellm.in_memory_llm_clients_cache.flush_cache()
    gc.collect()


def test_a_call_counts_on_its_model(make: type[Sdk], governor: Governor, server: Server) -> None:
    """While the provider is at work, and no longer when the answer is there."""
    server.plan(hold="middle")
    sdk = make(server.url, governor)
    worker = Worker(lambda: sdk.ask("say: hello"))
    server.until(lambda s: s.held() == 1)
    assert [row.keys for row in governor.snapshot().leases] == [(make.key,)]

    server.release()

    assert worker.result() == "hello"
    assert_clean(governor)


def test_a_stream_counts_to_its_end(make: type[Sdk], governor: Governor, server: Server) -> None:
    """Also one that is read piece by piece."""
    server.plan(words=6)
    sdk, pieces, taken = make(server.url, governor), list[str](), list[int]()
    for piece in sdk.stream("count"):
        pieces.append(piece)
        taken.append(used(governor))

    assert "".join(pieces) == "word1 word2 word3 word4 word5 word6"
    assert taken[0] == 1
    gc.collect()
    assert used(governor) == 0


def test_the_same_on_a_loop(make: type[Sdk], governor: Governor, server: Server) -> None:
    """Calls and streams of many tasks at a limit of one."""
    server.plan(words=3)
    sdk, expected = make(server.url, governor), "word1 word2 word3"

    async def stream() -> str:
        return "".join([piece async for piece in sdk.astream("count")])

    async def main() -> list[str]:
        return await asyncio.gather(*(sdk.aask("count") for _ in range(4)), stream())

    assert asyncio.run(main()) == [expected] * 5
    assert server.peak() == 1
    gc.collect()
    assert_clean(governor)


def test_a_stream_left_half_way_gives_its_slot_back(
    make: type[Sdk], governor: Governor, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forgotten, not closed; the next caller need not know of it."""
    monkeypatch.setattr(dropped, "LOOK_SECONDS", 0.01)
    server.plan(words=2000, chunk_delay=0.01, match="long")
    sdk = make(server.url, governor)

    def leave() -> None:
        pieces = sdk.stream("long")
        next(pieces)

    leave()
    assert Worker(lambda: sdk.ask("say: next")).result() == "next"

    async def aleave() -> None:
        pieces = sdk.astream("long")
        await anext(pieces)

    async def main() -> str:
        await aleave()
        return await asyncio.create_task(sdk.aask("say: next"))

    assert asyncio.run(main()) == "next"
    gc.collect()
    assert_clean(governor)


def test_a_cancelled_stream_gives_its_slot_back(
    make: type[Sdk], governor: Governor, server: Server
) -> None:
    """In the middle of waiting for its next piece."""
    server.plan(hold="middle", words=10, match="held")
    sdk = make(server.url, governor)

    async def read() -> None:
        async for _ in sdk.astream("held"):
            pass

    async def main() -> str:
        task = asyncio.create_task(read())
        await server.until_async(lambda s: s.held() == 1)
        task.cancel()
        await asyncio.wait({task})
        assert task.cancelled()
        return await sdk.aask("say: next")

    assert asyncio.run(main()) == "next"
    assert_clean(governor)


@pytest.mark.parametrize("sdk", [OpenAI, Anthropic])
@pytest.mark.parametrize("on_a_loop", [False, True], ids=["plain", "async"])
def test_the_end_of_queueing_can_be_told_from_other_trouble(
    sdk: Callable[..., Any], governor: Governor, server: Server, *, on_a_loop: bool
) -> None:
    """The clients wrap whatever a transport raises; the cause is what it was."""
    caller = sdk(server.url, governor, timeout=0.01)
    wrapped = (openai.APIConnectionError, anthropic.APIConnectionError)

    def ask() -> str:
        answer: str = asyncio.run(caller.aask("why?")) if on_a_loop else caller.ask("why?")
        return answer

    with Held(governor, "llm"), pytest.raises(wrapped) as raised:
        ask()

    assert isinstance(raised.value.__cause__, QueueTimeout)
    assert not isinstance(raised.value, openai.APITimeoutError | anthropic.APITimeoutError)
    assert server.requests() == []


@pytest.mark.parametrize("on_a_loop", [False, True], ids=["plain", "async"])
def test_google_wraps_nothing(governor: Governor, server: Server, *, on_a_loop: bool) -> None:
    """The end of queueing arrives as what it is."""
    caller = Gemini(server.url, governor, timeout=0.01)

    def ask() -> str:
        return asyncio.run(caller.aask("why?")) if on_a_loop else caller.ask("why?")

    with Held(governor, "llm"), pytest.raises(QueueTimeout):
        ask()


@pytest.mark.parametrize("sdk", [OpenAI, Anthropic])
def test_the_clients_retries_queue_again(
    sdk: Callable[..., Any], governor: Governor, server: Server
) -> None:
    """One slot for each attempt, none in between."""
    server.plan(status=500, times=1, say="at last")
    heard = Heard(governor)
    caller = sdk(server.url, governor)
    caller.client = caller.client.with_options(max_retries=1)

    assert caller.ask("why?") == "at last"
    assert heard.kinds() == ["granted", "released", "granted", "released"]


@pytest.mark.parametrize("sdk", [OpenAI, Anthropic])
@pytest.mark.parametrize("on_a_loop", [False, True], ids=["plain", "async"])
def test_a_cut_stream_is_told_and_raised(
    sdk: Callable[..., Any], governor: Governor, server: Server, *, on_a_loop: bool
) -> None:
    """A clean end without the last event, which the client may take for the whole answer."""
    server.plan(words=10, cut="clean")
    heard = Heard(governor)
    caller = sdk(server.url, governor, raise_truncated=True)

    async def main() -> list[str]:
        return [piece async for piece in caller.astream("count")]

    def read() -> list[str]:
        return asyncio.run(main()) if on_a_loop else list(caller.stream("count"))

    with pytest.raises(TruncatedStream) as raised:
        read()
    assert raised.value.keys == (sdk.key,)  # type: ignore[attr-defined]
    assert heard.only("truncated").keys == (sdk.key,)  # type: ignore[attr-defined]
    assert_clean(governor)


@pytest.mark.parametrize("sdk", [OpenAI, Anthropic])
def test_a_broken_stream_is_told(
    sdk: Callable[..., Any], governor: Governor, server: Server
) -> None:
    """The error is the client's own."""
    server.plan(words=10, cut="reset")
    heard = Heard(governor)
    with pytest.raises(Exception, match=r"(?i)peer|reset|connection"):
        list(sdk(server.url, governor).stream("count"))
    assert heard.only("truncated")
    assert_clean(governor)

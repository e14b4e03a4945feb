"""Wires as they are: byte by byte, by the megabyte, packed, and cut at any place."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.slots.support import assert_clean
from tests.transport.kit import Heard

from headway.llm import AsyncHeadwayTransport, HeadwayTransport

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.llm.server import Server

    from headway import Governor

MODEL = "fake-1"


class Got(NamedTuple):
    """What a caller saw of one answer, and of the slot while it came."""

    body: bytes
    error: Exception | None
    held: int


@pytest.fixture(params=["plain", "async"])
def post(
    request: pytest.FixtureRequest, lib: Any, governor: Governor, server: Server
) -> Callable[..., Got]:
    """Streams one answer through a transport, in plain code and in a task."""

    def held() -> int:
        return len(governor.snapshot().leases)

    def plain(asked: dict[str, Any]) -> Got:
        pieces: list[bytes] = []
        most = 0
        transport = HeadwayTransport("openai", governor)
        with lib.Client(transport=transport, timeout=60) as client:
            try:
                with client.stream("POST", url, json=asked) as response:
                    for piece in response.iter_bytes():
                        pieces.append(piece)
                        most = max(most, held()) if len(pieces) < 9 else most
            except lib.TransportError as error:
                return Got(b"".join(pieces), error, most)
        return Got(b"".join(pieces), None, most)

    async def on_a_loop(asked: dict[str, Any]) -> Got:
        pieces: list[bytes] = []
        most = 0
        transport = AsyncHeadwayTransport("openai", governor)
        async with lib.AsyncClient(transport=transport, timeout=60) as client:
            try:
                async with client.stream("POST", url, json=asked) as response:
                    async for piece in response.aiter_bytes():
                        pieces.append(piece)
                        most = max(most, held()) if len(pieces) < 9 else most
            except lib.TransportError as error:
                return Got(b"".join(pieces), error, most)
        return Got(b"".join(pieces), None, most)

    url = f"{server.url}/v1/chat/completions"
    if request.param == "plain":
        return plain
    return lambda asked: asyncio.run(on_a_loop(asked))


def asking(prompt: str, **more: Any) -> dict[str, Any]:
    """A chat request that wants a stream."""
    messages = [{"role": "user", "content": prompt}]
    return {"messages": messages, "stream": True, **more, "model": MODEL}


def said(body: bytes) -> str:
    """The text of an event stream."""
    text = ""
    for line in body.decode().splitlines():
        if line.startswith("data: {"):
            for choice in json.loads(line[6:])["choices"]:
                text += choice["delta"].get("content") or ""
    return text


def test_a_stream_that_trickles_is_whole(
    post: Callable[..., Got], governor: Governor, server: Server
) -> None:
    """One byte at a time, in the middle of events too; its slot is held all the while."""
    server.plan(trickle=1)
    heard = Heard(governor)
    got = post(asking("say: drop by drop"))
    assert (said(got.body), got.error, got.held) == ("drop by drop", None, 1)
    assert heard.kinds() == ["granted", "released"]
    assert_clean(governor)


def test_megabytes_in_both_directions_are_not_touched(
    post: Callable[..., Got], governor: Governor, server: Server
) -> None:
    """Twenty each way, and the model stands behind the twenty."""
    size = 20_000_000
    server.plan(huge=size)
    heard = Heard(governor)
    got = post(asking("x" * size))
    assert got.error is None
    assert len(got.body) >= size
    assert got.body.rstrip().endswith(b"data: [DONE]")
    (record,) = server.requests()
    assert record.size > size
    assert heard.only("granted").keys == (f"llm/openai/{MODEL}",)
    assert_clean(governor)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("cut", ["", "clean"])
def test_a_packed_stream_is_watched_as_well(
    post: Callable[..., Got], governor: Governor, server: Server, encoding: str, cut: str
) -> None:
    """It is unpacked on the side; the client gets it as it came."""
    server.plan(encoding=encoding, cut=cut, words=30)
    heard = Heard(governor)
    assert post(asking("count")).error is None
    assert ("truncated" in heard.kinds()) == bool(cut)
    assert_clean(governor)


def test_a_connection_dropped_before_the_answer_gives_the_slot_back(
    post: Callable[..., Got], governor: Governor, server: Server
) -> None:
    """The error is the client's own, and nothing was cut that had not begun."""
    server.plan(drop=True)
    heard = Heard(governor)
    assert post(asking("why?")).error is not None
    assert heard.kinds() == ["granted", "released"]
    assert_clean(governor)


@pytest.mark.parametrize("cut", ["reset", "close", "clean"])
def test_a_stream_cut_at_any_byte_is_told(
    post: Callable[..., Got], governor: Governor, server: Server, cut: str
) -> None:
    """In a line, between two, right after the headers: never taken for a whole answer."""
    heard = Heard(governor)
    whole = post(asking("say: a b c")).body
    heard.events.clear()
    told = whole.index(b'"stop"')  # from here on it is known to be complete
    places = [1, 7, told // 3, told // 2, told]
    for place in places:
        server.plan(cut=cut, cut_at=place)
        got = post(asking("say: a b c"))
        assert (got.error is None) == (cut == "clean")
    assert heard.kinds().count("truncated") == len(places)
    assert_clean(governor)

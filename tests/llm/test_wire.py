"""The model server sends its answers in every way that a network and a provider can."""

from __future__ import annotations

import http.client
import json
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.llm.kit import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.llm.server import Server

_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
_SAY = "[say: one two three four]"


def _received(client: Client, **plan: Any) -> tuple[bytes, bool]:
    """What came by this plan, and whether the response ended as HTTP wants it."""
    client.server.plan(**plan)
    connection, response = client.begin(_SAY)
    parts = []
    try:
        while part := response.read1(65_536):
            parts.append(part)
    except http.client.IncompleteRead as error:
        return b"".join([*parts, error.partial]), False
    except ConnectionError:
        return b"".join(parts), False
    finally:
        connection.close()
    is_whole = response.length in {0, None}
    return b"".join(parts), is_whole


def test_a_connection_may_be_closed_after_any_byte(client: Client) -> None:
    """So many bytes come, and no proper end."""
    whole = client.ask(_SAY).raw
    for length in {0, 1, 2, *range(3, len(whole), 53), len(whole) - 1}:
        assert _received(client, cut="close", cut_at=length) == (whole[:length], False)
    assert _received(client, cut="close", cut_at=len(whole) + 1) == (whole, True)
    client.server.until(lambda s: s.in_flight() == 0)


def test_an_answer_may_end_properly_after_any_byte(client: Client) -> None:
    """HTTP says that this is all, in the middle of an event as well."""
    whole = client.ask(_SAY).raw
    for length in {0, 1, *range(2, len(whole), 53), len(whole) - 1}:
        assert _received(client, cut="clean", cut_at=length) == (whole[:length], True)
    assert client.server.peak() == 1


def test_a_connection_may_be_reset_after_any_byte(client: Client) -> None:
    """What comes is a part of it, and an error follows."""
    whole = client.ask(_SAY).raw
    for length in (0, 1, len(whole) // 2, len(whole) - 1):
        got, is_whole = _received(client, cut="reset", cut_at=length)

        assert whole[:length].startswith(got)
        assert not is_whole


def test_a_connection_may_be_closed_half_way(client: Client) -> None:
    """Without a number it is the middle."""
    whole = client.ask(_SAY).raw
    got, is_whole = _received(client, cut="close")

    assert not is_whole
    assert 0 < len(got) < len(whole)
    assert whole.startswith(got)


def test_all_may_be_said_and_its_end_not_told(server: Server, dialect: str) -> None:
    """A proper response, every word of the answer, and no last event."""
    got = Client(server, dialect).ask(f"[cut: untold] {_SAY}")

    assert (got.status, got.text) == (200, "one two three four")
    assert not got.is_whole


def test_an_error_may_come_in_the_stream(server: Server, dialect: str) -> None:
    """The answer was begun with 200, and then an event tells of trouble."""
    got = Client(server, dialect).ask(f"[cut: error] {_SAY}")

    assert got.status == 200
    assert got.events[-1]["error"]["message"] == "planned 500"
    assert (b"event: error\n" in got.raw) == (dialect == "messages")
    assert not got.is_whole


@pytest.mark.parametrize("encoding", _WINDOWS)
@pytest.mark.parametrize("trickle", [0, 1, 7])
def test_answers_may_be_packed(client: Client, encoding: str, trickle: int) -> None:
    """Streamed or not, in drops or not; unpacked they are the same."""
    whole = client.ask(_SAY).raw
    client.server.plan(encoding=encoding, trickle=trickle)
    got = client.ask(_SAY)

    assert got.headers["Content-Encoding"] == encoding
    assert zlib.decompress(got.raw, _WINDOWS[encoding]) == whole


def test_a_packed_stream_is_sent_event_by_event(server: Server, dialect: str) -> None:
    """What was said can be read before the rest is."""
    client = Client(server, dialect)
    whole = client.ask(_SAY).raw
    server.plan(encoding="gzip", hold="middle")
    connection, response = client.begin(_SAY)
    server.until(lambda s: s.held() == 1)
    unpack = zlib.decompressobj(_WINDOWS["gzip"])
    said = b""
    while b"two" not in said:
        said += unpack.decompress(response.read1())
    server.release()
    said += unpack.decompress(response.read())
    connection.close()

    assert said == whole


def test_a_packed_stream_may_be_cut(server: Server, dialect: str) -> None:
    """After so many bytes as they are sent."""
    client = Client(server, dialect)
    server.plan(encoding="gzip")
    whole = client.ask(_SAY).raw

    for at in (0, 60, len(whole) - 1):
        got = _received(client, encoding="gzip", cut="close", cut_at=at)
        assert got == (whole[:at], False)


@pytest.mark.parametrize("status", [200, 400, 429, 503, 529])
def test_any_status_may_have_any_headers(client: Client, status: int) -> None:
    """By tags in the prompt, or by order of the test; the test's count ends them."""
    tags = "[header: X-RateLimit-Reset=1746019920000] [header: anthropic-ratelimit-a=b, c=d]"
    told = client.ask(f"[status: {status}] [retry-after: 7] {tags} say: x")
    client.server.plan(status=status, headers={"X-One": "1"}, retry_after="Wed, 1", times=1)
    ordered, after = (client.ask("say: x") for _ in range(2))

    assert told.status == ordered.status == status
    assert told.headers["X-RateLimit-Reset"] == "1746019920000"
    assert told.headers["anthropic-ratelimit-a"] == "b, c=d"
    assert told.headers["Retry-After"] == "7"
    assert (ordered.headers["X-One"], ordered.headers["Retry-After"]) == ("1", "Wed, 1")
    assert after.status == 200
    assert {"X-One", "Retry-After"}.isdisjoint(after.headers)


def test_the_time_of_arrival_is_recorded(client: Client) -> None:
    """In the order of things, by a clock that all processes share."""
    before = time.monotonic()
    client.ask("say: hello")
    [record] = client.server.requests()

    assert record.ended_at is not None
    assert before <= record.arrived_at <= record.started_at <= record.ended_at
    assert record.ended_at <= time.monotonic()


_HUGE = 100_000_000


def _huge_body(model: str) -> Iterator[bytes]:
    """A request of a hundred megabytes, piece by piece, with an image in it."""
    yield b'{"messages": [{"role": "user", "content": "[huge: %d]"}], "image": "' % _HUGE
    for _ in range(_HUGE // 1_000_000):
        yield b"QUJD" * 250_000
    yield b'", "stream": true, "model": ' + json.dumps(model).encode() + b"}"


def test_requests_and_answers_may_be_huge(server: Server) -> None:
    """A hundred megabytes there and a hundred back, both as streams."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=100)
    connection.request("POST", "/v1/chat/completions", _huge_body("fake-1"), encode_chunked=True)
    response = connection.getresponse()
    size, tail = 0, b""
    while part := response.read1(1 << 20):
        size += len(part)
        tail = (tail + part)[-100:]
    connection.close()

    assert size > _HUGE
    assert tail.endswith(b"data: [DONE]\n\n")
    [record] = server.requests("fake-1")
    assert record.size > _HUGE
    assert record.body == {}


def test_a_huge_answer_may_be_cut_anywhere(server: Server) -> None:
    """It is not made as a whole before it is sent."""
    client = Client(server, "messages")
    got, is_whole = _received(client, huge=_HUGE, cut="close", cut_at=5_000_000)

    assert (len(got), is_whole) == (5_000_000, False)


def test_trickled_events_break_anywhere(server: Server, dialect: str) -> None:
    """An event is on its way for as long as its bytes take, and others are served meanwhile."""
    client = Client(server, dialect)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(client.ask, f"[trickle: 1] [chunk-delay: 0.001] {_SAY}")
        server.until(lambda s: s.in_flight() == 1)
        assert client.ask("say: quick").text == "quick"

        assert slow.result().text == "one two three four"

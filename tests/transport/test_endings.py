"""A stream that was cut off is told from one that came to its end, and never the other way."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.llm.asks import Call
from tests.transport.streams import EVENTS, LIST, PATHS, Recorded, event, recorded

from headway.llm import endings
from headway.llm.endings import watch
from headway.llm.last_words import Remains

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIALECTS = list(PATHS)
_TRAPS = [
    "data: [DONE]",
    "\n\ndata: [DONE]\n\n",
    '"finish_reason":"stop"}]}',
    '\n\ndata: {"choices":[{"finish_reason":"stop"}]}\n\n',
    '"finishReason": "STOP"}]}]',
    "event: message_stop\ndata: {}\n\n",
    "\nevent: response.completed\r\ndata: {}\r\n\r\n",
    "\revent: error\rdata: {}\r\r",
    "grüße 世界 🙂 \\",
    "]",
]


def _is_complete(path: str, content_type: str, chunks: Iterable[bytes], encoding: str = "") -> bool:
    ending = watch(path, content_type, encoding)
    assert ending is not None
    for chunk in chunks:
        ending.feed(chunk)
    assert ending.complete is ending.complete
    return ending.complete


def _chat(*parts: bytes) -> bool:
    return _is_complete(PATHS["chat"], EVENTS, parts)


@pytest.fixture(params=_DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """Each dialect in turn."""
    chosen: str = request.param
    return chosen


@pytest.mark.parametrize("answer", ["", "short", Call(1, "bash", {"command": "x", "model": "y"})])
def test_every_proper_prefix_is_cut_off(dialect: str, answer: str | Call) -> None:
    """Byte by byte, until the last event is there."""
    stream = recorded(dialect, answer)

    for length in range(stream.over - 1):
        assert not _is_complete(stream.path, stream.content_type, [stream.raw[:length]]), length
    for length in range(stream.over, len(stream.raw) + 1):
        assert _is_complete(stream.path, stream.content_type, [stream.raw[:length]]), length


@given(
    st.sampled_from(_DIALECTS),
    st.lists(st.one_of(st.sampled_from(_TRAPS), st.text(max_size=12)), max_size=5).map(" ".join),
    st.floats(0, 1),
)
def test_nothing_that_a_model_says_ends_its_stream(dialect: str, text: str, where: float) -> None:
    """The words of the protocol are words like others within an answer."""
    text = text.encode("utf-8", "replace").decode()
    stream = recorded(dialect, text)
    until = stream.raw[: int(where * (stream.over - 1))]

    assert _is_complete(stream.path, stream.content_type, [stream.raw])
    assert not _is_complete(stream.path, stream.content_type, [until])
    assert not _is_complete(stream.path, stream.content_type, [stream.raw[: stream.last]])


def test_what_a_model_calls_a_tool_with_ends_nothing() -> None:
    """A name of the protocol within a nested object is not the protocol's."""
    inner = {"finishReason": "STOP", "candidates": [{"finishReason": "STOP"}], "error": "x"}
    parts = [{"functionCall": {"name": "f", "args": {"x": [inner], **inner}}}]
    piece = {"candidates": [{"content": {"parts": [{"inlineData": "A" * 50_000}, *parts]}}]}
    path = PATHS["gemini"]

    assert not _is_complete(path, EVENTS, [event({**piece, "candidates": [{"content": parts}]})])
    delta = {"content": "A" * 50_000}
    choice = {"delta": delta, "finish_reason": None, "more": {"finish_reason": "stop"}}
    assert not _chat(event({"choices": [choice]}))
    with_reason = {"candidates": [{**piece["candidates"][0], "finishReason": "STOP"}]}
    assert _is_complete(path, EVENTS, [event(with_reason)])


_KEEPS = st.sampled_from([(16, 24, 16, 64), (64, 32, 48, 256), (200, 40, 60, 500)])


@given(
    st.sampled_from(_DIALECTS),
    st.one_of(st.sampled_from(_TRAPS), st.text(max_size=200)),
    st.floats(0, 1),
    st.lists(st.integers(0, 400), max_size=60),
    st.tuples(_KEEPS, st.sampled_from([b"\n", b"\r\n", b"\r"])),
)
@settings(max_examples=400)
def test_chunks_make_no_difference(
    dialect: str,
    text: str,
    where: float,
    sizes: list[int],
    keeps_and_line_end: tuple[tuple[int, int, int, int], bytes],
) -> None:
    """However the bytes come, and however little is kept of them."""
    (kept, head, context, above), line_end = keeps_and_line_end
    text = text.encode("utf-8", "replace").decode()
    stream = recorded(dialect, text)
    raw = stream.raw.replace(b"\n", line_end)[: int(where * 1.2 * len(stream.raw))]
    with mock.patch.multiple(
        endings, _KEPT=kept, _HEAD=head, _CONTEXT=context, _CUT_BACK_ABOVE=above
    ):
        at_once = _is_complete(stream.path, stream.content_type, [raw])
        in_chunks = _is_complete(stream.path, stream.content_type, _cut(raw, sizes))
        in_bytes = _is_complete(stream.path, stream.content_type, _cut(raw, [1] * len(raw)))

    assert at_once == in_chunks == in_bytes


_LINES = st.lists(
    st.tuples(st.integers(0, 300), st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n"])), max_size=30
)


@given(_LINES, st.integers(0, 90), st.lists(st.integers(0, 90), max_size=60))
@settings(max_examples=500)
def test_what_is_kept_is_a_matter_of_the_bytes_alone(
    lines: list[tuple[int, bytes]], rest: int, sizes: list[int]
) -> None:
    """The end from a line on with what stands before it, or the head and the end of a long line."""
    raw = b"".join(b"%d " % at + b"x" * size + end for at, (size, end) in enumerate(lines))
    raw += b"y" * rest
    kept, head, context = 16, 6, 10
    seen: list[Remains] = []
    with mock.patch.multiple(
        endings, _KEPT=kept, _HEAD=head, _CONTEXT=context, _CUT_BACK_ABOVE=4 * kept
    ):
        ending = endings.Ending(lambda remains: remains in seen or not seen.append(remains))  # type: ignore[func-returns-value]
        for chunk in _cut(raw, sizes):
            ending.feed(chunk)
        assert ending.complete

    cut = len(raw) - kept
    line = max(raw.rfind(b"\n", 0, max(cut, 0)), raw.rfind(b"\r", 0, max(cut, 0))) + 1
    start = max(0, line - context)
    if cut <= 0:
        expected = Remains(b"", raw, is_from_start=True)
    elif len(raw) - line <= 2 * kept:
        expected = Remains(b"", raw[start:], is_from_start=start == 0)
    else:
        expected = Remains(raw[start : line + head], raw[cut:], is_from_start=start == 0)
    assert seen == [expected]


def _cut(raw: bytes, sizes: list[int]) -> list[bytes]:
    chunks = []
    for size in sizes:
        chunks.append(raw[:size])
        raw = raw[size:]
    return [*chunks, raw]


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize(
    "after", [b"", b"\n", b": ping\n\n", b"\n\n: ping\n\n: ping\n\n", b"id: 7\nretry: 5\n\n"]
)
def test_little_things_after_the_end_are_nothing(
    dialect: str, line_end: bytes, after: bytes
) -> None:
    """Comments, empty lines, fields for others, and any kind of line end."""
    stream = recorded(dialect)
    after = b"" if dialect == "gemini list" else after
    short = stream.raw[: stream.last] + after

    assert _is_complete(
        stream.path, stream.content_type, [(stream.raw + after).replace(b"\n", line_end)]
    )
    assert not _is_complete(stream.path, stream.content_type, [short.replace(b"\n", line_end)])


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages", "gemini"])
def test_events_may_be_written_tersely(dialect: str) -> None:
    """Without blanks after colons, without a last line end, after a byte order mark."""
    stream = recorded(dialect)
    terse = stream.raw.replace(b"data: ", b"data:").replace(b"event: ", b"event:")

    assert _is_complete(stream.path, EVENTS, [b"\xef\xbb\xbf", stream.raw[stream.last :]])
    assert _is_complete(stream.path, EVENTS, [terse])
    assert _is_complete(stream.path, EVENTS, [terse.rstrip()])


@pytest.mark.parametrize("dialect", ["responses", "messages"])
def test_events_may_have_no_names(dialect: str) -> None:
    """Their data says what they are."""
    stream = recorded(dialect)
    lines = [line for line in stream.raw.splitlines(keepends=True) if b"event:" not in line[:6]]

    assert _is_complete(stream.path, EVENTS, lines)
    assert not _is_complete(stream.path, EVENTS, lines[:-2])


def test_a_server_may_send_no_done() -> None:
    """A finish reason is enough, with or without the usage after it."""
    done = b"data: [DONE]\n\n"
    raw = recorded("chat").raw.removesuffix(done)
    without_usage = raw[: raw.rindex(b"data:")]

    assert _chat(raw)
    assert _chat(without_usage)
    assert _chat(raw, b"data: [DO")
    assert not _chat(raw.replace(b'"stop"', b'""'))
    assert not _chat(raw.replace(b'"stop"', b"null"))


def test_each_choice_has_an_end_of_its_own() -> None:
    """As long as one of several goes on, the stream is not over."""
    first = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    second = event({"choices": [{"index": 1, "delta": {"content": "x"}, "finish_reason": None}]})
    both = [{"index": 0, "finish_reason": "stop"}, {"index": 1, "finish_reason": None}]

    assert not _chat(first, second)
    assert not _chat(event({"choices": both}))
    assert not _chat(second, first)


_ERRORS: list[tuple[str, Any, str]] = [
    ("chat", {"error": {"message": "overloaded", "type": "server_error"}}, ""),
    ("chat", {"error": "not supported"}, ""),
    ("chat", {"message": "too long"}, "error"),
    ("chat", "no JSON at all", "error"),
    ("responses", {"type": "error", "code": "server_error", "message": "x"}, "error"),
    ("responses", {"type": "error", "message": "x"}, ""),
    ("responses", {"error": {"message": "x"}}, ""),
    ("responses", {"type": "response.failed", "response": {}}, "response.failed"),
    ("responses", {"type": "response.incomplete", "response": {}}, "response.incomplete"),
    ("responses", {"type": "response.cancelled", "response": {}}, ""),
    ("messages", {"type": "error", "error": {"type": "overloaded_error"}}, "error"),
    ("messages", {"type": "error", "error": {"type": "api_error"}}, ""),
    ("gemini", {"error": {"code": 503, "status": "UNAVAILABLE"}}, ""),
    ("gemini", {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}, ""),
]


@pytest.mark.parametrize(("dialect", "data", "name"), _ERRORS)
def test_an_error_is_an_end_that_was_told(dialect: str, data: object, name: str) -> None:
    """The answer is not whole, but nobody has to guess."""
    stream = recorded(dialect)
    begun = stream.raw[: stream.last]

    assert _is_complete(stream.path, EVENTS, [begun, event(data, name)])
    assert not _is_complete(stream.path, EVENTS, [begun, event(data, name)[:-6]])


@pytest.mark.parametrize(
    "pieces",
    [
        b'[{"error": {"code": 429}}]',
        b'[{"candidates": [{"content": {}}]}\n,\r\n{"error": {"code": 500}}\n]',
        b'[{"promptFeedback": {"blockReason": "OTHER"}}]',
        b'[{"candidates": [{"finishReason": "STOP"}]}, {"usageMetadata": {}}]',
        b'{"error": {"code": 400}}',
    ],
)
def test_ends_that_a_list_tells(pieces: bytes) -> None:
    """A list has the same ways as events have; and padding makes no difference."""
    padding = b'[{"candidates": [{"content": "' + b"A" * 40_000 + b'"}]},'

    assert _is_complete(PATHS["gemini"], LIST, [pieces])
    assert not _is_complete(PATHS["gemini"], LIST, [pieces[:-1]])
    if pieces.startswith(b"["):
        assert _is_complete(PATHS["gemini"], LIST, [padding, pieces[1:]])
        assert not _is_complete(PATHS["gemini"], LIST, [padding, pieces[1:-1]])


@pytest.mark.parametrize(
    "pieces", [b"[]", b"", b'[{"candidates": [{"content": {}}]}]', b'[{"usageMetadata": {}}]']
)
def test_a_list_without_an_end_is_cut_off(pieces: bytes) -> None:
    """Also if its brackets are closed."""
    padding = b'[{"candidates": [{"content": "' + b"A" * 40_000 + b'"}]},'

    assert not _is_complete(PATHS["gemini"], LIST, [pieces])
    if b"candidates" in pieces:
        assert not _is_complete(PATHS["gemini"], LIST, [padding, pieces[1:]])


_LARGE = 3_000_000


@pytest.mark.parametrize("dialect", _DIALECTS)
@pytest.mark.parametrize("chunk", [1_000, 65_536, _LARGE * 4])
def test_large_answers_are_seen_through(dialect: str, chunk: int) -> None:
    """Also where the last event repeats all of it."""
    stream = recorded(dialect, "data: [DONE]\n\nevent: response.completed\n" * (_LARGE // 40))

    def is_complete(length: int) -> bool:
        raw = stream.raw[:length]
        parts = [raw[at : at + chunk] for at in range(0, length, chunk)]
        return _is_complete(stream.path, stream.content_type, parts)

    assert is_complete(len(stream.raw))
    assert is_complete(stream.over + 1 if stream.content_type == EVENTS else len(stream.raw))
    for short in (stream.last, stream.last + 20, stream.last + 100, stream.over - 1):
        if short < stream.over:
            assert not is_complete(short)
    assert not is_complete((stream.last + stream.over) // 2)


def test_a_large_event_that_is_not_the_last_ends_nothing() -> None:
    """Responses repeat the answer before their last event as well."""
    stream = recorded("responses", "word " * 50_000)
    done = b"event: response.output_item.done"

    assert stream.raw[: stream.last].count(done) == 1
    assert not _is_complete(stream.path, EVENTS, [stream.raw[: stream.last]])
    assert not _is_complete(stream.path, EVENTS, [stream.raw[: stream.last].rstrip() + b"\n"])


def test_a_large_event_may_have_many_lines() -> None:
    """Its name is lost with its beginning, and what it contains is not taken for it."""
    lines = b"".join(b'data: {"type": "message", "number": %d},\n' % at for at in range(2000))
    large = b"event: response.completed\ndata: [\n" + lines + b"data: {}]\n\n"

    assert _is_complete(PATHS["responses"], EVENTS, [large])


def test_a_ping_says_nothing() -> None:
    """Neither before the end nor after it."""
    stream = recorded("messages")
    ping = event({"type": "ping"}, "ping")

    assert _is_complete(stream.path, EVENTS, [stream.raw, ping])
    assert not _is_complete(stream.path, EVENTS, [stream.raw[: stream.last], ping])


@pytest.mark.parametrize("reason", ["STOP", "MAX_TOKENS"])
def test_an_image_may_come_with_the_finish_reason(reason: str) -> None:
    """The end of a large event is read without its beginning."""
    image = {"inlineData": {"mimeType": "image/png", "data": "QUJD" * 500_000}}
    candidate: dict[str, Any] = {"content": {"parts": [image], "role": "model"}, "index": 0}
    tail = {"usageMetadata": {"totalTokenCount": 5}, "modelVersion": "x"}
    whole = event({"candidates": [{**candidate, "finishReason": reason}], **tail})

    assert _is_complete(PATHS["gemini"], EVENTS, [whole])
    assert not _is_complete(PATHS["gemini"], EVENTS, [whole[:-40]])


@pytest.mark.parametrize("dialect", ["chat", "gemini"])
def test_of_several_answers_each_has_to_end(dialect: str) -> None:
    """They take turns in one stream, and one is often shorter than another."""
    many, reason = ("choices", "finish_reason") if dialect == "chat" else _MANY_OF_GEMINI

    def says(index: int, why: str | None = None) -> bytes:
        return event({many: [{"index": index, "delta": {"tool_calls": []}, reason: why}]})

    def is_complete(*events: bytes) -> bool:
        return _is_complete(PATHS[dialect], EVENTS, events)

    begun = says(0), says(1), says(0), says(1)
    assert not is_complete(*begun, says(0, "STOP"))
    assert not is_complete(*begun, says(1, "STOP"))
    assert is_complete(*begun, says(0, "STOP"), says(1), says(1, "STOP"))
    assert is_complete(*begun, says(0, "STOP"), b"data: [DONE]\n\n")
    assert is_complete(*begun, says(0, "STOP"), event({"error": {"code": 503}}))


_MANY_OF_GEMINI = "candidates", "finishReason"


def test_what_is_not_known_is_not_called_cut_off() -> None:
    """A last event that was too large to be kept may have been the end."""
    large = event({"candidates": [{"finishReason": "STOP", "content": "A" * 100_000}]})

    assert _is_complete(PATHS["gemini"], EVENTS, [large])
    assert not _is_complete(PATHS["gemini"], EVENTS, [large[:-2]])


@pytest.mark.parametrize("line_break", [b"\n", b"\r\n"])
@pytest.mark.parametrize("chunk", [7, 1_000, 10_000_000])
def test_comments_do_not_push_events_out_of_sight(chunk: int, line_break: bytes) -> None:
    """Some servers send them all the while that a model thinks."""
    stream = recorded("messages")
    comments = b": please wait\n\n" * 40_000

    def is_complete(raw: bytes) -> bool:
        raw = raw.replace(b"\n", line_break)
        parts = [raw[at : at + chunk] for at in range(0, len(raw), chunk)]
        return _is_complete(PATHS["messages"], EVENTS, parts)

    assert is_complete(stream.raw + comments)
    assert is_complete(comments + stream.raw)
    assert not is_complete(stream.raw[: stream.last] + comments)
    assert not is_complete(comments)


def test_a_stream_without_a_byte_is_cut_off(dialect: str) -> None:
    """Nothing was told."""
    assert not _is_complete(PATHS[dialect], LIST if "list" in dialect else EVENTS, [])


_PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "Deflate ": lambda raw: zlib.compress(raw, wbits=-15),
    "identity": bytes,
}


@pytest.mark.parametrize("encoding", _PACKERS)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_packed_streams_are_read(dialect: str, encoding: str, size: int) -> None:
    """However they are packed, and in whatever chunks they come."""
    stream = recorded(dialect)

    def is_complete(raw: bytes) -> bool:
        packed = _PACKERS[encoding](raw)
        chunks = [packed[at : at + size] for at in range(0, len(packed), size)]
        return _is_complete(stream.path, stream.content_type, chunks, encoding)

    assert is_complete(stream.raw)
    assert not is_complete(stream.raw[: stream.over - 1])


def test_a_packed_stream_that_is_cut_off_is_cut_off() -> None:
    """What was packed last is not there."""
    stream = recorded("chat", " ".join(str(number * number) for number in range(3000)))
    packed = gzip.compress(stream.raw)

    assert _is_complete(stream.path, EVENTS, [packed], "gzip")
    assert not _is_complete(stream.path, EVENTS, [packed[: len(packed) // 2]], "gzip")


def test_few_packed_bytes_may_be_many() -> None:
    """A megabyte for each kilobyte is unpacked piece by piece, to its last byte."""
    for size in range(endings._PIECE * 3 - 300, endings._PIECE * 3 + 300, 7):
        raw = event("A" * size) + event("[DONE]")

        assert _is_complete(PATHS["chat"], EVENTS, [gzip.compress(raw)], "gzip")


def test_bytes_that_cannot_be_unpacked_say_nothing() -> None:
    """Not known is not cut off."""
    assert _is_complete(PATHS["chat"], EVENTS, [b"no gzip at all", b"more"], "gzip")
    packed = gzip.compress(b"data: {}\n\n" * 100)
    assert _is_complete(PATHS["chat"], EVENTS, [packed[:30], b"\xff" * 50, packed], "gzip")


@pytest.mark.parametrize(
    ("path", "content_type", "encoding"),
    [
        ("/v1/chat/completions", "application/json", ""),
        ("/v1/embeddings", EVENTS, ""),
        ("/v1/chat/completions", EVENTS, "br"),
        ("/v1/chat/completions", EVENTS, "zstd"),
        ("/v1/chat/completions", EVENTS, "gzip, gzip"),
        ("/v1beta/models/m:generateContent", LIST, ""),
        ("/model/m/invoke-with-response-stream", "application/vnd.amazon.eventstream", ""),
        ("/v1/messages/count_tokens", EVENTS, ""),
        ("", "", ""),
    ],
)
def test_where_the_end_cannot_be_known_nobody_watches(
    path: str, content_type: str, encoding: str
) -> None:
    """Other dialects, other encodings, and answers that are not streamed."""
    assert watch(path, content_type, encoding) is None


@pytest.mark.parametrize(
    "path",
    [
        "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21",
        "/openai/v1/responses?api-version=preview",
        "/v1/responses/resp_1?stream=true",
        "/v1/completions",
        "/api/v1/messages?beta=true",
        "/v1/projects/p/publishers/anthropic/models/claude@1:streamRawPredict",
        "/v1/projects/p/publishers/google/models/gemini:streamGenerateContent?alt=sse",
    ],
)
def test_dialects_are_known_by_their_paths(path: str) -> None:
    """Whatever stands before and behind, with other providers too."""
    assert watch(path, "Text/Event-Stream", "") is not None


@given(st.sampled_from(_DIALECTS), st.lists(st.binary(max_size=60), max_size=6))
@example("chat", [b"data: " + b"[" * 100_000 + b"\n\n"])
@example("responses", [b"data\nevent\n: \ndata:\n\n"])
def test_no_bytes_are_an_error(dialect: str, chunks: list[bytes]) -> None:
    """Any garbage gives a verdict."""
    for encoding in ("", "gzip", "deflate"):
        _is_complete(PATHS[dialect], LIST if "list" in dialect else EVENTS, chunks, encoding)


def test_little_is_kept_of_a_long_stream() -> None:
    """Neither many chunks nor one long line are piled up."""
    ending = watch(PATHS["responses"], EVENTS, "")
    assert ending is not None
    stream: Recorded = recorded("responses", "word " * 200_000)
    for at in range(0, len(stream.raw), 999):
        ending.feed(stream.raw[at : at + 999])

        assert sum(map(len, ending._parts)) <= endings._CUT_BACK_ABOVE

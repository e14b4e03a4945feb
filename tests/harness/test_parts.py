"""The small parts: lines, records, stories, the feed."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.harness import events, feed
from headway.harness.feed import Feed
from headway.harness.lines import Lines
from headway.harness.listening import PlainText
from headway.harness.records import Record
from headway.harness.story import Story

HUGE = 10**400


def story() -> tuple[Story, list[events.AgentEvent]]:
    """One, and what it tells."""
    told: list[events.AgentEvent] = []
    return Story("t", tell=told.append, used=lambda _: None, limited=lambda _: None), told


@settings(deadline=None)
@given(text=st.binary(), cuts=st.lists(st.integers(0, 300)))
def test_lines_are_those_of_the_whole(text: bytes, cuts: list[int]) -> None:
    """However it comes; empty ones are left out."""
    places = sorted({min(cut, len(text)) for cut in cuts})
    lines = Lines(1000)
    found = [
        line
        for a, b in zip([0, *places], [*places, len(text)], strict=True)
        for line in lines.feed(text[a:b])
    ]
    found += lines.end()

    assert found == [line for line in text.split(b"\n") if line]
    assert lines.left_out == 0


def test_a_line_that_is_too_long_is_left_out_and_counted() -> None:
    """Those around it are not, and what it was is not kept."""
    lines = Lines(10)
    found = [*lines.feed(b"short\n" + b"x" * 11), *lines.feed(b"y" * 50 + b"\nend\n0123456789\n")]
    found += lines.feed(b"z" * 11)
    found += lines.end()

    assert found == [b"short", b"end", b"0123456789"]
    assert lines.left_out == 2


@pytest.mark.parametrize(
    "line",
    [b"", b"x", b"[1]", b"7", b"null", b'"a"', b"{", b'{"a":', b"{}x", b"\xff{}", b'{"a":' * 9999],
)
def test_what_is_no_record(line: bytes) -> None:
    """It is none."""
    assert Record.parse(line) is None


def test_records_of_any_kind() -> None:
    """Whatever is where something else was expected."""
    record = Record.parse(
        b' {"n": 3, "f": 2.5, "t": "x", "b": true, "o": {"n": 4}, "l": [{"n": 5}, 6, null],'
        b' "i": Infinity, "m": NaN, "e": 1e999, "s": "a\\ud800b", "p": "\\ud83d\\ude00"}'
    )
    assert record is not None
    assert [record.number(name) for name in "nftboimezp"] == [3, 2.5] + [None] * 8
    assert [record.count(name) for name in "nftboime"] == [3, 2] + [0] * 6
    assert record.text("t") == "x"
    assert record.text("n") == record.text("o", "n", "x") == record.text("z", "z") == ""
    assert record.count("o", "n") == 4
    assert [one.count("n") for one in record.tables("l")] == [5]
    assert record.tables("o") == []
    assert record.table("l").value("n") is None
    assert record.text("s") == "a?b"
    assert record.text("p") == "\U0001f600"
    for wild in (HUGE, -HUGE, 1e300):
        assert Record({"n": wild}).count("n") == 0


def test_the_text_is_what_was_said_last() -> None:
    """After the last tool; or before it, if nothing came after."""
    one, told = story()
    one.says("First.")
    one.says("Second.")
    assert one.text == "First.\n\nSecond."
    one.uses("t", {}, "1")
    assert one.text == "First.\n\nSecond."
    one.says("Pie", is_piece=True)
    one.says("ces.", is_piece=True)
    one.says("Whole.")
    one.says("And", is_piece=True)
    assert one.text == "Pieces.\n\nWhole.\n\nAnd"
    texts = [event.text for event in told if isinstance(event, events.Text)]
    assert "".join(texts[:2]) == "First.\n\nSecond."
    assert "".join(texts[2:]) == one.text
    one.completes("The answer.")
    assert one.text == "The answer."


def test_a_story_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In text, calls, names, arguments and answers, and says that it was cut."""
    monkeypatch.setattr("headway.harness.story._MAX_TEXT_CHARS", 100)
    monkeypatch.setattr("headway.harness.story._MAX_TOOL_CALLS", 10)
    one, told = story()
    for i in range(50):
        one.uses("t" * 10_000, {"text": "x" * 50_000}, f"{i}" + "c" * 10_000)
    one.gets("49" + "c" * 10_000, "o" * 10**6)
    one.gets("0" + "c" * 10_000, "forgotten")
    for _ in range(20):
        one.says("0123456789", is_piece=True)

    assert len(one.tool_calls) == 10
    assert all(len(str(call.arguments)) <= 10_001 for call in one.tool_calls)
    assert all(len(call.tool) + len(call.id) <= 2000 for call in one.tool_calls)
    assert len(one._tools) <= 10
    assert (len(one.text), one.is_cut) == (100, True)
    answer, late = [event for event in told if isinstance(event, events.ToolResult)]
    assert (answer.tool, len(answer.output), late.tool) == ("t" * 1000, 100_000, "")
    one.completes("y" * 101)
    assert (len(one.text), one.is_cut) == (100, True)


def test_arguments_that_nobody_could_print_are_not_kept() -> None:
    """Python's own recursion would end the attempt."""
    one, told = story()
    deep: object = "bottom"
    for i in range(900):
        deep = [deep] if i % 2 else {"x": deep}
    one.uses("t", deep, "1")

    assert repr(told[0])
    assert told[0].as_dict()["arguments"] == "too deeply nested to be shown"


def test_plain_text_in_pieces_of_characters() -> None:
    """Half a character waits for its other half; what is broken is replaced."""
    one, _ = story()
    listener = PlainText(one)
    for byte in "añ€😀".encode() + b"\xff" + b"\xe2\x82":
        listener.hear(bytes([byte]))
    listener.end()

    assert one.text == "añ€😀\ufffd\ufffd"
    assert one.is_complete


# -- the feed ---------------------------------------------------------------------------------


def test_the_feed_keeps_the_order_and_the_context() -> None:
    """What comes out runs in the context that the feed was made in."""
    variable = contextvars.ContextVar("variable", default="none")

    async def main() -> list[tuple[int, str]]:
        variable.set("mine")
        heard: list[tuple[int, str]] = []
        end = asyncio.Event()

        def hear(thing: int) -> None:
            heard.append((thing, variable.get()))
            if thing == 999:
                end.set()

        way = Feed(hear)
        thread = threading.Thread(target=lambda: list(map(way.put, range(1000))))
        thread.start()
        await asyncio.wait_for(end.wait(), 60)
        thread.join()
        return heard

    assert asyncio.run(main()) == [(i, "mine") for i in range(1000)]


@pytest.mark.parametrize("many", [1, 2, 3, 150])
def test_who_pauses_is_always_told_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    """However the two meet: nobody sleeps for ever."""
    monkeypatch.setattr(feed, "_MANY", many)

    async def main() -> int:
        heard: list[int] = []
        end, room = asyncio.Event(), threading.Event()

        def hear(thing: int) -> None:
            heard.append(thing)
            if thing == 4999:
                end.set()

        way = Feed(hear)
        way.has_room = room.set

        def bring() -> None:
            for i in range(5000):
                room.clear()
                if way.pauses():
                    assert room.wait(30), "nobody said that there was room"
                way.put(i)

        thread = threading.Thread(target=bring)
        thread.start()
        await asyncio.wait_for(end.wait(), 100)
        thread.join()
        return len(heard)

    assert asyncio.run(main()) == 5000


def test_the_feed_is_full_by_size_too() -> None:
    """A few large events are as much as many small ones; drained, there is room."""

    async def main() -> None:
        room = asyncio.Event()
        way: Feed[int] = Feed(lambda _: None)
        way.has_room = room.set
        way.loads(100 << 20)
        assert not way.pauses()  # nothing waits, so nothing would say that there is room
        way.put(1)
        assert way.pauses()
        await room.wait()
        assert not way.pauses()

    asyncio.run(main())


def test_one_that_raises_does_not_hold_the_others_up() -> None:
    """They are heard at the next turn."""

    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        heard: list[int] = []
        end = asyncio.Event()

        def hear(thing: int) -> None:
            heard.append(thing)
            if thing == 2:
                end.set()
            raise ValueError

        way = Feed(hear)
        for i in range(3):
            way.put(i)
        await asyncio.wait_for(end.wait(), 60)
        return heard

    assert asyncio.run(main()) == [0, 1, 2]


def test_a_feed_to_a_closed_loop_forgets() -> None:
    """And says so."""
    ways: list[Feed[int]] = []

    async def main() -> None:
        ways.append(Feed(lambda _: None))

    asyncio.run(main())
    ways[0].put(1)
    ways[0].put(2)

    assert ways[0].is_closed

"""Many processes, one home: the server itself counts how many requests are in flight."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.transport.crews import (
    PATIENCE_SECONDS,
    names,
    tasks_in_line,
    texts,
    until_in_line,
    until_nothing_is_held,
)
from tests.transport.sdks import SDKS

if TYPE_CHECKING:
    from tests.llm.server import Server
    from tests.transport.crews import Start

    from headway import Governor

LIMIT, PROCESSES, CALLERS = 3, 4, 20
HOWS = [
    ("openai", "threads"),
    ("anthropic", "tasks"),
    ("openai", "tasks"),
    ("anthropic", "threads"),
]

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(("sdk", "how"), HOWS)
def test_the_limit_holds_across_processes_and_all_are_served_in_turn(
    home_governor: Governor, server: Server, start: Start, sdk: str, how: str
) -> None:
    """4 processes x 20 callers at a limit of 3, while the server holds the first ones."""
    key, model = SDKS[sdk].key, SDKS[sdk].model
    home_governor.set_limit(key, LIMIT)
    server.plan(hold="before")
    crews = [start(sdk, how, names(number, CALLERS)) for number in range(PROCESSES)]
    server.until(lambda s: s.held(model) == LIMIT, PATIENCE_SECONDS)
    all_of_them = PROCESSES * CALLERS
    until_in_line(home_governor, all_of_them - LIMIT)
    line = tasks_in_line(home_governor)
    assert server.in_flight() == LIMIT

    server.release(later_too=True)

    got = {name: text for crew in crews for name, text in texts(crew).items()}
    assert got == {name: name for number in range(PROCESSES) for name in names(number, CALLERS)}
    assert server.peak() == LIMIT
    arrived = [str(record.tag) for record in server.requests()]
    assert sorted(arrived) == sorted(got), "each was sent once"
    # When the n-th is let in, all before it were let in, and all but two of them are over.
    for place, name in enumerate(line, start=LIMIT):
        assert arrived.index(name) >= place - (LIMIT - 1), "somebody was let in before its turn"
    until_nothing_is_held(home_governor)


@pytest.mark.parametrize(("sdk", "how"), HOWS[:2])
def test_one_at_a_time_they_arrive_as_they_queued(
    home_governor: Governor, server: Server, start: Start, sdk: str, how: str
) -> None:
    """At a limit of one the order at the server is the order of the queue, exactly."""
    key, model = SDKS[sdk].key, SDKS[sdk].model
    home_governor.set_limit(key, 1)
    server.plan(hold="before")
    crews = [start(sdk, how, names(number, 5)) for number in range(2)]
    server.until(lambda s: s.held(model) == 1, PATIENCE_SECONDS)
    until_in_line(home_governor, 9)
    line = tasks_in_line(home_governor)

    server.release(later_too=True)
    for crew in crews:
        texts(crew)

    assert [str(record.tag) for record in server.requests()][1:] == line
    assert server.peak() == 1


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_killed_process_gives_its_streams_slot_to_the_next(
    home_governor: Governor, server: Server, start: Start, sdk: str
) -> None:
    """``kill -9`` in the middle of a stream."""
    key, model = SDKS[sdk].key, SDKS[sdk].model
    home_governor.set_limit(key, 1)
    server.plan(hold="middle", words=50, match="first")
    first = start(sdk, "threads", ["first"], streams=True, prompt="first {name}")
    server.until(lambda s: s.held(model) == 1, PATIENCE_SECONDS)
    second = start(sdk, "tasks", ["second"], streams=True)
    until_in_line(home_governor, 1)

    first.send_signal(signal.SIGKILL)

    assert texts(second) == {"second": "second"}
    assert server.peak() == 1
    until_nothing_is_held(home_governor)


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_process_that_crashes_in_a_stream_leaves_nothing(
    home_governor: Governor, server: Server, start: Start, sdk: str
) -> None:
    """An error that nobody catches, in the consumer's own code."""
    home_governor.set_limit(SDKS[sdk].key, 1)
    server.plan(hold="middle", words=50, match="crashing")
    crashing = start(sdk, "threads", ["it"], streams=True, crash=True, prompt="crashing {name}")
    crashing.communicate(timeout=PATIENCE_SECONDS)

    until_nothing_is_held(home_governor)
    assert texts(start(sdk, "threads", ["next"])) == {"next": "next"}


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_streams_of_one_model_in_two_processes_do_not_touch_each_other(
    home_governor: Governor, server: Server, start: Start, sdk: str
) -> None:
    """One is killed half-way; the other gets all of its own, byte for byte."""
    key, model = SDKS[sdk].key, SDKS[sdk].model
    home_governor.set_limit(key, 2)
    mine = " ".join(f"mine{number}" for number in range(300))
    server.plan(hold="middle", say=mine, match="mine")
    server.plan(hold="middle", say=mine.replace("mine", "other"), match="others")
    one = start(sdk, "threads", ["one"], streams=True, prompt="mine {name}")
    other = start(sdk, "threads", ["other"], streams=True, prompt="others {name}")
    server.until(lambda s: s.held(model) == 2, PATIENCE_SECONDS)

    other.kill()
    server.until(lambda s: s.in_flight(model) == 1, PATIENCE_SECONDS)
    server.release()

    assert texts(one) == {"one": mine}
    until_nothing_is_held(home_governor)

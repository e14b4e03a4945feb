"""Many processes, one home: the server itself counts how many requests are in flight."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from tests.cli.kit import until
from tests.slots.support import is_clean
from tests.transport.sdks import SDKS

import headway

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.llm.server import Server

    from headway import Governor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PATIENCE_SECONDS = 100.0
LIMIT, PROCESSES, CALLERS = 3, 4, 20
HOWS = [(sdk, how) for sdk in ("openai", "anthropic") for how in ("threads", "tasks")]

Start: TypeAlias = Callable[..., subprocess.Popen[str]]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def home_governor() -> Iterator[Governor]:
    """The home's, which the children share."""
    governor = headway.governor.default()
    yield governor
    governor.close()


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    """Starts processes of callers; those still alive at the end are killed."""
    started: list[subprocess.Popen[str]] = []

    def start(sdk: str, how: str, names: list[str], **more: Any) -> subprocess.Popen[str]:
        part = {"sdk": sdk, "how": how, "names": names, "url": server.url, **more}
        command = [sys.executable, "-m", "tests.transport.caller", json.dumps(part)]
        started.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def texts(process: subprocess.Popen[str]) -> dict[str, str]:
    """What each caller of the process got, when all are done."""
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0
    lines = [json.loads(line) for line in out.splitlines()]
    return {line["name"]: line["text"] for line in lines}


def names(process: int, count: int) -> list[str]:
    """The callers of one process."""
    return [f"p{process}c{caller}" for caller in range(count)]


def tasks_in_line(governor: Governor) -> list[str]:
    """Who waits, first in line first."""
    return [str(row.task) for row in governor.snapshot().waiting]


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
    _until_in_line(home_governor, all_of_them - LIMIT)
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
    _until_nothing_is_held(home_governor)


@pytest.mark.parametrize(("sdk", "how"), [HOWS[0], HOWS[-1]])
def test_one_at_a_time_they_arrive_as_they_queued(
    home_governor: Governor, server: Server, start: Start, sdk: str, how: str
) -> None:
    """At a limit of one the order at the server is the order of the queue, exactly."""
    key, model = SDKS[sdk].key, SDKS[sdk].model
    home_governor.set_limit(key, 1)
    server.plan(hold="before")
    crews = [start(sdk, how, names(number, 5)) for number in range(2)]
    server.until(lambda s: s.held(model) == 1, PATIENCE_SECONDS)
    _until_in_line(home_governor, 9)
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
    _until_in_line(home_governor, 1)

    first.send_signal(signal.SIGKILL)

    assert texts(second) == {"second": "second"}
    assert server.peak() == 1
    _until_nothing_is_held(home_governor)


@pytest.mark.parametrize("sdk", ["openai", "anthropic"])
def test_a_process_that_crashes_in_a_stream_leaves_nothing(
    home_governor: Governor, server: Server, start: Start, sdk: str
) -> None:
    """An error that nobody catches, in the consumer's own code."""
    home_governor.set_limit(SDKS[sdk].key, 1)
    server.plan(hold="middle", words=50, match="crashing")
    crashing = start(sdk, "threads", ["it"], streams=True, crash=True, prompt="crashing {name}")
    crashing.communicate(timeout=PATIENCE_SECONDS)

    _until_nothing_is_held(home_governor)
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
    _until_nothing_is_held(home_governor)


def _until_in_line(governor: Governor, count: int) -> None:
    until(lambda: len(governor.snapshot().waiting) == count, "waiting in line")


def _until_nothing_is_held(governor: Governor) -> None:
    until(lambda: is_clean(governor), "giving back")

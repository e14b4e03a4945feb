"""A server that does not answer: whoever waits for it is told so, within a second."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from headway import Governor, StoreUnavailable
from headway.stores.redis_link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fleet.conftest import Persons
    from tests.fleet.proxy import Proxy

_NOTICE = "waiting for the store at redis://127.0.0.1:"


@pytest.fixture(params=["silent", "refusing"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """One where nobody answers, or nobody is."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        if request.param == "refusing":
            listener.close()
            yield "redis://127.0.0.1:1"
        else:
            yield f"redis://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize(
    "words",
    [("status",), ("run", "--", "true"), ("submit", "--no-start", "--", "true"), ("doctor",)],
    ids=lambda words: words[0],
)
def test_a_command_says_that_it_waits_for_the_server(
    person: Persons, address: str, words: tuple[str, ...]
) -> None:
    """In one line, with how long it will do so, before it gives up."""
    ann = person("ann")
    ann.environ |= {"HEADWAY_STORE_URL": address, "HEADWAY_STORE_TIMEOUT": "3s"}
    process = ann.start(*words)
    assert process.stderr is not None

    first = process.stderr.readline()

    assert first.startswith(f"headway: warning: {_NOTICE}"), first
    assert first.rstrip().endswith(("gives up in 2 s", "gives up in 3 s"))
    assert process.poll() is None  # it does wait
    assert _NOTICE not in process.communicate()[1]  # once


def test_one_who_has_to_wait_for_another_thread_is_told_as_well(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The notice comes within a second of asking, also on a connection that only seems to last."""
    monkeypatch.setenv("HEADWAY_STORE_TIMEOUT", "2s")
    governor = Governor(proxy.url)
    with governor.slot("k"):
        pass
    proxy.cut()
    started = time.time()

    with pytest.raises(StoreUnavailable):
        governor.slot("k").__enter__()

    (told,) = [each for each in caplog.records if each.getMessage().startswith(_NOTICE)]
    assert told.created - started < 1.5
    with pytest.raises(StoreUnavailable):
        governor.close()


def test_an_answer_that_is_only_slow_is_waited_for(
    proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is kept, and what was asked is not asked again."""
    connection = Link(proxy.url, "any", timeout_seconds=30.0).connect()
    connection.ping()
    proxy.delay_seconds = 1.0

    assert connection.ping() >= 1.0

    assert connection.number == 1
    assert caplog.messages == [f"waiting for the store at {proxy.url} (any), gives up in 30 s"]
    connection.close()

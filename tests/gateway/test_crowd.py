"""Very many connections at once."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted

_CROWD = 500
_ASK = b'{"model": "gpt", "messages": []}'
_WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of each connection are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8 * _CROWD)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
def test_five_hundred_wait_and_are_served_in_turn(plain: Running, upstream: Scripted) -> None:
    """One slot, one connection to the upstream, and nobody is forgotten."""
    plain.governor.set_limit("llm/openai", 1)
    clients = [plain.connect() for _ in range(_CROWD)]
    clients[0].post("/openai/0", _ASK)
    provider = upstream.accept()
    assert provider.until(b"\r\n\r\n").startswith(b"POST /base/0 ")
    for number, client in enumerate(clients[1:], 1):
        client.post(f"/openai/{number}", _ASK)
    plain.until(lambda: plain.waiting() == _CROWD - 1, "the crowd")

    seen = []
    for number in range(_CROWD):
        provider.take(len(_ASK))
        provider.send(_WHOLE)
        if number < _CROWD - 1:
            head = provider.until(b"\r\n\r\n")
            seen.append(int(head.removeprefix(b"POST /base/").split()[0]))

    for client in clients:
        assert client.until(b"\r\n").startswith(b"HTTP/1.1 200 ")
    assert sorted(seen) == list(range(1, _CROWD))
    plain.until(lambda: plain.held() == 0, "the end")

"""Very many connections at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.gateway.kit import running
from tests.gateway.scripted import ASK, WHOLE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.gateway.kit import Running
    from tests.gateway.scripted import Scripted

_CROWD = 500
_HAMMERING, _ASKED, _LIMIT = 200, 5, 3


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
    clients[0].post("/openai/0", ASK)
    provider = upstream.accept()
    assert provider.until(b"\r\n\r\n").startswith(b"POST /base/0 ")
    for number, client in enumerate(clients[1:], 1):
        client.post(f"/openai/{number}", ASK)
    plain.until(lambda: plain.waiting() == _CROWD - 1, "the crowd")

    seen = []
    for number in range(_CROWD):
        provider.take(len(ASK))
        provider.send(WHOLE)
        if number < _CROWD - 1:
            head = provider.until(b"\r\n\r\n")
            seen.append(int(head.removeprefix(b"POST /base/").split()[0]))

    for client in clients:
        assert client.until(b"\r\n").startswith(b"HTTP/1.1 200 ")
    assert sorted(seen) == list(range(1, _CROWD))
    plain.until(lambda: plain.held() == 0, "the end")


async def _ask_on(port: int, name: int, count: int) -> None:
    """A client that asks again as soon as it is answered, and then goes in the middle of a wait."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(count):
        said = f"{name}.{number}"
        writer.write(_request(said))
        head, body = await _content(reader)
        assert head.startswith(b"HTTP/1.1 200 ")
        assert body.decode() == said
    writer.write(_request("gone"))
    await writer.drain()
    writer.transport.abort()


def _request(said: str) -> bytes:
    body = json.dumps({"model": "gpt", "said": said})
    head = f"POST /openai/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()


async def _content(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head and the body of what comes."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    return head, await reader.readexactly(length)


class _Counting:
    """An upstream that says what it was told, and counts how many it serves at once."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                told = json.loads((await _content(reader))[1])["said"].encode()
                self.now += 1
                self.peak = max(self.peak, self.now)
                await asyncio.sleep(0.002)
                self.now -= 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.usefixtures("many_files")
def test_many_who_ask_without_a_pause_keep_to_the_limit(home: Path) -> None:
    """Each gets its own answers, whoever goes is forgotten, and nothing is left of any of them."""
    counting = _Counting()

    async def hammer() -> None:
        upstream = await asyncio.start_server(counting.serve, "127.0.0.1", 0)
        port = upstream.sockets[0].getsockname()[1]
        with running(home, {"openai": f"http://127.0.0.1:{port}"}) as gateway:
            gateway.governor.set_limit("llm/openai", _LIMIT)
            await _ask_on(gateway.port, 0, 1)
            before = psutil.Process().num_fds(), gateway.tasks()
            await asyncio.gather(*(_ask_on(gateway.port, n, _ASKED) for n in range(_HAMMERING)))
            await asyncio.to_thread(
                gateway.until, lambda: gateway.connections() == 0, "the end of all"
            )
            await asyncio.to_thread(
                gateway.until, lambda: gateway.tasks() <= before[1], "the end of their tasks"
            )
            assert (gateway.held(), gateway.waiting()) == (0, 0)
            # Both ends of the connections to the upstream that are kept for the next ones.
            assert psutil.Process().num_fds() <= before[0] + 2 * _LIMIT
            answered = [each for each in gateway.entries if each["outcome"] == "ok"]
            assert len(answered) >= _HAMMERING * _ASKED
        upstream.close()
        await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(hammer())
    assert 0 < counting.peak <= _LIMIT

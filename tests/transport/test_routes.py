"""Without a transport of the caller's own, requests go out as httpx would send them."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.transport.kit import ASK

from headway import Governor
from headway.llm import AsyncHeadwayTransport, HeadwayTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.llm.server import Server


class Proxy:
    """Answers what it is asked for by itself, and remembers the first lines."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.asked: list[str] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                self.asked.append(lines.readline().decode().strip())
                connection.sendall(
                    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nproxy"
                )

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """One that the environment does not name yet."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    proxy = Proxy()
    yield proxy
    proxy.close()


@pytest.fixture(params=["plain", "async"])
def get(request: pytest.FixtureRequest, lib: Any, governor: Governor) -> Callable[[str], str]:
    """The text at a URL, through a new transport."""

    def plain(url: str) -> str:
        with lib.Client(transport=HeadwayTransport(None, governor)) as client:
            text: str = client.get(url).text
            return text

    async def on_a_loop(url: str) -> str:
        transport = AsyncHeadwayTransport(None, governor)
        async with lib.AsyncClient(transport=transport) as client:
            text: str = (await client.get(url)).text
            return text

    return plain if request.param == "plain" else lambda url: asyncio.run(on_a_loop(url))


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_the_proxy_of_the_environment_is_used(
    get: Callable[[str], str], proxy: Proxy, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A client that is given a transport would forget it."""
    monkeypatch.setenv(name, proxy.url)
    assert get("http://model.example/v1") == "proxy"
    assert proxy.asked == ["GET http://model.example/v1 HTTP/1.1"]


def test_hosts_that_need_no_proxy_are_asked_directly(
    get: Callable[[str], str], proxy: Proxy, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``NO_PROXY`` says."""
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert get(server.url) == ""
    assert proxy.asked == []
    assert get("http://model.example/v1") == "proxy"


def test_another_schemes_proxy_is_not_used(
    get: Callable[[str], str], proxy: Proxy, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy without a scheme is an HTTP proxy."""
    monkeypatch.setenv("HTTPS_PROXY", proxy.url.removeprefix("http://"))
    assert get(server.url) == ""
    assert proxy.asked == []


def test_one_transport_serves_clients_of_both_packages(governor: Governor, server: Server) -> None:
    """Each gets what it is made of."""
    import httpx  # noqa: PLC0415 - both at once, for once
    import httpx2  # noqa: PLC0415

    transport = HeadwayTransport("mine", governor)
    url = f"{server.url}/v1/chat/completions"
    assert type(httpx.Client(transport=transport).post(url, json=ASK)) is httpx.Response
    assert type(httpx2.Client(transport=transport).post(url, json=ASK)) is httpx2.Response
    transport.close()
    assert server.peak() == 1


def test_connections_are_as_many_as_there_are_slots(lib: Any, server: Server) -> None:
    """Who waited for a connection would do it with a slot in hand, and lose to its own timeout."""
    server.plan(hold="before")

    async def main() -> None:
        with Governor("memory://") as governor:
            transport = AsyncHeadwayTransport("openai", governor)
            async with lib.AsyncClient(transport=transport, timeout=60) as client:
                url = f"{server.url}/v1/chat/completions"
                calls = [asyncio.create_task(client.post(url, json=ASK)) for _ in range(130)]
                await server.until_async(lambda s: s.held() == 130)
                server.release(later_too=True)
                for call in calls:
                    assert (await call).status_code == 200

    asyncio.run(main())


def test_a_forked_child_has_connections_of_its_own(
    lib: Any, governor: Governor, server: Server
) -> None:
    """On one of its parent's, the answers of both would mix."""
    connected: list[str] = []

    def trace(event: str, _: object) -> None:
        if event == "connection.connect_tcp.complete":
            connected.append(event)

    url, extensions = f"{server.url}/v1/chat/completions", {"trace": trace}
    with lib.Client(transport=HeadwayTransport("openai", governor)) as client:
        client.post(url, json=ASK, extensions=extensions)
        client.post(url, json=ASK, extensions=extensions)
        assert len(connected) == 1

        pid = os.fork()
        if not pid:
            try:
                client.post(url, json=ASK, extensions=extensions)
            finally:
                os._exit(len(connected))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2

        client.post(url, json=ASK, extensions=extensions)
        assert len(connected) == 1

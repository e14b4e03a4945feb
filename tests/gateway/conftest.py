"""Fixtures of the gateway's tests."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest
from tests.gateway.kit import Running, running
from tests.gateway.scripted import Scripted, scripted
from tests.llm.conftest import server

from headway.gateway.clients import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.llm.server import Server

__all__ = ["server"]


@pytest.fixture
def gateway(home: Path, server: Server) -> Iterator[Running]:
    """A gateway to the model server, in the test's home."""
    upstreams = dict.fromkeys(("openai", "anthropic", "gemini"), server.url)
    with running(home, upstreams) as gateway:
        yield gateway


@pytest.fixture
def upstream() -> Iterator[Scripted]:
    """An upstream that answers with the bytes that a test gives it."""
    with scripted() as upstream:
        yield upstream


@pytest.fixture
def plain(home: Path, upstream: Scripted) -> Iterator[Running]:
    """A gateway to that."""
    with running(home, {"openai": upstream.url}) as gateway:
        yield gateway


@pytest.fixture
def narrow_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to nothing fits between the gateway and its clients."""
    connection_made = Client.connection_made

    def narrow(client: Client, transport: asyncio.BaseTransport) -> None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=1000)
        connection_made(client, transport)

    monkeypatch.setattr(Client, "connection_made", narrow)

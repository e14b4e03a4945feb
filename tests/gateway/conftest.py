"""Fixtures of the gateway's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.gateway.kit import Running, running
from tests.gateway.scripted import Scripted, scripted
from tests.llm.conftest import server

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

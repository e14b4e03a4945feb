"""Fixtures of the model server's own tests, and of those with real agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.llm.kit import DIALECTS, Client
from tests.llm.server import Server, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[Server]:
    """A model server of the test's own."""
    with serving() as server:
        yield server


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    """Each dialect in turn."""
    chosen: str = request.param
    return chosen


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def client(request: pytest.FixtureRequest, server: Server, dialect: str) -> Client:
    """A client of each dialect, with streams and without."""
    return Client(server, dialect, streams=request.param)

"""Fixtures of the transports' tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import httpx2
import pytest
from tests.llm.server import Server, serving
from tests.slots.conftest import govern, url

from headway import Governor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["govern", "url"]


@pytest.fixture
def home(home: Path) -> str:
    """The same as text."""
    return str(home)


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def lib(request: pytest.FixtureRequest) -> Any:
    """Each of the packages that clients are made of."""
    return request.param


@pytest.fixture
def governor() -> Iterator[Governor]:
    """One in memory, with one slot for everything that is called."""
    with Governor("memory://", limits={"llm": 1}) as governor:
        yield governor


@pytest.fixture
def server() -> Iterator[Server]:
    """A model server of the test's own."""
    with serving() as server:
        yield server

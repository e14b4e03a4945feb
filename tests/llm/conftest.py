"""Fixtures of the model server's own tests, and of those with real agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.llm.server import Server, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[Server]:
    """A model server of the test's own."""
    with serving() as server:
        yield server

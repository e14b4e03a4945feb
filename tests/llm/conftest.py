"""Fixtures of the model server's own tests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

# However pytest was started: the server is found from the project's root.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.llm.server import Server, serving  # noqa: E402 - after the path is set

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[Server]:
    """A model server of the test's own."""
    with serving() as server:
        yield server

"""Fixtures of the tests about jobs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

# However pytest was started: the helpers are found from the project's root.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.jobs.boards import open_board  # noqa: E402 - after the path is set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headway.jobs.board import Board


@pytest.fixture
def board(home: Path) -> Iterator[Board]:
    """The board of a fresh home, without a worker."""
    board = open_board(home)
    yield board
    board.database.close()

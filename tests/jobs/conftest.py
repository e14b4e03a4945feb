"""Fixtures of the tests about jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.jobs.boards import open_board

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

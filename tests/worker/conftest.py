"""Fixtures of the worker's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.worker.kit import House

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    """A home whose workers and jobs are gone after the test."""
    house = House(tmp_path)
    yield house
    house.close()

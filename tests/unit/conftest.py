from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(home: Path) -> str:
    """The same as text."""
    return str(home)

"""Fixtures of the harness's tests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

# However pytest was started: the kit is found from the project's root.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.harness.kit import Stage  # noqa: E402 - after the path is set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A place for stand-ins, of which nothing runs after the test."""
    stage = Stage(tmp_path)
    yield stage
    stage.close()

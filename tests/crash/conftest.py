"""Fixtures of the crash tests."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from tests.crash.kit import Crew

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

if sys.platform == "win32":
    collect_ignore_glob = ["*"]


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """Processes on one home; all of them are gone after the test."""
    crew = Crew(tmp_path / "home", tmp_path)
    try:
        yield crew
    finally:
        crew.clean_up()

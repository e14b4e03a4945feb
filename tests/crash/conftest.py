"""Fixtures of the crash tests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

# However pytest was started: the helpers are found from the project's root.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.crash.kit import Crew  # noqa: E402 - after the path is set

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

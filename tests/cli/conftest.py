"""Fixtures of the command line's tests."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

# However pytest was started: the kit is found from the project's root.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

from tests.cli.kit import Shell  # noqa: E402 - after the path is set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A person with an empty home; whatever they started is ended after the test."""
    directory = tmp_path / "person"
    directory.mkdir()
    shell = Shell(tmp_path / "home", directory)
    try:
        yield shell
    finally:
        shell.clean_up()

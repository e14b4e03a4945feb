"""Fixtures of the command line's tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.kit import Shell

from headway import Governor

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


@pytest.fixture
def governor(shell: Shell) -> Iterator[Governor]:
    """A program that shares the person's home."""
    with Governor(f"sqlite:///{shell.home}") as governor:
        yield governor

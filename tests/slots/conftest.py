from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest
from tests.fleet.server import settled

from headway import Governor

if TYPE_CHECKING:
    from pathlib import Path

Govern = Callable[..., Governor]


@pytest.fixture
def home(home: Path) -> str:
    """The same as text."""
    return str(home)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def url(request: pytest.FixtureRequest, home: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store of each kind."""
    if request.param == "redis":
        return settled(monkeypatch)
    return "memory://" if request.param == "memory" else f"sqlite:///{home}"


@pytest.fixture
def govern(url: str) -> Iterator[Govern]:
    """Makes governors of the store with these limits, and closes them."""
    made: list[Governor] = []

    def make(limits: Mapping[str, int | str] | None = None) -> Governor:
        made.append(Governor(url, limits=limits))
        return made[-1]

    yield make
    for governor in made:
        governor.close()

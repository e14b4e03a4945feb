from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

import pytest

from headway import Governor

Govern = Callable[..., Governor]


@pytest.fixture(autouse=True)
def home(tmp_path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A home of the test's own: nobody's real one is ever touched."""
    for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
        monkeypatch.delenv(name)
    directory = os.path.join(tmp_path, "home")
    monkeypatch.setenv("HEADWAY_HOME", directory)
    return directory


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, home: str) -> str:
    """A store of each kind."""
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

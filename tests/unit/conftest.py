from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A home of the test's own: nobody's real one is ever touched."""
    for name in [name for name in os.environ if name.startswith("HEADWAY_")]:
        monkeypatch.delenv(name)
    directory = os.path.join(tmp_path, "home")
    monkeypatch.setenv("HEADWAY_HOME", directory)
    return directory

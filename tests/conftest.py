"""What every test may rely on: an environment of its own, and a clock that it sets itself."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# However pytest was started: the kits of the tests are found from the project's root.
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
if _ROOT not in sys.path:
    sys.path.insert(0, _ROOT)

# A shell ignores SIGINT and SIGQUIT for its background jobs.
# The programs that the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN:
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
# nohup ignores SIGHUP. A handler is not inherited, and keeps a hang-up from ending pytest itself.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of the test's own, and no settings from the outside."""
    for name in [name for name in os.environ if name.startswith("HEADWAY")]:
        monkeypatch.delenv(name)
    directory = tmp_path / "home"
    monkeypatch.setenv("HEADWAY_HOME", str(directory))
    return directory


class FakeClock:
    """A clock that stands still until the test moves it, in either direction."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> FakeClock:
    """A clock under the test's control."""
    return FakeClock()

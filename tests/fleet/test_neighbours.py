"""The processes of one machine: who lives is never taken for dead, and who ends is told at once."""

from __future__ import annotations

import fcntl
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.crash.kit import PATIENCE_SECONDS

from headway.errors import StoreUnavailable
from headway.stores import neighbours
from headway.stores.heart import Heart
from headway.stores.neighbours import Neighbours

if TYPE_CHECKING:
    from pathlib import Path

_MANY = 10_000
_PLACE = "redis://nowhere"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the test's own."""
    monkeypatch.setattr(neighbours, "_BASE", str(tmp_path))


def test_one_that_is_just_coming_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no moment in which others see it without its lock."""
    present = Neighbours(_PLACE)
    seen: list[str] = []

    def look_first(descriptor: int, kind: int) -> Any:
        if kind & fcntl.LOCK_EX:
            monkeypatch.undo()
            monkeypatch.setattr(neighbours, "_BASE", base)
            seen.extend(present.arrive())
        return fcntl_flock(descriptor, kind)

    base, fcntl_flock = neighbours._BASE, fcntl.flock
    monkeypatch.setattr(fcntl, "flock", look_first)
    newcomer = Neighbours(_PLACE)

    assert seen == []
    assert present.arrive() == []
    for each in (present, newcomer):
        each.leave()
        each.forget()


def test_names_are_long_enough_for_a_fleet() -> None:
    """Two of so many have the same one once in a million times, if each is made anew that often."""
    one = Neighbours(_PLACE)
    assert 32 ** len(one.id) > _MANY**3
    one.leave()
    one.forget()


class Growing(float):
    """A pause that is none at first, and as long as this from then on."""

    is_first = True

    def __radd__(self, clock: float) -> float:
        was_first, self.is_first = self.is_first, False
        return clock if was_first else clock + float(self)


class Faint:
    """Its first beat fails."""

    def __init__(self) -> None:
        self.beats = 0
        self.is_well = threading.Event()

    def beat(self, orphans: list[str]) -> None:
        assert orphans == []
        self.beats += 1
        if self.beats == 1:
            raise StoreUnavailable("a server", "it is away")
        self.is_well.set()

    def bury(self, holder: str) -> None:
        raise NotImplementedError

    def note_silence(self) -> None:
        """One that failed is not many."""


def test_a_beat_that_failed_is_repeated_soon() -> None:
    """Not after the pause that is between two that were heard."""
    patient = Faint()
    heart = Heart(_PLACE, Growing(3600))
    heart.start(patient)
    assert patient.is_well.wait(PATIENCE_SECONDS)
    heart.stop()

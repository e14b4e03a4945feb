"""The thread that keeps a holder known to its server, and notices who ends near by."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Protocol
from weakref import ref

from headway import background
from headway.errors import StoreUnavailable
from headway.stores import patience
from headway.stores.base import StoreClosed
from headway.stores.neighbours import Neighbours

if TYPE_CHECKING:

    class Patient(Protocol):
        """Whose heart it is."""

        def beat(self, orphans: list[str]) -> None: ...
        def bury(self, holder: str) -> None: ...
        def note_silence(self) -> None: ...


# After a failure that was waited for already.
_PAUSE_SECONDS = 1.0
_LONGEST_WAIT_SECONDS = 3600.0
_STOP_SECONDS = 2.0


class Heart:
    """Beats as often as is said, until it is stopped or its holder is gone."""

    def __init__(self, place: str, pause_seconds: float) -> None:
        self._pause_seconds = pause_seconds
        self._stopping, self._stopped = threading.Event(), threading.Event()
        self._is_started, self._can_watch = False, True
        try:
            self._neighbours: Neighbours | None = Neighbours(place)
        except OSError:
            self._neighbours = None  # then the server notices who has ended, only later

    @property
    def id(self) -> str | None:
        """Who this holder is among its neighbours, if it can be seen by them."""
        return None if self._neighbours is None else self._neighbours.id

    @property
    def lifeline(self) -> int | None:
        """What keeps this holder from being taken for dead, if there is somebody to be seen by."""
        return None if self._neighbours is None else self._neighbours.lock

    def start(self, patient: Patient) -> None:
        """From now on, once. Who was found dead is told of first: nobody else may be there."""
        if self._is_started:
            return
        self._is_started = True
        dead: list[str] = []
        try:
            dead += self._arrive()
            self._bury(patient, dead)
        except StoreUnavailable:
            pass  # once more, in its own time
        finally:
            background.start(self._live, ref(patient), dead)

    def _live(self, patient: ref[Patient], dead: list[str]) -> None:
        patience.keep_quiet()
        try:
            self._beat(patient, dead)
        finally:
            self._stopped.set()

    def _beat(self, patient: ref[Patient], dead: list[str]) -> None:
        beat_at = time.monotonic() + (0.0 if self._orphans() else self._pause_seconds)
        while not self._stopping.is_set():
            dead = dead or self._rest(beat_at - time.monotonic())
            present = patient()
            if present is None or self._stopping.is_set():
                return
            try:
                self._bury(present, dead)
                started = time.monotonic()
                if started >= beat_at:
                    present.beat(self._orphans())
                    beat_at = started + self._pause_seconds
            except StoreClosed:
                return
            except StoreUnavailable:  # it was tried for long; whoever asks next will hear of it
                present.note_silence()
                self._stopping.wait(_PAUSE_SECONDS)
            del present

    def _arrive(self) -> list[str]:
        try:
            return [] if self._neighbours is None else self._neighbours.arrive()
        except OSError:
            self._can_watch = False
            return []

    def _rest(self, seconds: float) -> list[str]:
        """Wait until it is time; those who ended meanwhile."""
        seconds = min(max(0.0, seconds), _LONGEST_WAIT_SECONDS)
        try:
            if self._neighbours is not None and self._can_watch:
                return self._neighbours.watch(seconds)
        except OSError:  # somebody has cleared their directory away
            self._can_watch = False
        self._stopping.wait(seconds)
        return []

    def _orphans(self) -> list[str]:
        try:
            if self._neighbours is not None and self._can_watch:
                return self._neighbours.orphans()
        except OSError:
            self._can_watch = False
        return []

    def bury_ended(self, patient: Patient) -> None:
        """Tell of everyone near by who has ended and of whom nobody has told."""
        if self._neighbours is not None:
            self._bury(patient, self._neighbours.ended())

    def _bury(self, patient: Patient, dead: list[str]) -> None:
        while dead and self._neighbours is not None:
            patient.bury(dead[-1])
            self._neighbours.clear_away(dead.pop())

    def stop(self) -> None:
        """Beat no more; and be seen by nobody."""
        self._stopping.set()
        if self._neighbours is not None:
            self._neighbours.interrupt()
        is_over = not self._is_started or self._stopped.wait(_STOP_SECONDS)
        if self._neighbours is not None:
            self._neighbours.leave()
        if is_over:
            self.forget()

    def forget(self) -> None:
        """Let go of everything, as in a forked child: there it is the parent's."""
        if self._neighbours is not None:
            self._neighbours.forget()

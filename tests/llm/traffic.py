"""The server's own count: which requests came, which are in flight, and how many at most."""

from __future__ import annotations

import select
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.llm.asks import Ask, Json

_GONE = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


@dataclass(slots=True)
class Record:
    """One request: from when it was read until its last bytes were on their way."""

    ask: Ask
    body: Json  # empty, if it was very large
    size: int  # of the body, in bytes
    headers: dict[str, str]
    socket: int
    arrived_at: float  # when its headers were there, by the clock of time.monotonic()
    number: int = 0
    started_at: float = field(default_factory=time.monotonic)
    ended_at: float | None = None
    status: int | None = None  # of the response; None if none was begun
    tag: str | None = None  # the text that the prompt asked to be said
    is_held: bool = False
    client_left: bool = False  # before its answer was whole

    @property
    def model(self) -> str:
        return self.ask.model

    @property
    def prompt(self) -> str:
        return self.ask.prompt


class Traffic:
    """Counts that may be read, and waited for, from any thread."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self._records: list[Record] = []
        self._flying: dict[int, Record] = {}
        self._peaks: Counter[str | None] = Counter()
        self.probes: list[str] = []

    def arrive(self, record: Record) -> Record:
        with self.changed:
            self._see_who_left()
            record.number = len(self._records) + 1
            self._records.append(record)
            self._flying[record.number] = record
            for model in (None, record.model):
                self._peaks[model] = max(self._peaks[model], self.in_flight(model))
            self.changed.notify_all()
            return record

    def change(self, change: Callable[[], object]) -> None:
        """Apply a change to a record, and tell those who wait."""
        with self.changed:
            change()
            self.changed.notify_all()

    def end(self, record: Record, *, client_left: bool = False) -> None:
        """The request is over; said once, and before the client can know."""
        with self.changed:
            if self._flying.pop(record.number, None) is not None:
                record.ended_at = time.monotonic()
                record.client_left, record.is_held = client_left, False
                self.changed.notify_all()

    def probe(self, what: str) -> None:
        self.change(lambda: self.probes.append(what))

    def in_flight(self, model: str | None = None) -> int:
        return len([r for r in self._now() if model in (None, r.model)])

    def held(self, model: str | None = None) -> int:
        return len([r for r in self._now() if r.is_held and model in (None, r.model)])

    def peak(self, model: str | None = None) -> int:
        with self.changed:
            return self._peaks[model]

    def requests(self, model: str | None = None, *, titles: bool = False) -> list[Record]:
        """Copies of the records, oldest first; requests for titles only if wished."""
        with self.changed:
            return [
                replace(r)
                for r in self._records
                if model in (None, r.model) and (titles or not r.ask.is_title)
            ]

    def _now(self) -> list[Record]:
        with self.changed:
            return list(self._flying.values())

    def _see_who_left(self) -> None:
        # A client that died and its successor may be read in one turn of the loop, in either
        # order. The kernel knows the true one, so nobody counts who has hung up already.
        for record in self._now():
            poller = select.poll()
            poller.register(record.socket, _GONE)
            if poller.poll(0):
                self.end(record, client_left=True)

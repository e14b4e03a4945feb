"""What providers see: who was let in when, worked out from pictures of a store and a clock.

It shares nothing with the code that decides, nor with what that keeps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.contract import oracle

from headway.limits import UNCAPPED

if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.tickets import Ticket

# A request counts for a minute; the store counts it a little longer, and in milliseconds.
MINUTE_SECONDS = 60.0
MOST_SECONDS = 61.003


class Diary:
    """Keeps which requests were let in, and which keys are to be left alone."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._admitted: dict[str, list[float]] = {}
        # Until when a key is left alone, and the lease that tries it after that.
        self._cooling: dict[str, float] = {}
        self._trying: dict[str, str] = {}

    def cool(self, key: str, until: float) -> None:
        """A key is left alone from now on."""
        self._cooling[key] = until
        self._trying.pop(key, None)

    def open(self, key: str) -> None:
        """Somebody has ended that before its time."""
        self._cooling.pop(key, None)
        self._trying.pop(key, None)

    def answered(self, lease_id: str) -> None:
        """A lease has shown that its keys can be used."""
        for key in [key for key, trying in self._trying.items() if trying == lease_id]:
            self.open(key)

    def stood_back(self, lease_id: str) -> None:
        """A lease no longer tries its keys, and has shown nothing."""
        for key in [key for key, trying in self._trying.items() if trying == lease_id]:
            del self._trying[key]

    def hand_over(self, lease_id: str, heir: str) -> None:
        """What a lease tries, another one goes on with."""
        for key in [key for key, trying in self._trying.items() if trying == lease_id]:
            self._trying[key] = heir

    def check(self, before: oracle.Picture, now: oracle.Picture) -> None:
        """Whether everyone who was let in by the last step could be."""
        for key in [key for key, trying in self._trying.items() if trying not in now.leases]:
            del self._trying[key]  # it ended without an answer
        fresh = [lease for lease in now.leases.values() if lease.id not in before.leases]
        for lease in fresh:
            for key in oracle.path_of(lease):
                if _job(lease.id) and _job(lease.id) == _job(now.borrowed.get((lease.id, key), "")):
                    continue  # it goes on with what was let in before
                self._check_cooling(lease, key, now)
                if now.budget(key) < UNCAPPED:
                    self._admitted.setdefault(key, []).append(self._clock())
        for key, spent in now.spent.items():
            if now.budget(key) < UNCAPPED:
                least, most = self._lately(key, MINUTE_SECONDS), self._lately(key, MOST_SECONDS)
                assert least <= spent <= most, f"{spent} requests on {key}, not {least} to {most}"
                if any(key in oracle.path_of(lease) for lease in fresh):
                    assert least <= now.budget(key), f"{least} requests a minute on {key}"

    def _check_cooling(self, lease: Ticket, key: str, now: oracle.Picture) -> None:
        until = self._cooling.get(key)
        if until is None:
            return
        assert self._clock() >= until, f"{lease.id} was let in on {key}, which cools"
        round_it = [ancestor.id for ancestor in now.ancestors(lease)]
        free = self._trying.get(key) in (None, *round_it)
        assert free, f"{lease.id} did not wait for the probe of {key}"
        self._trying[key] = lease.id

    def _lately(self, key: str, seconds: float) -> int:
        return sum(self._clock() - at < seconds for at in self._admitted.get(key, ()))


def _job(ticket_id: str) -> str:
    """The name of the job that a ticket is for."""
    name = ticket_id.rpartition("-")[2]
    return name if name.startswith("job") else ""

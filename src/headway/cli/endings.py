"""How leases end, as far as someone can tell who only looks.

Whoever ends well gives back, and nothing is left of that. Others leave a trace: in a home on
their cards, and on a server in what it keeps to tell them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, cast

from headway.stores.liveness import RECLAIMED
from headway.tickets import Revoked

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from headway.governor import Governor
    from headway.stores.redis import RedisStore
    from headway.views import LeaseView

    # What to call it, and how it came about.
    Ending: TypeAlias = tuple[Literal["died", "lost"], str]

# Holders whose end can be told from their release: each costs a descriptor.
_MAX_CARDS = 256


def seen_by(governor: Governor) -> Cards | Verdicts:
    """The traces that are left where this governor's leases are."""
    store = governor.turnstile.store
    if store.distant:
        return Verdicts(cast("RedisStore", store))
    return Cards(os.path.join(governor.settings.home, "live"))


class Cards:
    """The cards of those who run, kept open to see how they end.

    Whoever gives back for a dead holder notes it on its card before it removes it.
    """

    is_settling = False

    def __init__(self, live_directory: str) -> None:
        self._directory = live_directory
        self._open: dict[str, int] = {}

    def keep(self, leases: Iterable[LeaseView]) -> None:
        """Open the cards of these, and close all others."""
        holders = {_holder(lease) for lease in leases}
        for gone in self._open.keys() - holders:
            os.close(self._open.pop(gone))
        for holder in holders - self._open.keys():
            if len(self._open) >= _MAX_CARDS:
                return
            path = os.path.join(self._directory, f"{holder}.lock")
            try:
                self._open[holder] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:  # gone already
                continue

    def find(self, leases: Iterable[LeaseView]) -> dict[str, Ending]:
        """Of these leases, which are over, the ids of those that others had to give back."""
        return {lease.id: ("died", "without giving back") for lease in leases if self._died(lease)}

    def _died(self, lease: LeaseView) -> bool:
        card = self._open.get(_holder(lease))
        return card is not None and os.pread(card, 1, 0) == RECLAIMED.encode()

    def close(self) -> None:
        """Close them all."""
        self.keep(())


class Verdicts:
    """What a server keeps for those whose leases it gave to others."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    @property
    def is_settling(self) -> bool:
        """Whether leases that are not there may only not have come back yet."""
        return self._store.is_settling

    def keep(self, leases: Iterable[LeaseView]) -> None:
        """It keeps them by itself."""

    def find(self, leases: Iterable[LeaseView]) -> dict[str, Ending]:
        """Of these leases, which are over, the ids of those that were taken, and why."""
        verdicts = self._store.verdicts([lease.id for lease in leases])
        return {
            each.ticket_id: ("lost", each.reason) for each in verdicts if isinstance(each, Revoked)
        }


def _holder(lease: LeaseView) -> str:
    return lease.id.partition("-")[0]

"""Holders of a server of which some are not heard for a while, or speak out of the usual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.contract.houses import RedisHouse
from tests.contract.rig import Rig
from tests.fleet.server import shared

from headway import keys
from headway.stores.redis import RedisStore
from headway.tickets import Ticket

if TYPE_CHECKING:
    from tests.conftest import FakeClock

    from headway.stores.base import Store
    from headway.tickets import Answer


class Away(Rig):
    """Holders of which some are not heard for a while."""

    def __init__(self, namespace: str, clock: FakeClock) -> None:
        super().__init__(RedisHouse(namespace, clock=clock, max_waiting=100), clock)
        self._client: Any = shared("redis").client
        self._tag = f"{{headway:{namespace}}}:"

    def silence(self, *holders: int, until: float = -1e18) -> None:
        """These were not heard in time, and nobody has noticed yet."""
        names = [holder_name(self.holders[each]) for each in holders]
        self._client.zadd(self._tag + "holders", dict.fromkeys(names, until))

    def is_known(self, holder: int) -> bool:
        """Whether its silence would be noticed."""
        name = holder_name(self.holders[holder])
        return self._client.zscore(self._tag + "holders", name) is not None

    def forget_all(self) -> None:
        """The server loses everything, and nobody loses its connection."""
        self._client.delete(*[each for each in self._client.scan_iter() if self._tag in each])

    def put(self, fact: str, value: float) -> None:
        """Have the server know something else of the namespace."""
        self._client.hset(self._tag + "meta", fact, repr(value))

    def fact(self, name: str) -> float:
        """What the server knows of the namespace."""
        return float(self._client.hget(self._tag + "meta", name))

    def ask_unseen(self, *wanted: str, by: int = 0, wait: bool = True) -> tuple[Ticket, Answer]:
        """Request slots while nobody looks: a look goes the long way, and sets much right."""
        store = self.holders[by]
        ticket = Ticket(store.new_id(), wanted, keys.path(wanted))
        return ticket, store.request(ticket, wait=wait)

    def lose_sight_of(self, holder: int) -> None:
        """One was not heard in time, and is taken for dead."""
        self.silence(holder)
        self.store.tend()

    def start_server_again(self) -> None:
        """It has its data, and others may know more."""
        self._client.hset(self._tag + "meta", "server", "before")
        self._client.hdel(self._tag + "keys", "")  # its seal, which shortcuts go by

    def messages(self, holder: int) -> int:
        """How many wait for one who does not read them."""
        name = holder_name(self.holders[holder])
        return int(self._client.llen(f"{self._tag}inbox:{name}"))

    def lose(self, *names: str) -> None:
        """The server loses some of what it keeps."""
        self._client.delete(*[self._tag + each for each in names])

    def lifetimes(self) -> dict[str, int]:
        """For how many seconds what is there is kept, if nobody uses it."""
        names = [each for each in self._client.scan_iter() if each.startswith(self._tag)]
        return {each[len(self._tag) :]: int(self._client.ttl(each)) for each in names}

    def without_end(self) -> set[str]:
        """What is kept for ever."""
        return {name for name, seconds in self.lifetimes().items() if seconds < 0}

    def used(self, key: str) -> int:
        return self.store.census().states[key].used


def holder_name(store: Store) -> str:
    """Under which it is known to the server."""
    assert isinstance(store, RedisStore)
    return store._session.id

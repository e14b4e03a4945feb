"""The stores under contract: how each is opened, and how one of its holders dies.

A holder is one store object. Several on one home in one process are as
separate as several processes are: each has its own lock, socket and database
connections. To put another store under contract, write its house and add it
to ``HOUSES``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol

from tests.fleet.server import shared

from headway.config import Settings
from headway.stores.book import new_state
from headway.stores.memory import MemoryStore
from headway.stores.redis import RedisStore
from headway.stores.redis_link import Link
from headway.stores.redis_rows import packed, unpacked
from headway.stores.redis_script import script
from headway.stores.shortcuts import Shortcuts
from headway.stores.sqlite import SqliteStore
from headway.stores.sqlrows import read_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headway.limits import Terms
    from headway.stores.base import Census, Store
    from headway.stores.repair import Correction
    from headway.tickets import Granted, Ticket, Waiting

MAX_COOLING_SECONDS = 1000.0
BOOST_SECONDS = 600.0


class House(Protocol):
    """A place where holders share one set of limits."""

    # Whether a holder can die while others live on.
    mortal: bool
    # Where the store says how many idle keys it remembers.
    many_keys: str

    def open(self, terms: Terms) -> Store:
        """A new holder, who finds these terms in force."""

    def kill(self, store: Store) -> str:
        """End a holder as ``kill -9`` would, and say what its name was."""

    def notice(self, store: Store, dead: list[str]) -> None:
        """Let a holder find out that others may have died."""

    def glance(self, store: Store) -> Census:
        """The whole store as it is, without burying the dead as a census does."""

    def deliver(self) -> None:
        """Let everything arrive that is on its way."""

    def lose_messages(self, store: Store) -> None:
        """Let whatever is on its way to a holder get lost."""

    def verdicts(self, store: Store) -> int:
        """How many ends of tickets are kept for owners who have not read them."""

    def lose_counts(self, stores: list[Store]) -> None:
        """Let the store forget everything but what the holders know."""

    def falsify(self, store: Store, key: str, count: str, value: int) -> None:
        """Let a count of a key be wrong, as no operation of a store leaves it."""

    def repair(self, stores: list[Store]) -> list[Correction]:
        """Have one of them repair the store, and wait until it grants again."""

    def close(self, stores: list[Store]) -> None:
        """End the living holders properly."""


class MemoryHouse:
    """One store is all there is: every holder's tickets go through it."""

    mortal = False
    many_keys = "headway.stores.memorybook._MANY_KEYS"

    def __init__(self, directory: str, *, clock: Callable[[], float], max_waiting: int) -> None:
        self.directory = directory  # where nothing is written
        self._store = MemoryStore(
            boost_seconds=BOOST_SECONDS,
            max_waiting=max_waiting,
            max_cooling_seconds=MAX_COOLING_SECONDS,
            clock=clock,
        )

    def open(self, terms: Terms) -> Store:
        assert terms == self._store.terms()
        return self._store

    def kill(self, store: Store) -> str:
        raise NotImplementedError("the memory store ends with its process")

    def notice(self, store: Store, dead: list[str]) -> None:
        raise NotImplementedError("the memory store ends with its process")

    def glance(self, store: Store) -> Census:
        return store.census()

    def deliver(self) -> None:
        pass  # nothing is ever on its way

    def lose_messages(self, store: Store) -> None:
        assert store is self._store

    def verdicts(self, store: Store) -> int:
        assert store is self._store
        return 0  # they are kept on the tickets themselves

    def lose_counts(self, stores: list[Store]) -> None:
        assert set(stores) <= {self._store}
        self._store._book.recount(self._store._admission)

    def falsify(self, store: Store, key: str, count: str, value: int) -> None:
        assert store is self._store
        setattr(self._store._book.key(key), count, value)

    def repair(self, stores: list[Store]) -> list[Correction]:
        return stores[0].repair()

    def close(self, stores: list[Store]) -> None:
        assert set(stores) <= {self._store}
        self._store.close()


class SqliteHouse:
    """A home, with a store object per holder."""

    mortal = True
    many_keys = "headway.stores.ledger._MANY_KEYS"

    def __init__(self, directory: str, *, clock: Callable[[], float], max_waiting: int) -> None:
        self._directory, self._clock, self._max_waiting = directory, clock, max_waiting

    def open(self, terms: Terms) -> SqliteStore:
        settings = Settings(
            home=self._directory,
            lines=(),
            offered_lines=(),
            # As if they were read from the home's file.
            paused=terms.paused,
            boost_seconds=BOOST_SECONDS,
            max_waiting=self._max_waiting,
            max_cooling_seconds=MAX_COOLING_SECONDS,
            store_timeout_seconds=5.0,
            inherited=(),
            task=None,
        )
        store = SqliteStore(settings, clock=self._clock)
        store.new_id()  # a holder appears when it is first asked for its name
        return store

    def kill(self, store: Store) -> str:
        assert isinstance(store, SqliteStore)
        home = store._home
        name = home.presence.id
        # What the kernel does at the end of a process: it closes the descriptors. Nothing
        # is given back, and the files of the dead stay where they are.
        home.presence.forget()
        store._reader.close()
        home.database.let_go()
        home.live.close()
        home.guard.close()
        return name

    def notice(self, store: Store, dead: list[str]) -> None:
        assert isinstance(store, SqliteStore)
        store.reclaim(dead)

    def glance(self, store: Store) -> Census:
        assert isinstance(store, SqliteStore)
        return store._reader.census()

    def deliver(self) -> None:
        pass  # it has arrived when it is sent

    def lose_messages(self, store: Store) -> None:
        assert isinstance(store, SqliteStore)
        store._home.presence.receive(0)

    def verdicts(self, store: Store) -> int:
        assert isinstance(store, SqliteStore)
        query = "select count(*) from verdicts"
        (count,) = store._home.database.connection.execute(query).fetchone()
        return int(count)

    def lose_counts(self, stores: list[Store]) -> None:
        os.unlink(os.path.join(self._directory, "slots.db"))
        for store in stores:
            assert isinstance(store, SqliteStore)
            store._home.refresh()

    def falsify(self, store: Store, key: str, count: str, value: int) -> None:
        assert isinstance(store, SqliteStore)
        store._home.database.connection.execute(
            f"update keys set {count} = ? where key = ?", (value, key)
        )

    def repair(self, stores: list[Store]) -> list[Correction]:
        return stores[0].repair()

    def close(self, stores: list[Store]) -> None:
        for store in stores:
            assert isinstance(store, SqliteStore)
            try:
                store.close()
            except BaseException:
                self.kill(store)  # the test has failed; let it leave no descriptors
                raise


class EagerSqliteHouse(SqliteHouse):
    """A home whose stores try every shortcut each time, though it may not pay.

    Usually they try what fits the last case, and in a new home that is mostly none.
    """

    def open(self, terms: Terms) -> SqliteStore:
        store = super().open(terms)
        store._shortcuts.__class__ = EagerShortcuts
        return store


class EagerShortcuts(Shortcuts):
    """Tries one way after the other."""

    def come(self, ticket: Ticket, *, wait: bool) -> Granted | Waiting | None:
        with self._home.database.connection as connection:
            terms = read_terms(connection.execute)
            for key in ticket.path:
                state = new_state(key, terms)
                connection.execute(
                    "insert or ignore into keys (key, cap, gate, budget) values (?, ?, ?, ?)",
                    (key, state.cap, state.gate, state.budget),
                )
        self._busy.discard(ticket.path)
        answer = super().come(ticket, wait=wait)
        return answer or super().come(ticket, wait=wait)

    def go(self, ticket: Ticket, held_seconds: float) -> bool:
        self._busy.discard(ticket.path)
        return super().go(ticket, held_seconds) or super().go(ticket, held_seconds)


class ClockedLink(Link):
    """A way to a server whose clock is the test's."""

    _CLOCK = (
        b"local function server_seconds() return tonumber(redis.call('GET', NS .. 'clock')) end"
    )

    def __init__(self, url: str, namespace: str, clock: Callable[[], float]) -> None:
        text = script(clock=self._CLOCK)
        super().__init__(url, namespace, timeout_seconds=5.0, text=text)
        self._clock = clock

    def run(self, connection: Any, words: Sequence[bytes], answer: Callable[[], Any]) -> Any:
        connection.send_command(b"SET", self.tag + b":clock", repr(self._clock()))
        connection.read_response()
        return super().run(connection, words, answer)


class RedisHouse:
    """A namespace on a server, with a store object per holder."""

    mortal = True
    many_keys = "headway.stores.redis_session._MANY_KEYS"
    server = "redis"

    def __init__(self, directory: str, *, clock: Callable[[], float], max_waiting: int) -> None:
        self._namespace, self._clock = directory, clock
        self._settings = Settings(
            home=directory,
            boost_seconds=BOOST_SECONDS,
            max_waiting=max_waiting,
            max_cooling_seconds=MAX_COOLING_SECONDS,
            store_timeout_seconds=5.0,
            lease_seconds=1e9,
            store_eviction="refuse",
        )
        self._server = shared(self.server)
        self._client: Any = self._server.client

    def open(self, terms: Terms) -> RedisStore:
        link = ClockedLink(self._server.url, self._namespace, self._clock)
        store = RedisStore(self._settings, link, clock=self._clock)
        store.version()
        self._settle()
        if terms.paused:
            assert store.set_terms(store.terms().with_paused(terms.paused), expected=store.terms())
        return store

    def _key(self, name: str) -> str:
        return f"{{headway:{self._namespace}}}:{name}"

    def kill(self, store: Store) -> str:
        assert isinstance(store, RedisStore)
        session = store._session
        session._connection.close()
        session._heart.stop()
        store._listening.inbox.close()
        self._client.zadd(self._key("holders"), {session.id: -1e18})
        # Nor since one who is new has given it more time: this is not a server that slept.
        self._client.hset(self._key("meta"), "spared_until", "-1e18")
        return session.id

    def notice(self, store: Store, dead: list[str]) -> None:
        del dead  # the server knows better
        store.tend()

    def glance(self, store: Store) -> Census:
        assert isinstance(store, RedisStore)
        return store.census()

    def deliver(self) -> None:
        self._client.ping()  # what the server had to write before, it has written now

    def lose_messages(self, store: Store) -> None:
        assert isinstance(store, RedisStore)
        self._client.delete(self._key(f"inbox:{store._session.id}"))

    def verdicts(self, store: Store) -> int:
        del store
        names = [name for name in self._names() if "verdicts:" in name]
        return sum(int(self._client.hlen(name)) for name in names)

    def falsify(self, store: Store, key: str, count: str, value: int) -> None:
        assert store is not None
        with self._server.other_client() as client:  # one that does not take bytes for text
            row = unpacked(client.hget(self._key("keys"), key))
            row[3 + ("used", "reserved", "waiting", "promised").index(count)] = value
            client.hset(self._key("keys"), key, packed(row))

    def repair(self, stores: list[Store]) -> list[Correction]:
        found = stores[0].repair()
        self.come_back(stores)
        return found

    def come_back(self, stores: list[Store]) -> None:
        """Let everyone say what it holds, and then nobody be waited for any more."""
        for store in stores:
            store.version()
        self._settle()
        stores[0].version()

    def close(self, stores: list[Store]) -> None:
        for store in stores:
            store.close()

    def lose_counts(self, stores: list[Store]) -> None:
        self._client.delete(*self._names())
        self.come_back(stores)

    def _settle(self) -> None:
        """Nobody else is to come back."""
        self._client.hset(self._key("meta"), "settles_at", "0")

    def _names(self) -> list[str]:
        return [name for name in self._client.scan_iter() if name.startswith(self._key(""))]


class ValkeyHouse(RedisHouse):
    """The same on the other server."""

    server = "valkey"


HOUSES: dict[str, type[MemoryHouse | SqliteHouse | RedisHouse]] = {
    "redis": RedisHouse,
    "valkey": ValkeyHouse,
    "memory": MemoryHouse,
    "sqlite": SqliteHouse,
    "sqlite-eager": EagerSqliteHouse,
}

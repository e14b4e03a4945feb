"""A server throws one row away in the middle of work, whichever: nothing is jammed by that.

Whoever is alive is served within bounded time: the loss is found when somebody is next heard or
served, and then nothing is granted until everyone has said what it holds.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.contract.houses import RedisHouse
from tests.fleet.away import holder_name

from headway.limits import UNCAPPED
from headway.stores.redis import RedisStore

if TYPE_CHECKING:
    from tests.fleet.away import Away

    from headway.tickets import Ticket

_CAPS = {"a": 1, "b": 1, "llm": 2, "llm/x": 1}
# Every kind of row; a number stands for the holder of that number.
_ROWS = [
    "meta",
    "keys",
    "terms",
    "holders",
    "parked",
    "children",
    "loans",
    "gated",
    "clocks",
    "line:a",
    "line:b",
    "line:llm/x",
    "admitted:llm/x",
    *(f"{row}:{holder}" for row in ("of", "waiting", "inbox", "verdicts") for holder in range(3)),
]
_ROUNDS = 12


class Work:
    """Three processes with leases, loans, reservations and places in line, at once."""

    def __init__(self, away: Away) -> None:
        self.away, self.done = away, set[str]()
        self._dead: list[str] = []
        away.limits({**_CAPS, "llm/x": {"slots": 1, "requests_per_minute": 1000}})
        parent = away.ask("a", by=1)
        self.tickets = [
            parent,
            away.ask("b", by=2),
            away.ask("llm/x", by=0),
            away.ask("a", by=1, parent=parent),  # on loan
            away.ask("a", by=1, parent=parent),  # waits for the loan
            away.ask("a", by=0),
            away.ask("llm/x", "b", by=1),
            away.ask("a", "b", by=2),
            away.ask("b", by=0),
            away.ask("llm/x", by=2),
        ]
        away.cool("llm/x", 30)
        self.cancelled = away.ask("a", by=2)
        assert away.cancel(self.cancelled)
        self.tickets.append(self.cancelled)  # if both message and verdict are lost, it waits on

    def throw_away(self, row: str) -> bool:
        """Have the server evict a row; whether there was one."""
        kind, _, whose = row.partition(":")
        if whose.isdigit():
            row = f"{kind}:{holder_name(self.away.holders[int(whose)])}"
        return bool(self.away._client.unlink(self.away._tag + row))

    def kill(self, number: int) -> None:
        """End a process, as its machine does that nobody hears of any more."""
        dead = self.away.holders[number]
        mine = [each for each in self.tickets if self.away.owner(each) is dead]
        self.tickets = [each for each in self.tickets if each not in mine]
        self._dead.append(self.away.house.kill(dead))
        self.away.holders.remove(dead)

    def holding(self) -> list[Ticket]:
        """Those whose owners believe to have a slot."""
        return [
            ticket
            for ticket in self.tickets
            if ticket.at is None and ticket.verdict is None and ticket.id not in self.done
        ]

    def pass_time(self) -> None:
        """Everyone is heard once, hears what there is, and nobody else is waited for."""
        for store in self.away.holders:
            assert isinstance(store, RedisStore)
            store._session.beat()
            store.listen(0)
            store.listen(0)
        self._refuse_too_many()
        house = self.away.house
        assert isinstance(house, RedisHouse)
        house.come_back(self.away.holders)
        silent = dict.fromkeys(self._dead, -1e18)  # everyone was waited for, and these did not come
        if silent:
            self.away._client.zadd(self.away._tag + "holders", silent, xx=True)
        self.away.clock.move(61)
        for store in self.away.holders:
            store.tend()
            store.listen(0)
            store.listen(0)
        self._refuse_too_many()

    def _refuse_too_many(self) -> None:
        """Nobody is let in beside those who hold something; two on one loan are one."""
        for key, cap in _CAPS.items():
            own = [each for each in self.holding() if key in each.path and not each.parents]
            assert sum(each.weight for each in own) <= cap, (key, own)

    def go_on(self) -> None:
        """Everyone who has a slot works and gives it back, until nobody is left."""
        for _ in range(_ROUNDS):
            self.pass_time()
            if self.cancelled.verdict is not None:  # whoever hears it gives the ticket back
                self.away.owner(self.cancelled).release(self.cancelled, 0.0)
                self.done.add(self.cancelled.id)
            for ticket in self.holding():
                self.done.add(ticket.id)
                self.away.owner(ticket).release(ticket, 1.0)
                self._refuse_too_many()
        left = [ticket for ticket in self.tickets if ticket.id not in self.done]
        assert not left, [(each.id, each.path, each.at, each.verdict) for each in left]

    def expect_nothing_left(self) -> None:
        """All counts are back to nothing, and every slot is to be had again."""
        self.pass_time()
        states = self.away.store.census().states.values()
        counts = [(each.used, each.reserved, each.waiting, each.promised) for each in states]
        assert set(counts) == {(0, 0, 0, 0)}
        for key in _CAPS:
            assert self.away.runs(self.away.ask(key, by=0)), key


@pytest.fixture
def work(away: Away) -> Work:
    """All kinds of rows at once."""
    return Work(away)


@pytest.mark.parametrize("row", _ROWS)
def test_everyone_alive_is_served_without_a_row(work: Work, row: str) -> None:
    """Nobody loses its lease or its place for good, and nothing stays jammed."""
    work.throw_away(row)

    work.go_on()

    work.expect_nothing_left()


@pytest.mark.parametrize("seed", range(20))
def test_everyone_alive_is_served_without_many_rows(work: Work, seed: int) -> None:
    """A server whose memory is full evicts some rows at once, and others later."""
    chance = random.Random(seed)
    for _ in range(2):
        for row in _ROWS:
            if chance.random() < 0.3:
                work.throw_away(row)
        work.pass_time()

    work.go_on()

    work.expect_nothing_left()


@pytest.mark.parametrize("dying", [0, 1, 2])
@pytest.mark.parametrize("row", _ROWS)
def test_everyone_else_is_served_if_a_process_dies_with_a_row(
    work: Work, row: str, dying: int
) -> None:
    """There is nobody left who could say what was held."""
    work.throw_away(row)
    work.kill(dying)

    work.go_on()

    work.expect_nothing_left()


def test_every_kind_of_row_is_thrown_away_somewhere(work: Work) -> None:
    """A new kind of row needs its name in the list above."""
    kinds = {row.partition(":")[0] for row in _ROWS}
    names = [name for name in work.away._client.scan_iter() if name.startswith(work.away._tag)]
    found = {name.removeprefix(work.away._tag).partition(":")[0] for name in names}
    assert found - {"clock", "cloc"} <= kinds
    assert {"children", "loans", "gated", "verdicts", "inbox", "admitted"} <= found


def test_a_lease_whose_process_was_killed_counts_without_the_list_of_holders(away: Away) -> None:
    """Its command goes on, and only a neighbour is left who is heard for it."""
    away.limit(k=1)
    away.ask("k", by=1)
    orphan = holder_name(away.holders[1])
    living = [each for each in away.holders if each is not away.holders[1]]
    away._client.unlink(away._tag + "holders")

    for _ in range(2):
        for store in living:
            assert isinstance(store, RedisStore)
            store._session.beat([orphan])
    assert isinstance(away.house, RedisHouse)
    away.house.come_back(living)

    assert away.waits(away.ask("k", by=0))


def test_limits_are_in_force_again_without_their_row(work: Work) -> None:
    """Whoever is alive has brought them."""
    work.throw_away("terms")

    work.pass_time()

    assert [work.away.store.terms().cap(key) for key in _CAPS] == list(_CAPS.values())
    assert work.away.store.terms().cap("other") == UNCAPPED
